"""Figures 10 and 12, and PMAlloc's: variants without a log, large objects, two NUMA nodes."""

from plots import page, svg
from plots.figure import (COLOURS, Figure, SPEED, SPEED_HEAD, arguments, beside, name_of, note_of,
                          series_of, speed_rows, threads_list)
from plots.page import Drawn
from plots.samples import Spread, ns_per_op, ratio
from plots.small import SMALL
from plots.svg import Series, spread_text


COLOUR_OF = {**COLOURS, "tenuto-gc": "c5", "tenuto-internal": "c3"}


def by_threads(samples, case):
    """A line for each allocator over the numbers of threads."""
    found = samples.all(case=case)
    threads = samples.values("threads", case=case)
    return [series_of(name, COLOUR_OF.get(name, "c6"),
                      [next((s for s in found if name_of(s) == name and s.get("threads") == t), None)
                       for t in threads], "mops")
            for name in dict.fromkeys(map(name_of, found))]


def speed_plots(samples, words, *cases):
    """Of these cases; of all when none is named."""
    return [svg.lines(f"{case}, {words}", SPEED, samples.values("threads", case=case), "threads",
                      by_threads(samples, case)) for case in cases or samples.values("case")]


def over(samples, mine, other):
    """The speed of mine over that of the allocator `other` in the same setting."""
    found = [s for s in samples.all(case=mine.get("case"), threads=mine.get("threads"))
             if name_of(s) == other]
    return ratio(mine, found[0]) if found else None


def ratio_table(samples, caption, firsts, others):
    rows = [[s.get("case"), s.get("threads"), name_of(s),
             *(spread_text(over(samples, s, o)) for o in others)]
            for s in samples.all() if name_of(s) in firsts]
    return page.table(caption, ("benchmark", "threads", "allocator", *(f"over {o}" for o in others)), rows)


def speed_table(samples):
    return page.table("All figures", ("benchmark", "allocator", "threads", *SPEED_HEAD),
                      speed_rows(samples.all(), lambda s: (s.get("case"), name_of(s), s.get("threads"))))


def compared(samples, topic, mine_name, others):
    found = []
    for mine in samples.all():
        if name_of(mine) != mine_name:
            continue
        same = samples.all(case=mine.get("case"), threads=mine.get("threads"))
        found += beside(f"{topic}, {SPEED}", f"{mine.get('case')} with {threads_list(mine.get('threads'))}",
                        "mops", mine, {name_of(s): s for s in same if name_of(s) in others},
                        more_is_better=True)
    return found


# --- 10: without a log ----------------------------------------------------------------------------

VOLATILE = ("mimalloc", "jemalloc")
VARIANTS = ("tenuto-gc", "tenuto-internal")


def commands_10(setup):
    bench = SMALL[:1] + SMALL[3:] if setup.quick else SMALL
    return [arguments(setup, bench=bench, allocator=("tenuto", *VARIANTS, *VOLATILE), medium="line",
                      threads=setup.threads)]


def draw_10(samples):
    return Drawn(speed_plots(samples, "medium line"), [
        ratio_table(samples, "Speed over others', round by round", VARIANTS, ("tenuto", *VOLATILE)),
        speed_table(samples)])


FIGURE_10 = Figure(
    "10", "Small blocks without a log, beside volatile allocators",
    "NVAlloc-GC is up to 70 times as fast as Makalu and 6 times as fast as Ralloc, the other allocators that "
    "collect after a crash. The paper credits bitmaps, which keep free blocks out of persistent lists, and "
    "their copies in DRAM.",
    "Neither Makalu nor Ralloc is packaged. Beside tenuto's three variants are the volatile allocators that "
    "programs use: a bound, for they make nothing durable. On medium line tenuto-gc flushes every destination, "
    "64 of them before a fence.",
    commands_10, draw_10,
    lambda samples: compared(samples, "Small blocks on medium line, gc", "tenuto-gc", VOLATILE))


# --- 12: large objects ----------------------------------------------------------------------------

LARGE_PEERS = ("pmdk", "jemalloc")


