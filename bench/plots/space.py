"""Figures 13, 15 and 16 (b): memory, and what morphing is worth."""

from plots import page, svg
from plots.figure import (COLOURS, Figure, SPEED, SPEED_HEAD, arguments, beside, medium_text, note_of,
                          series_of, speed_rows, threads_list)
from plots.page import Drawn
from plots.samples import ns_per_op, ratio
from plots.small import commands_16a, draw_16a
from plots.svg import Series, spread_text

EVERYONE = ("tenuto", "pmdk", "mimalloc", "jemalloc", "glibc")
MIB = 1 << 20


def peak_mib(row):
    return row["peak_bytes"] / MIB


def live_mib(row):
    return row["live_bytes"] / MIB


# --- 13: space ----------------------------------------------------------------------------------

def commands_13(setup):
    return [arguments(setup, bench=("threadtest", "dbmstest"), allocator=EVERYONE, medium="cache",
                      verify=True, threads=setup.threads)]


def draw_13(samples):
    plots, rows = [], []
    threads = samples.values("threads")
    for case in samples.values("case"):
        series = [series_of(engine, COLOURS[engine], [samples.one(case=case, engine=engine, threads=t)
                                                      for t in threads], peak_mib)
                  for engine in samples.values("engine")]
        plots.append(svg.bars(case, "peak, MiB", list(map(threads_list, threads)), series))
    for s in samples.all():
        rows.append([s.get("case"), s.get("engine"), s.get("threads"), spread_text(s.spread(peak_mib)),
                     spread_text(s.spread(live_mib)), spread_text(s.spread("peak_per_live"))])
    return Drawn(plots, [page.table("Most memory the heap took above its start, MiB",
                                    ("benchmark", "allocator", "threads", "peak", "live", "peak / live"),
                                    rows)])


def compare_13(samples):
    found = []
    for mine in samples.all(engine="tenuto"):
        case, threads = mine.get("case"), mine.get("threads")
        others = {e: samples.one(case=case, engine=e, threads=threads) for e in EVERYONE[1:]}
        found += beside("Peak memory, MiB", f"{case} with {threads_list(threads)}", peak_mib, mine, others)
    return found


FIGURE_13 = Figure(
    "13", "Space under Threadtest and DBMStest",
    "On both, NVAlloc-LOG takes as much memory as the other persistent allocators or less.",
    "The most the heap took above its start, beside libpmemobj and volatile allocators; every byte is "
    "written and checked (--verify), so that memory nobody touched does not flatter those that are "
    "measured by touched pages. The time of these runs is no figure.",
    commands_13, draw_13, compare_13)


# --- 15: Fragbench ------------------------------------------------------------------------------

DEFAULT = 0.5  # HeapOptions::morph_occupancy
CLASSES = (("below 30 %", 0, 3), ("30 to 70 %", 3, 7), ("70 % and more", 7, 10))


def commands_15(setup):
    bench = "fragbench-w4" if setup.quick else "fragbench"
    return [
        arguments(setup, bench=bench, allocator="tenuto", medium=("cache", "line"),
                  morph_occupancy=(DEFAULT, 0)),
        arguments(setup, bench=bench, allocator=EVERYONE[1:], medium=("cache", "line")),
        arguments(setup, bench=bench, allocator="tenuto", medium="model", delays=True,
                  morph_occupancy=(DEFAULT, 0)),
    ]


def name_15(sample):
    return sample.get("engine") + (" without morphing" if sample.get("morph_occupancy") == 0 else "")


def colour_15(sample):
    return "c5" if sample.get("morph_occupancy") == 0 else COLOURS[sample.get("engine")]


def by_case(samples, cases, field, **wanted):
    """A series for each allocator and setting, over the cases."""
    found = {}
    for s in samples.all(**wanted):
        found.setdefault((name_15(s), colour_15(s)), {})[s.get("case")] = s
    return [series_of(name, colour, [at.get(c) for c in cases], field)
            for (name, colour), at in found.items()]


def slabs_in(first, end):
    """The share of slabs filled to these tenths, in per cent."""
    def share(row):
        tenths = row.get("slabs_by_tenth")
        return 100 * sum(tenths[first:end]) / sum(tenths) if tenths and sum(tenths) else None
    return share


def draw_15(samples):
    cases = samples.values("case")
    ws = [c.rsplit("-", 1)[1].upper() for c in cases]
    space = [*by_case(samples, cases, "peak_per_live", medium="cache"),
             *by_case(samples, cases, "peak_per_live", medium=None)]
    plots = [svg.bars("(a) space", "peak / live bytes", ws, space), slab_plot(samples, cases, ws)]
    speed = (by_case(samples, cases, "mops", medium="cache") + by_case(samples, cases, "mops", medium=None),
             by_case(samples, cases, "mops", medium="line"),
             by_case(samples, cases, "mops", medium="model", delays=True))
    waiting = svg.top_of(*speed[1], *speed[2])
    for title, series, top in zip(("(c) speed, cache", "(c) speed, line", "(d) speed, model with delays"),
                                  speed, (None, waiting, waiting)):
        plots.append(svg.bars(title, SPEED, ws, series, top))
    return Drawn(plots, [worth_table(samples, cases),
                         page.table("All figures", ("workload", "allocator", "medium", "peak / live",
                                                    *SPEED_HEAD), everything(samples))])


def slab_plot(samples, cases, ws):
    bars, values = [], [[] for _ in CLASSES]
    for case, w in zip(cases, ws):
        for occupancy, words in ((DEFAULT, w), (0, w + " without")):
            s = samples.one(case=case, medium="cache", morph_occupancy=occupancy)
            if s is None or s.spread(slabs_in(0, 10)) is None:
                continue
            bars.append(words)
            for i, (_, first, end) in enumerate(CLASSES):
                values[i].append(s.spread(slabs_in(first, end)))
    note = note_of(samples.all())
    series = [Series(name, f"c{(1, 4, 2)[i]}", values[i], note) for i, (name, _, _) in enumerate(CLASSES)]
    return svg.stacked("(b) how full slabs are at the end, with and without morphing", "% of slabs", bars,
                       series, 100)


