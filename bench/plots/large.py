"""Figures 17 and 18: the bookkeeping log's collection, and recovery."""

from plots import page, svg
from plots.figure import COUNT_HEAD, COUNTS, Figure, SPEED, arguments, beside, medium_text, name_of, series_of
from plots.page import Drawn
from plots.samples import ns_per_op, ratio
from plots.small import log_kib
from plots.svg import spread_text

NEVER = 10**9
PPM = (2000, 500, 100)
CASES_17 = ("larson-large", "dbmstest")


# --- 17: collecting the log ---------------------------------------------------------------------

def commands_17(setup):
    """Without rewriting; rewriting by the paper's rule alone, at shares of the heap; the default."""
    commands = []
    for medium in ({"medium": "model", "delays": True}, {"medium": "cache"}):
        common = {"bench": CASES_17, "allocator": "tenuto", **medium}
        commands += [arguments(setup, **common, book_chunks_least=NEVER),
                     arguments(setup, **common, book_dead_factor=NEVER, book_heap_ppm=PPM),
                     arguments(setup, **common)]
    return commands


def setting_17(sample):
    if sample.get("book_chunks_least") == NEVER:
        return "off"
    ppm = sample.get("book_heap_ppm")
    return "default" if ppm is None else f"{ppm / 1e4:g} %"


def draw_17(samples):
    plots, rows = [], []
    settings = list(dict.fromkeys(map(setting_17, samples.all())))
    for medium in ("model", "cache"):
        drawn = []
        for case in samples.values("case"):
            found = {setting_17(s): s for s in samples.all(case=case, medium=medium)}
            drawn.append((case, [series_of("tenuto", "c0", [found.get(n) for n in settings], "mops")]))
            rows += [row_17(s, found.get("off")) for s in found.values()]
        top = svg.top_of(*(one for _, series in drawn for one in series))
        words = ("model with delays" if medium == "model" else medium) + ", by when the log is rewritten"
        plots += [svg.bars(f"{case}, medium {words}", SPEED, settings, series, top)
                  for case, series in drawn]
    head = ("benchmark", "medium", "rewritten at", "speed over off", "ns an operation",
            "times rewritten", "pieces dropped whole", "log, KiB", *COUNT_HEAD)
    return Drawn(plots, [page.table("The bookkeeping log and its collection", head, rows)])


def row_17(s, off):
    return [s.get("case"), medium_text(s), setting_17(s),
            spread_text(ratio(s, off)) if off else "–", spread_text(s.spread(ns_per_op)),
            spread_text(s.spread("book_slow_gcs")), spread_text(s.spread("book_fast_gcs")),
            spread_text(s.spread(log_kib)),
            *(spread_text(s.spread(f)) for f in COUNTS)]


def worth_17(samples):
    return [c for s in samples.all() if setting_17(s) == "default"
            for c in beside(f"Collection of the log, {SPEED}", f"{s.get('case')} on {medium_text(s)}",
                            "mops", s, {"never": samples.one(case=s.get("case"), medium=s.get("medium"),
                                                             book_chunks_least=NEVER)}, more_is_better=True)]


FIGURE_17 = Figure(
    "17", "What collecting the bookkeeping log costs",
    "Collecting the log when it passes 0.2 % of the heap costs 3 % of the throughput of Larson-large and "
    "8 % of DBMStest's: the log holds nothing but allocation metadata, so there is little to copy.",
    "Off: the log is never rewritten. Pieces in which nothing lives are dropped whole all the same, and "
    "may keep it so short that the paper's rule is never met: the table has how often what happened. The "
    "shares are the paper's rule alone: rewrite when the log is larger than that part of the pool (of the "
    "heap, in per cent) and less than half of it lives. Default: the library's own, which also rewrites at "
    "four entries for each live one.",
    commands_17, draw_17, worth=worth_17)


# --- 18: recovery -------------------------------------------------------------------------------

PAPER_18 = (("nvm_malloc", "0.324"), ("PMDK", "34"), ("NVAlloc-LOG", "45"), ("Ralloc", "552"),
            ("Makalu", "911"), ("NVAlloc-GC", "933"))


def commands_18(setup):
    objects = 20_000 if setup.quick else setup.objects
    return [arguments(setup, bench="recovery-list", allocator=("tenuto", "tenuto-gc", "pmdk"),
                      medium=("line", "cache"), objects=objects)]


def draw_18(samples):
    found = samples.all()
    names = [f"{name_of(s)}, {medium_text(s)}" for s in found]
    fields = (("open after SIGKILL", "c1", "open_killed_ms"), ("open after a clean close", "c0",
                                                              "open_ms"))
    plot = svg.bars("Opening a pool with a list", "milliseconds", names,
                    [series_of(words, colour, found, f) for words, colour, f in fields])
    rows = [[name_of(s), medium_text(s), f"{s.get('objects'):,}",
             *(spread_text(s.spread(f)) for f in ("open_killed_ms", "recovery_ms", "open_ms"))]
            for s in found]
    return Drawn([plot], [
        page.table("Milliseconds until the list's head can be followed",
                   ("allocator", "medium", "nodes", "after SIGKILL", "of it recovery",
                    "after a clean close"), rows),
        page.table("The paper's, 10 million nodes, on Optane", ("allocator", "ms"), PAPER_18)])


def compare_18(samples):
    return [c for mine in samples.all(engine="tenuto")
            for field, words in (("open_killed_ms", "after SIGKILL"), ("open_ms", "after a clean close"))
            for c in beside("Opening a pool with a list, ms", f"{name_of(mine)} {words} on {medium_text(mine)}", field, mine,
                            {"pmdk": samples.one(engine="pmdk", medium=mine.get("medium"),
                                                 objects=mine.get("objects"))})]


FIGURE_18 = Figure(
    "18", "Recovery",
    "A list of ten million nodes of 64 to 128 bytes, recovered by one thread: the table below. "
    "NVAlloc-LOG reads the logs and the bookkeeping log, PMDK only its logs; nvm_malloc puts most of the "
    "work off until blocks are used; NVAlloc-GC walks all nodes, as Makalu does.",
    "The process that built the list gets SIGKILL; the next one opens the pool against the clock. The "
    "number of nodes is --objects. Both hold the same list, each node allocated to the pointer in the "
    "node before it.",
    commands_18, draw_18, compare_18)

