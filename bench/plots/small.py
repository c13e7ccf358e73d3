"""Figures 9, 11, 16 (a) and 19: small blocks, and what interleaving is worth."""

from plots import page, svg
from plots.figure import (COLOURS, COUNT_HEAD, COUNTS, Figure, SPEED, SPEED_HEAD, arguments, beside,
                          count_rows, medium_text, note_of, series_of, speed_rows, threads_list)
from plots.page import Drawn
from plots.samples import Spread, ns_per_op, ratio
from plots.svg import Series, spread_text

SMALL = ("threadtest", "prodcon", "shbench", "larson-small")
PEERS = ("pmdk", "pmdk-tx")
PANELS_9 = (("line", "model with delays"), ("cache",))  # media that are compared


# --- 9: beside other allocators -----------------------------------------------------------------

def commands_9(setup):
    bench = SMALL[:1] + SMALL[3:] if setup.quick else SMALL
    return [
        arguments(setup, bench=bench, allocator=("tenuto", "pmdk", "pmdk-tx"),
                  medium=("line", "cache"), threads=setup.threads),
        arguments(setup, bench=bench, allocator="tenuto", medium="model", delays=True,
                  threads=setup.threads),
    ]


def draw_9(samples):
    plots, rows = [], []
    for media in PANELS_9:
        drawn = [(case, series_9(samples, case, media)) for case in samples.values("case")]
        top = svg.top_of(*(one for _, series in drawn for one in series))
        plots += [svg.lines(f"{case}, medium {page.listed(media, 'or')}", SPEED, samples.values("threads"),
                            "threads", series, top) for case, series in drawn]
    for case in samples.values("case"):
        rows += ratio_rows(samples, case)
    tables = [page.table("Speed of tenuto over libpmemobj's, round by round",
                         ("benchmark", "threads", "medium", "over pmdk", "over pmdk-tx"), rows),
              page.table("All figures", ("benchmark", "allocator", "medium", "threads", *SPEED_HEAD),
                         speed_rows(samples.all(), lambda s: (s.get("case"), s.get("engine"),
                                                              medium_text(s), s.get("threads"))))]
    return Drawn(plots, tables)


def series_9(samples, case, media):
    series = []
    for engine in samples.values("engine"):
        for medium in media:
            found = {s.get("threads"): s for s in samples.all(case=case, engine=engine)
                     if medium_text(s) == medium}
            name = f"{engine}, {medium}" if len(media) > 1 else engine
            series.append(series_of(name, COLOURS[engine], [found.get(t) for t in samples.values("threads")],
                                    "mops", "dashed" if "delays" in medium else ""))
    return series


def compare_9(samples):
    return [c for medium in ("line", "cache") for mine in samples.all(engine="tenuto", medium=medium)
            for c in beside(f"Small blocks on medium {medium}, {SPEED}",
                            f"{mine.get('case')} with {threads_list(mine.get('threads'))}", "mops", mine,
                            peers_of(samples, mine), more_is_better=True)]


def peers_of(samples, mine):
    at = {name: mine.get(name) for name in ("case", "threads", "medium")}
    return {engine: samples.one(engine=engine, **at) for engine in PEERS}


def ratio_rows(samples, case):
    rows = []
    for mine in samples.all(case=case, engine="tenuto"):
        others = peers_of(samples, mine).values()
        if any(others):
            rows.append([case, mine.get("threads"), mine.get("medium"),
                         *(spread_text(ratio(mine, o) if o else None) for o in others)])
    return rows


FIGURE_9 = Figure(
    "9", "Small blocks, beside strongly consistent allocators",
    "On Threadtest, Prod-con, Shbench and Larson-small, 1 to 64 threads, NVAlloc-LOG is ahead of its "
    "strongly consistent peers everywhere: at most 6.4 times as fast as PMDK, 3.5 times as "
    "nvm_malloc, 3.9 times as PAllocator. The paper credits interleaving, which takes most reflushes "
    "out of updates of metadata and of the log.",
    "Operations of all threads a second; up to as many threads as there are cores. Panels of the same "
    "medium have the same range. Of the paper's peers only libpmemobj is packaged: on medium line both flush "
    "with the processor's own instruction, on cache neither does. Optane's delays exist on medium model "
    "alone, so that libpmemobj cannot be shown with them.",
    commands_9, draw_9, compare_9)