def commands_12(setup):
    return [arguments(setup, bench=("larson-large", "dbmstest"), allocator=("tenuto", *LARGE_PEERS),
                      medium="line", threads=setup.threads)]


def draw_12(samples):
    return Drawn(speed_plots(samples, "medium line"), [
        ratio_table(samples, "Speed of tenuto over others', round by round", ("tenuto",), LARGE_PEERS),
        page.table("All figures", ("benchmark", "allocator", "threads", *SPEED_HEAD, "peak over live"),
                   [[s.get("case"), name_of(s), s.get("threads"), spread_text(s.spread("mops")),
                     spread_text(s.spread(ns_per_op)), spread_text(s.spread("peak_per_live"))]
                    for s in samples.all()])])


FIGURE_12 = Figure(
    "12", "Large objects",
    "On Larson-large and DBMStest NVAlloc-LOG is up to 40 times as fast as PMDK, 18 times as nvm_malloc, 55 "
    "times as PAllocator and 57 times as Makalu: its bookkeeping log is written in sequence, where they update "
    "headers in place.",
    "Objects of 32 to 512 KiB. First touches and the growth of the pool are in the time of every allocator; "
    "jemalloc, which is volatile, is the bound.",
    commands_12, draw_12,
    lambda samples: compared(samples, "Large objects on medium line", "tenuto", LARGE_PEERS))


# --- N: two nodes ---------------------------------------------------------------------------------

# What a line on the other node takes longer: an assumption. PMMS delays its emulated medium by as
# much.
FAR_NS = 200


def commands_numa(setup):
    return [["--numa", "--medium", "line", "--threads", "2"] +
            (["--quick"] if setup.quick else ["--scale", str(setup.scale)])]


def phases(sample):
    return "two-phase" if sample.get("two_phase") else "direct"


def with_far_lines(row):
    """Nanoseconds an operation, if each remote line took FAR_NS longer than a local one."""
    plain = ns_per_op(row)
    return None if plain is None else plain + row["remote_per_op"] * FAR_NS


def draw_numa(samples):
    found = samples.all()
    names = [f"{s.get('case')}, {phases(s)}" for s in found]
    far = [Spread(*(3 * [s.spread("remote_per_op").median * FAR_NS])) for s in found]
    bars = svg.stacked(f"two nodes, {FAR_NS} ns more for a remote line", "ns an operation", names,
                       [series_of("as measured", "c0", found, ns_per_op),
                        Series("remote lines", "c1", far, note_of(found))])
    rows = [[s.get("case"), phases(s), "simulated" if s.get("simulated") else "the machine's",
             *(spread_text(s.spread(f)) for f in ("local_per_op", "remote_per_op", with_far_lines))]
            for s in found]
    head = ("placement", "frees", "nodes", "local lines", "remote lines", "ns with far lines")
    return Drawn([bars], [page.table("Metadata accessed by an operation", head, rows)])


def worth_numa(samples):
    found = []
    for mine in samples.all(two_phase=True):
        direct = samples.one(case=mine.get("case"), two_phase=False)
        if direct is not None and direct.spread("remote_per_op").median > 0:
            found += beside("Two-phase deallocation, remote lines an operation", mine.get("case"),
                            "remote_per_op", mine, {"direct frees": direct})
    return found


FIGURE_NUMA = Figure(
    "N", "Two NUMA nodes (PMAlloc; Souza et al.)",
    "PMAlloc allocates on the node of the thread, and frees blocks of another node in two phases: 2.9 times as "
    "fast in its evaluation on several sockets. Souza et al. measure shbench on one node and over two: Ralloc "
    "slows down 4.8 times with 20 threads over two nodes, Makalu and PMDK hardly change.",
    "The placements of alloc_bench --numa. Where the machine has one node, two are simulated: a thread says "
    "which it is on, and a zone of the pool belongs to one. Then the counts of remote lines are exact and the "
    f"measured times are those of one node; the upper part of a bar adds {FAR_NS} ns for each remote line.",
    commands_numa, draw_numa, worth=worth_numa)
