"""PMMS's two measurements again: one size at a time and by threads (P), and wear (W)."""

from plots import page, svg
from plots.figure import Figure, SPEED_HEAD, arguments, beside, name_of, series_of
from plots.page import Drawn
from plots.samples import ns_per_op
from plots.svg import spread_text
from plots.variants import COLOUR_OF, compared, ratio_table, speed_plots, speed_table

# --- P: sizes and threads -------------------------------------------------------------------------

SIZES = (64, 128, 256, 512, 1024)
BY_THREADS = ("fill-64", "fill-64-512")
MINE = ("tenuto", "tenuto-gc")
PEERS = ("pmdk", "mimalloc", "glibc")


def size_of(sample):
    """Of a case with one size, otherwise None."""
    size = sample.get("case").removeprefix("fill-")
    return int(size) if size.isdigit() else None


def commands_sizes(setup):
    several = [t for t in setup.threads if t != 1]
    common = {"allocator": (*MINE, *PEERS), "medium": "line"}
    alone = arguments(setup, bench=[*(f"fill-{n}" for n in SIZES), BY_THREADS[1]], threads=1, **common)
    return [alone] + ([arguments(setup, bench=BY_THREADS, threads=several, **common)] if several else [])


def draw_sizes(samples):
    alone = [s for s in samples.all(threads=1) if size_of(s)]
    sizes = [n for n in SIZES if any(size_of(s) == n for s in alone)]
    series = []
    for name in dict.fromkeys(map(name_of, alone)):
        of = {size_of(s): s for s in alone if name_of(s) == name}
        series.append(series_of(name, COLOUR_OF.get(name, "c6"), [of.get(n) for n in sizes], ns_per_op))
    plots = [svg.lines("20,000 objects, 1 thread, medium line", "ns an operation", sizes, "bytes", series)]
    plots += [plot for case in BY_THREADS for plot in speed_plots(samples, "medium line", case)]
    return Drawn(plots, [
        ratio_table(samples, "Speed over others', round by round", MINE, PEERS),
        speed_table(samples)])


FIGURE_SIZES = Figure(
    "P", "20,000 objects of one size, and threads (PMMS)",
    "PMMS needs less time than Makalu for 20,000 allocations at each size from 64 to 1024 bytes, 65 % less at "
    "1024. glibc is ahead of it up to 256 bytes. With several threads it is 38.6 % faster than Makalu at 64 "
    "bytes, and a little faster than glibc at random sizes of 64 to 512.",
    "Makalu is not packaged. PMMS emulates its medium by 200 ns of waiting and logs behind the caller's back; "
    "medium line flushes with the processor's instruction, and an operation is durable when it returns.",
    commands_sizes, draw_sizes,
    lambda samples: compared(samples, "PMMS's sizes on medium line", "tenuto", ("pmdk",)))


# --- W: wear --------------------------------------------------------------------------------------

SPREAD_OF_WRITES = "most / mean lines of a frame"


def commands_wear(setup):
    return [["--wear", "--medium", "line"] +
            (["--quick"] if setup.quick else ["--scale", str(setup.scale)])]


def draw_wear(samples):
    cases = samples.values("case")
    series = [series_of(words, colour, [samples.one(case=case, wear_levelling=on) for case in cases],
                        "most_per_mean")
              for words, colour, on in (("with wear levelling", "c0", True), ("without", "c1", False))]
    rows = [[s.get("case"), "on" if s.get("wear_levelling") else "off",
             *(spread_text(s.spread(f)) for f in ("most_per_mean", "deviation_per_mean", "mops"))]
            for s in samples.all()]
    return Drawn([svg.bars("spread of writes", SPREAD_OF_WRITES, cases, series)],
                 [page.table("Lines written, by frame of 4 KiB",
                             ("bytes of an object", "wear levelling", "most / mean", "deviation / mean",
                              SPEED_HEAD[0]), rows)])


def worth_wear(samples):
    found = []
    for mine in samples.all(wear_levelling=True):
        without = {"off": samples.one(case=mine.get("case"), wear_levelling=False)}
        found += beside(f"Wear levelling, {SPREAD_OF_WRITES}", mine.get("case"), "most_per_mean", mine, without)
    return found


FIGURE_WEAR = Figure(
    "W", "How evenly writes are spread (PMMS)",
    "PMMS records when a block was last written and how often. A freed block rests for a set time, and among "
    "blocks that rested the one written least is handed out first. The paper reports no spread.",
    "A pool of 64 MiB, an eighth of it in use; a tenth of the objects is replaced until ten times the pool is "
    "written. Lines of objects are counted by frame, over all frames of the file; 1 would be even.",
    commands_wear, draw_wear, worth=worth_wear)