# --- 11: where the time goes --------------------------------------------------------------------

CASES_11 = ("threadtest", "larson-small", "dbmstest")


def commands_11(setup):
    common = {"bench": CASES_11, "allocator": "tenuto", "apart": True, "stripes": (1, 6)}
    return [arguments(setup, **common, medium=("cache", "model")),
            arguments(setup, **common, medium="model", delays=True)]


SETTINGS_11 = {1: "1 stripe", 6: "6 stripes"}


def setting_11(sample):
    return SETTINGS_11.get(sample.get("stripes"), "?")


def parts_11(samples, at):
    """Nanoseconds an operation: without flushes; what flushes, fences and their counting add; what
    the delays add. Differences of medians; one below zero is noise and shown as zero."""
    spreads = [s.spread(ns_per_op) if s else None
               for s in (samples.one(medium="cache", **at), samples.one(medium="model", delays=None, **at),
                         samples.one(medium="model", delays=True, **at))]
    if None in spreads:
        return None
    plain, counted, delayed = (s.median for s in spreads)
    return [plain, max(0.0, counted - plain), max(0.0, delayed - counted)]


def draw_11(samples):
    plots, rows = [], []
    names = ("no flush (cache)", "flushes and fences, counted", "Optane's delays")
    for case in samples.values("case"):
        ats = [{"case": case, "stripes": stripes} for stripes in SETTINGS_11]
        bars = [(at, parts_11(samples, at)) for at in ats]
        bars = [(setting_11(at), parts, at) for at, parts in bars if parts is not None]
        series = [Series(name, f"c{2 - i}", [Spread(p[i], p[i], p[i]) for _, p, _ in bars],
                         note_of(samples.all(case=case))) for i, name in enumerate(names)]
        plots.append(svg.stacked(case, "ns an operation", [b for b, _, _ in bars], series))
        base = next((p for name, p, _ in bars if name == SETTINGS_11[1]), None)
        for name, parts, at in bars:
            flush = sum(parts[1:])
            saved = f"{100 * (1 - flush / sum(base[1:])):.0f} %" if base and sum(base[1:]) else "–"
            delayed = samples.one(medium="model", delays=True, **at)
            rows.append([case, name, spread_text(delayed.spread(ns_per_op)),
                         f"{100 * flush / sum(parts):.0f} %", saved])
    counted = samples.all(medium="model", delays=None)
    tables = [
        page.table("Medium model with delays; flushing is what the upper two parts of a bar show",
                   ("benchmark", "setting", "ns an operation", "of it flushing",
                    "flushing saved by stripes"), rows),
        page.table("Counts an operation, exact on any machine", ("benchmark", "setting", *COUNT_HEAD),
                   count_rows(counted, lambda s: (s.get("case"), setting_11(s)))),
        page.table("What the bookkeeping log takes", ("benchmark", "setting", "log, KiB",
                                                      "rewritten", "pieces dropped whole"),
                   [[s.get("case"), setting_11(s), spread_text(s.spread(log_kib)),
                     spread_text(s.spread("book_slow_gcs")), spread_text(s.spread("book_fast_gcs"))]
                    for s in counted if s.get("case") == "dbmstest"]),
    ]
    return Drawn(plots, tables)


def worth_stripes(samples, topic, field, **at):
    """Six stripes against one, in every setting that has both."""
    found = []
    for mine in samples.all(stripes=6, **at):
        case, threads = mine.get("case"), mine.get("threads")
        one = samples.one(stripes=1, case=case, threads=threads, **at)
        found += beside(topic, f"{case} with {threads_list(threads)}", field, mine, {"one stripe": one})
    return found


def worth_11(samples):
    return (worth_stripes(samples, "Six stripes, reflushes an operation", "reflushes_per_op", medium="model",
                          delays=None) +
            worth_stripes(samples, "Six stripes, medium model with delays, ns an operation", ns_per_op,
                          medium="model", delays=True))


def log_kib(row):
    return row["book_bytes"] / 1024 if "book_bytes" in row else None


