"""The page of NVAlloc's figures: a summary, what was measured, then a section for each figure."""

from plots import large, page, pmms, small, space, variants, verdict
from plots.page import Drawn, escaped, paragraph
from plots.runner import command_text
from plots.samples import Samples

FIGURES = (small.FIGURE_9, variants.FIGURE_10, small.FIGURE_11, variants.FIGURE_12, space.FIGURE_13,
           space.FIGURE_15, space.FIGURE_16, large.FIGURE_17, large.FIGURE_18, small.FIGURE_19,
           variants.FIGURE_NUMA, pmms.FIGURE_SIZES, pmms.FIGURE_WEAR)

BENCHMARKS = {
    "threadtest": "Allocates 100,000 objects of 64 bytes and frees them in that order, again and again.",
    "prodcon": "Pairs of threads: one allocates objects of 64 bytes and hands them over, the other frees them.",
    "shbench": "Passes over sizes of 64 to 1000 bytes, small ones more often, and frees most of each bufferful.",
    **{f"fill-{n}": f"Each thread allocates 20,000 objects of {n} bytes, frees them, again and again."
       for n in pmms.SIZES},
    "fill-64-512": "The same with 64 to 512 bytes, at random.",
    "larson-small": "Replaces random objects of 64 to 256 bytes; every generation is a new thread.",
    "larson-large": "Replaces random objects of 32 to 512 KiB; every generation is a new thread.",
    "dbmstest": "Fills up to 2000 objects of 32 to 512 KiB, deletes a random 90 %, and begins again.",
    "fragbench-w1": "Objects of 100 bytes, 90 % of them deleted, then objects of 130 bytes.",
    "fragbench-w2": "Objects of 100 to 150 bytes, none deleted, then objects of 200 to 250 bytes.",
    "fragbench-w3": "Objects of 100 to 150 bytes, 90 % of them deleted, then objects of 200 to 250 bytes.",
    "fragbench-w4": "Objects of 100 to 200 bytes, half of them deleted, then objects of 1000 to 2000 bytes.",
    "recovery-list": "Builds a list of nodes of 64 to 128 bytes, is killed, and opens the pool against the clock.",
}

ABOUT = (
    "Each of NVAlloc's figures (ASPLOS'22) that has a counterpart here is measured again with alloc_bench and "
    "drawn beside what the paper reports. The paper's numbers come from Optane memory, two sockets and up to "
    "64 threads; none of them is a result of this project.",
    "Media: line flushes every line with the processor's instruction. Cache flushes nothing, because caches "
    "survive. Model counts every flush. Delays are Optane's published latencies, added to model by waiting: "
    "800 to 500 ns for a reflush (a line flushed again within 4 lines), 270 ns for a random write, 115 ns for "
    "a sequential one.",
    "Figures are medians over the rounds, and whiskers reach from the least to the most; ratios are taken "
    "round by round. " + verdict.RULE + " Times of a busy machine mean little, and whether it was idle is "
    "unknown. Counts of lines, fences and reflushes are exact everywhere.",
)
QUICK = ("This is a sample, a quick run: the benchmarks are a fiftieth of their size. It shows that everything "
         "works; its figures mean nothing.")


def left_out(raw, figure):
    return [f"Not measured: this alloc_bench has no {' and no '.join(gone['unknown'])}: "
            f"{command_text(gone['argv'])}"
            for gone in raw.get("left_out", []) if gone["figure"] == figure.number]


def cut_short(raw):
    """In words, when runs are missing that were planned; older files do not say what was."""
    planned, made = raw.get("planned"), len(raw["runs"])
    if planned is None or made >= planned:
        return []
    return [f"The run was cut short: {made} of {planned} runs of alloc_bench were made. What they measured "
            "is drawn."]


def section(figure, runs, gone):
    """The figure beside the paper's claim; clear words where it was not measured."""
    drawn = figure.draw(Samples(runs)) if any(run["rows"] for run in runs) else Drawn(
        (paragraph("This run has no figures for it."),), ())
    commands = list(dict.fromkeys(command_text(run["argv"]) for run in runs))
    rounds = max((run["round"] for run in runs), default=0)
    failed = [line for run in runs for line in run["failed"]]
    return "\n".join((
        f'<section id="figure-{figure.number}">',
        f"<h2>Figure {figure.number}. {escaped(figure.title)}</h2>",
        '<div class="columns"><div class="box"><h3>What the paper reports</h3>', paragraph(figure.claim),
        '</div><div class="box"><h3>What is drawn here</h3>', paragraph(figure.here), "</div></div>",
        *(paragraph(line, "failed") for line in failed + gone),
        page.columns(drawn.plots), page.details("In figures", "".join(drawn.tables)),
        page.details(f"The commands, in turn, {page.counted(rounds, 'round')} (by hand: add --rounds "
                     f"{max(rounds, 1)})", "<pre>" + "\n".join(map(escaped, commands)) + "</pre>"),
        "</section>"))


def summary(raw, figures, runs):
    """Beside other allocators; then what parts of the design are worth, each with it over without it."""
    rows = [row for run in raw["runs"] for row in run["rows"]]
    engines = list(dict.fromkeys(row["engine"] for row in rows))
    threads = [str(t) for t in sorted({row["threads"] for row in rows})]
    parts = [paragraph(f"Compared: {page.listed(engines)}. {page.listed(threads)} "
                       f"thread{'' if threads == ['1'] else 's'}, {page.counted(raw['rounds'], 'round')}, "
                       f"pools in {raw.get('directory', 'an unknown directory')}, started "
                       f"{raw['started']}.")] if rows else []
    measured = [(f, Samples(runs[f.number])) for f in figures if runs[f.number]]
    others = [c for f, samples in measured for c in f.compare(samples)]
    own = [c for f, samples in measured for c in f.worth(samples)]
    if others:
        parts.append(verdict.told(others, "Tenuto beside the best of the others", "Tenuto is behind at",
                                  "Tenuto is ahead at"))
    else:
        parts.append(paragraph("This run has no figures of Tenuto and of another allocator in the same setting, "
                               "so nothing is compared."))
    if own:
        parts += ["<h3>What parts of the design are worth</h3>",
                  verdict.told(own, "Tenuto with a part beside Tenuto without it", "Worse with it",
                               "Better with it")]
    return "\n".join(parts)


def write(path, raw, figures):
    """The numbers of the figures that are on the page."""
    runs = {f.number: [r for r in raw["runs"] if r["figure"] == f.number] for f in figures}
    shown = [f for f in figures if runs[f.number] or left_out(raw, f)]
    rows = [row for run in raw["runs"] for row in run["rows"]]
    links = " ".join(f'<a href="#figure-{f.number}">Figure {f.number}</a>' for f in shown)
    page.write(path, "NVAlloc's figures, drawn again", [
        *(paragraph(line, "failed") for line in cut_short(raw) + ([QUICK] if raw.get("quick") else [])),
        paragraph(ABOUT[0]), f"<nav>{links}</nav>",
        '<section id="summary"><h2>Summary</h2>', summary(raw, figures, runs),
        *(paragraph(words, "quiet") for words in ABOUT[1:]), page.origin(rows) if rows else "", "</section>",
        page.explained("The benchmarks", BENCHMARKS, dict.fromkeys(row["case"] for row in rows)),
        *(section(f, runs[f.number], left_out(raw, f)) for f in shown)])
    return [f.number for f in shown]
