"""The page: one HTML file that needs nothing else, light or dark as the reader's system is."""

import html
import json
from collections import namedtuple

from plots.runner import command_text

# What a figure gives to its section: SVG plots and HTML tables.
Drawn = namedtuple("Drawn", "plots tables")

STYLE = """
:root { --paper:#fff; --ink:#1c2024; --quiet:#5b6570; --rule:#d8dee4; --box:#f4f6f8;
  --c0:#0068a8; --c1:#c9510c; --c2:#00805a; --c3:#a3479b; --c4:#a67c00; --c5:#2b93c9; --c6:#6b7280; }
@media (prefers-color-scheme: dark) {
  :root { --paper:#14181c; --ink:#e6e9ec; --quiet:#9aa5b0; --rule:#333b43; --box:#1e242a;
    --c0:#4aa8e0; --c1:#f0894d; --c2:#3cc497; --c3:#d98fd2; --c4:#e0b93f; --c5:#8fd0f2;
    --c6:#a3adb8; } }
:root { color-scheme: light dark; }
body { background:var(--paper); color:var(--ink); font:16px/1.5 system-ui, sans-serif;
  max-width:62rem; margin:0 auto; padding:1.5rem 1rem 4rem; }
h1 { font-size:1.6rem; } h2 { font-size:1.25rem; margin:3rem 0 .5rem;
  border-top:1px solid var(--rule); padding-top:1.2rem; }
nav a { margin-right:1rem; } a { color:var(--c0); }
.sides { display:grid; grid-template-columns:repeat(auto-fit, minmax(17rem, 1fr)); gap:1rem; }
.sides > div { background:var(--box); border-radius:.4rem; padding:.2rem 1rem; }
.sides h3 { font-size:.95rem; margin:.6rem 0 0; color:var(--quiet); }
.sides p { margin:.4rem 0 .8rem; }
.plots { display:grid; grid-template-columns:repeat(auto-fit, minmax(20rem, 1fr)); gap:1rem;
  margin:1rem 0; }
svg { width:100%; height:auto; font:11px system-ui, sans-serif; }
svg text { fill:var(--ink); } svg .tick { fill:var(--quiet); } svg .title { font-weight:600;
  font-size:13px; }
.end { text-anchor:end; } .middle { text-anchor:middle; }
.grid { stroke:var(--rule); } .whisker { stroke:var(--ink); fill:none; }
.curve { fill:none; stroke-width:2; } .dashed { stroke-dasharray:6 4; }
.dotted { stroke-dasharray:2 3; }
.fill.c0{fill:var(--c0)} .fill.c1{fill:var(--c1)} .fill.c2{fill:var(--c2)} .fill.c3{fill:var(--c3)}
.fill.c4{fill:var(--c4)} .fill.c5{fill:var(--c5)} .fill.c6{fill:var(--c6)}
.curve.c0{stroke:var(--c0)} .curve.c1{stroke:var(--c1)} .curve.c2{stroke:var(--c2)}
.curve.c3{stroke:var(--c3)} .curve.c4{stroke:var(--c4)} .curve.c5{stroke:var(--c5)}
.curve.c6{stroke:var(--c6)}
.wide { overflow-x:auto; } table { border-collapse:collapse; font-size:.88rem; margin:.6rem 0 1rem; }
caption { text-align:left; color:var(--quiet); padding:.2rem 0; }
th, td { padding:.15rem .7rem .15rem 0; text-align:right; border-bottom:1px solid var(--rule);
  white-space:nowrap; }
th:first-child, td:first-child { text-align:left; }
pre { background:var(--box); padding:.7rem; overflow-x:auto; font-size:.82rem; }
.failed { color:var(--c1); }
"""


def escaped(words):
    return html.escape(str(words), quote=False)


def paragraph(words, cls=""):
    return f'<p class="{cls}">{escaped(words)}</p>' if cls else f"<p>{escaped(words)}</p>"