FIGURE_11 = Figure(
    "11", "Where the time of an operation goes",
    "Eight threads. On Threadtest flushing metadata and the write-ahead log takes 87 % of the time of a "
    "version without any of the three techniques. Interleaving the thread caches alone saves 51 % of "
    "the flushing of metadata and 35 % of all time; interleaving bitmaps and the log as well saves "
    "another 48 % of the flushing. On Larson-small the first saves 14 % of that flushing and 7 % of the "
    "time, all of it makes NVAlloc-LOG 31 % faster than the base. On DBMStest log-structured bookkeeping "
    "saves 45 % of the flushing, interleaving its entries another 26 %.",
    "One thread, each destination in a line of its own. One stripe is Threadtest's and Larson's base: "
    "bitmaps and thread caches without interleaving; six stripes are the default. Two of the paper's "
    "switches do not exist here. Intents (the write-ahead log) fill the lines of a ring one after the "
    "other, which is what their recovery rests on, and entries of the bookkeeping log take turns in the "
    "lines of their piece: neither can be had without. And no base that updates extent headers in place "
    "was built to be beaten; for DBMStest the tables show what the log costs instead. An entry in the "
    "log takes the place of a bit in a bitmap, one line either way, so what DBMStest flushes above "
    "Threadtest is the log's own: new pieces, and collection. Larson frees from a destination and "
    "allocates to it again at once: half a reflush an operation is the destination's.",
    commands_11, draw_11, worth=worth_11)


# --- 16 (a), 19: the number of stripes ----------------------------------------------------------

def stripes_of(setup):
    return (1, 6) if setup.quick else (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)


STRIPE_CASES = ("threadtest", "shbench")


def stripe_plots(samples, cases, words, unit, field):
    """One for each case, of the same range: a line for each number of threads."""
    stripes, drawn = [n for n in samples.values("stripes") if n is not None], []
    for case in cases:
        series = []
        for i, t in enumerate(samples.values("threads", case=case)):
            found = {s.get("stripes"): s for s in samples.all(case=case, threads=t)}
            series.append(series_of(threads_list(t), f"c{i % 7}", [found.get(n) for n in stripes], field))
        drawn.append((case, series))
    top = svg.top_of(*(one for _, series in drawn for one in series))
    return [svg.lines(f"{case}: {words}", unit, stripes, "stripes", series, top) for case, series in drawn]


def stripe_table(samples, cases, caption):
    rows = [[s.get("case"), s.get("stripes"), s.get("threads"), spread_text(s.spread(ns_per_op)),
             *(spread_text(s.spread(f)) for f in COUNTS)]
            for case in cases for s in samples.all(case=case)]
    return page.table(caption, ("benchmark", "stripes", "threads", "ns an operation", *COUNT_HEAD),
                      rows)


def commands_16a(setup):
    return [arguments(setup, bench=STRIPE_CASES, allocator="tenuto", medium="model", delays=True,
                      apart=True, stripes=stripes_of(setup), threads=setup.threads)]


def draw_16a(samples):
    cases = [c for c in STRIPE_CASES if samples.all(case=c)]
    plots = (stripe_plots(samples, cases, "time", "ns an operation", ns_per_op) +
             stripe_plots(samples, cases, "reflushes", "reflushes an operation", "reflushes_per_op"))
    return Drawn(plots, [stripe_table(samples, cases, "On medium model with delays, by stripes")])


def commands_19(setup):
    return [arguments(setup, bench=STRIPE_CASES, allocator="tenuto", medium="cache", apart=True,
                      stripes=stripes_of(setup), threads=max(setup.threads))]


def draw_19(samples):
    cases = samples.values("case")
    return Drawn(stripe_plots(samples, cases, "time without flushes", "ns an operation", ns_per_op),
                 [stripe_table(samples, cases, "On medium cache, by stripes")])


def worth_19(samples):
    return worth_stripes(samples, "Six stripes, medium cache, ns an operation", ns_per_op, medium="cache")


FIGURE_19 = Figure(
    "19", "Interleaving where caches survive a power cut (eADR)",
    "The paper takes the flushes out of all allocators to imitate eADR and runs Threadtest with four "
    "threads: the number of stripes, 1 to 32, makes no difference, and interleaving is switched off "
    "where eADR is found.",
    "Threadtest and Shbench on medium cache, which flushes nothing, with as many threads as there are "
    "cores; each destination in a line of its own.",
    commands_19, draw_19, worth=worth_19)