def worth_table(samples, cases):
    rows = []
    for case in cases:
        for s in samples.all(case=case, morph_occupancy=DEFAULT):
            at = {name: s.get(name) for name in ("case", "medium", "delays")}
            without = samples.one(morph_occupancy=0, **at)
            if without is None:
                continue
            rows.append([case, medium_text(s), spread_text(s.spread("peak_per_live")),
                         spread_text(without.spread("peak_per_live")),
                         spread_text(ratio(s, without, "peak_bytes")), spread_text(ratio(s, without)),
                         spread_text(s.spread("morphed_slabs"))])
    return page.table("What morphing does: with it over without it, round by round",
                      ("workload", "medium", "peak / live", "without", "peak, ratio", "speed, ratio",
                       "slabs of two sizes at the end"), rows)


def compare_15(samples):
    found = []
    for mine in samples.all(medium="cache", morph_occupancy=DEFAULT):
        others = {e: samples.one(case=mine.get("case"), engine=e, medium="cache" if e == "pmdk" else None)
                  for e in EVERYONE[1:]}
        found += beside("Fragbench, peak / live bytes", mine.get("case"), "peak_per_live", mine, others)
    for mine in samples.all(morph_occupancy=DEFAULT, delays=None):
        pmdk = samples.one(case=mine.get("case"), engine="pmdk", medium=mine.get("medium"))
        found += beside(f"Fragbench, {SPEED}", f"{mine.get('case')} on {medium_text(mine)}", "mops", mine,
                        {"pmdk": pmdk}, more_is_better=True)
    return found


def worth_15(samples):
    found = []
    for mine in samples.all(morph_occupancy=DEFAULT):
        without = {"off": samples.one(morph_occupancy=0, **{name: mine.get(name) for name in
                                                            ("case", "medium", "delays")})}
        at = f"{mine.get('case')} on {medium_text(mine)}"
        found += beside("Morphing, peak / live bytes", at, "peak_per_live", mine, without)
        found += beside(f"Morphing, {SPEED}", at, "mops", mine, without, more_is_better=True)
    return found


def everything(samples):
    return [[s.get("case"), name_15(s), medium_text(s), spread_text(s.spread("peak_per_live")),
             *speed_rows([s], lambda _: ())[0]] for s in samples.all()]


FIGURE_15 = Figure(
    "15", "Fragbench: fragmentation, and what slab morphing does about it",
    "NVAlloc-LOG with morphing takes the least memory of all on the four workloads. Against itself "
    "without morphing it saves up to 41.9 % and is 4.5 % slower on average, because the headers of "
    "morphed slabs are flushed; far more of its slabs are well filled (0 to 30, 30 to 70 and 70 to 100 % "
    "in use). It is also faster than its peers.",
    "A limit of 64 MiB live instead of 1 GB, the same proportions. How full slabs are is looked at when "
    "the last allocation is done. Volatile allocators take part as bounds; of libpmemobj touched blocks "
    "of the pool's file are counted.",
    commands_15, draw_15, compare_15, worth_15)


# --- 16 (b): when slabs may morph ---------------------------------------------------------------

def commands_16(setup):
    occupancies = (0, 0.2) if setup.quick else (0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5)
    return commands_16a(setup) + [
        arguments(setup, bench="fragbench-w4", allocator="tenuto", medium="model", delays=True,
                  morph_occupancy=occupancies)]


def draw_16(samples):
    first = draw_16a(samples)
    found = samples.all(case="fragbench-w4")
    if not found:
        return first
    percents = [f"{100 * s.get('morph_occupancy'):g}" for s in found]
    plots = [svg.lines(f"Fragbench W4: {words}", y_label, percents, "SU, %",
                       [series_of("tenuto, model with delays", "c0", found, field)])
             for words, y_label, field in (("memory", "peak / live bytes", "peak_per_live"),
                                           ("time", "ns an operation", ns_per_op))]
    rows = [[p, spread_text(s.spread("peak_per_live")), spread_text(s.spread(ns_per_op)),
             spread_text(s.spread("lines_per_op")), spread_text(s.spread("morphed_slabs"))]
            for p, s in zip(percents, found)]
    second = page.table("Fragbench W4 by SU, the occupancy below which a slab may morph",
                        ("SU, %", "peak / live", "ns an operation", "lines an operation",
                         "slabs of two sizes at the end"), rows)
    return Drawn(first.plots + plots, first.tables + [second])


FIGURE_16 = Figure(
    "16", "Sensitivity: number of stripes, occupancy below which slabs morph",
    "(a) Threadtest's time does not fall steadily with the number of stripes; it depends on the threads "
    "and on the buffer inside the device. Six stripes are best in most cases. (b) On Fragbench W4 a "
    "larger threshold SU lets more slabs morph: less memory, more time. 20 % is the paper's choice.",
    "(a) Medium model with delays knows reflushes and sequential writes, but no buffer that too many "
    "lines exhaust: it can show what stripes save, not where more of them start to cost. Each "
    "destination in a line of its own. Between the bits of two operations a thread flushes other lines "
    "here (its intents', its destinations'), so that few stripes are enough to avoid reflushes; and the "
    "bits of a slab of Threadtest's 64-byte blocks take two lines at least, so Shbench is drawn, too. "
    "(b) SU is HeapOptions::morph_occupancy; 0 switches morphing off, and 50 % is the default.",
    commands_16, draw_16)