def table(caption, head, rows):
    cells = "".join(f"<th>{escaped(h)}</th>" for h in head)
    body = "".join("<tr>" + "".join(f"<td>{escaped(c)}</td>" for c in row) + "</tr>\n"
                   for row in rows)
    return (f'<div class="wide"><table><caption>{escaped(caption)}</caption>\n'
            f"<thead><tr>{cells}</tr></thead>\n<tbody>\n{body}</tbody></table></div>\n")


def section(figure, samples, runs, left_out):
    drawn = figure.draw(samples) if runs else Drawn((), ())
    commands = list(dict.fromkeys(command_text(run["argv"]) for run in runs))
    rounds = max((run["round"] for run in runs), default=0)
    failed = [line for run in runs for line in run["failed"]]
    parts = [f'<section id="figure-{figure.number}">',
             f"<h2>Figure {figure.number}. {escaped(figure.title)}</h2>",
             '<div class="sides"><div><h3>What the paper reports</h3>', paragraph(figure.claim),
             "</div><div><h3>What is drawn here</h3>", paragraph(figure.here), "</div></div>"]
    parts += [paragraph(line, "failed") for line in failed + left_out]
    parts += ['<div class="plots">', *drawn.plots, "</div>", *drawn.tables]
    parts += [f"<details><summary>The commands, in turn, {rounds} rounds (by hand: add --rounds "
              f"{max(rounds, 1)})</summary><pre>", "\n".join(escaped(c) for c in commands), "</pre></details>",
              "</section>\n"]
    return "\n".join(parts)


def head_notes(raw):
    m = raw["machine"]
    load = f"load average {m['load_before']:.2f} before and {m.get('load_after', 0):.2f} after"
    notes = [
        "Each of NVAlloc's figures (ASPLOS'22) that has a counterpart here is measured again with "
        "alloc_bench on this machine and drawn beside what the paper reports. The paper's numbers "
        "come from Optane memory, two sockets and up to 64 threads; none of them is a result of "
        "this project.",
        f"{m['processor']}, {m['cores']} cores, Linux {m['kernel']}; pools in {m['directory']}; "
        f"started {raw['started']}; {raw['rounds']} rounds. Whether the machine was idle: unknown "
        f"({load}). Times of a busy machine mean little; counts of lines, fences and reflushes are "
        "exact everywhere.",
        "Media: line flushes every line with the processor's instruction; cache flushes nothing "
        "(caches survive); model counts every flush; delays are Optane's published latencies, added "
        "to model by waiting: a reflush (a line flushed again within 4 lines) 800 to 500 ns, a random "
        "write 270 ns, a sequential one 115 ns. Figures are medians over the rounds, whiskers and "
        "brackets the least and the most; ratios are taken round by round.",
    ]
    if raw.get("quick"):
        notes.append("This is a quick run: the benchmarks are a fiftieth of their size. It shows that "
                     "everything works; its figures mean nothing.")
    return notes


def left_out(raw, figure):
    return [f"Not measured: this alloc_bench has no {' and no '.join(gone['unknown'])}: "
            f"{command_text(gone['argv'])}"
            for gone in raw.get("left_out", []) if gone["figure"] == figure.number]


def write(path, raw, figures, samples_of):
    runs = {f.number: [r for r in raw["runs"] if r["figure"] == f.number] for f in figures}
    shown = [f for f in figures if runs[f.number] or left_out(raw, f)]
    links = " ".join(f'<a href="#figure-{f.number}">Figure {f.number}</a>' for f in shown)
    parts = ['<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">',
             '<meta name="viewport" content="width=device-width, initial-scale=1">',
             f"<title>NVAlloc's figures, drawn again</title><style>{STYLE}</style></head><body>",
             "<h1>NVAlloc's figures, drawn again</h1>", *map(paragraph, head_notes(raw)),
             f"<nav>{links}</nav>"]
    parts += [section(f, samples_of(runs[f.number]), runs[f.number], left_out(raw, f))
              for f in shown]
    machine = json.dumps(raw["machine"], sort_keys=True)
    parts.append(f"<footer><p>Settings of the machine: {escaped(machine)}</p></footer>")
    parts.append("</body></html>\n")
    with open(path, "w", encoding="utf-8") as f:
        f.write("\n".join(parts))
    return [f.number for f in shown]
