"""What the pages share: one HTML file that needs nothing else, light or dark as the system is."""

import html
from collections import namedtuple

# What a figure gives to its section: plots and HTML tables.
Drawn = namedtuple("Drawn", "plots tables")

# Seven colours that stay apart for colour-blind eyes too; tests/page_test.py judges them.
LIGHT = ("#0986ec", "#892600", "#0da870", "#630e79", "#d28214", "#26a3b6", "#493b42")
DARK = ("#2886dc", "#ac4f00", "#0abf6c", "#b56e94", "#edd200", "#96cdff", "#dbe7da")


def palette(colours):
    return " ".join(f"--c{i}:{c};" for i, c in enumerate(colours))


STYLE = f"""
:root {{ color-scheme:light dark; --paper:#fff; --ink:#1c2024; --quiet:#545e68; --rule:#d8dee4;
  --box:#f2f4f7; --link:#005a9c; --bad:#a32a00; {palette(LIGHT)} }}
@media (prefers-color-scheme: dark) {{ :root {{ --paper:#14181c; --ink:#e6e9ec; --quiet:#a3adb7;
  --rule:#333b43; --box:#1e242a; --link:#6fb8f0; --bad:#ff9a70; {palette(DARK)} }} }}
""" + """
body { background:var(--paper); color:var(--ink); font:16px/1.5 system-ui, sans-serif;
  max-width:62rem; margin:0 auto; padding:1.5rem 1rem 4rem; overflow-wrap:break-word; }
h1 { font-size:1.6rem; line-height:1.25; } h3 { font-size:1.05rem; margin:1.6rem 0 .4rem; }
h2 { font-size:1.3rem; line-height:1.3; margin:3rem 0 .5rem; border-top:1px solid var(--rule);
  padding-top:1.2rem; }
nav { display:flex; flex-wrap:wrap; gap:.2rem 1.2rem; } a { color:var(--link); }
ul { padding-left:1.2rem; } li { margin:.25rem 0; } dt { font-weight:600; }
dd { margin:0 0 .4rem 1.2rem; }
.columns { display:grid; grid-template-columns:repeat(auto-fit, minmax(min(100%, 24rem), 1fr));
  gap:1.2rem 2rem; margin:1rem 0; }
.box { background:var(--box); border-radius:.4rem; padding:.2rem 1rem; }
.quiet, caption { color:var(--quiet); } .failed { color:var(--bad); font-weight:600; }
figure { margin:0; min-width:0; } figcaption { font-weight:600; font-size:.92rem; }
.legend { display:flex; flex-wrap:wrap; gap:0 .9rem; font-size:.82rem; margin:.15rem 0 .3rem; }
.key { width:24px; height:10px; margin-right:.35rem; }
.plot { display:block; width:100%; height:auto; font:12px system-ui, sans-serif; overflow:visible; }
svg text { fill:var(--ink); } svg .tick, svg .value { fill:var(--quiet); }
svg .value, .whisker { pointer-events:none; } .hit { fill:transparent; }
.mark:hover .hit { fill:var(--ink); fill-opacity:.08; }
.end { text-anchor:end; } .middle { text-anchor:middle; }
.grid { stroke:var(--rule); } .whisker { stroke:var(--ink); stroke-width:1.2; fill:none; }
.curve { fill:none; stroke-width:2; } .dashed { stroke-dasharray:6 4; }
.dotted { stroke-dasharray:2 3; }
""" + "".join(f".fill.c{i} {{ fill:var(--c{i}); }} .curve.c{i} {{ stroke:var(--c{i}); }}\n"
              for i in range(len(LIGHT))) + """
.wide { overflow-x:auto; } table { border-collapse:collapse; font-size:.86rem; margin:.6rem 0 1rem; }
caption { text-align:left; padding:.2rem 0; }
th, td { padding:.15rem 1rem .15rem 0; text-align:right; border-bottom:1px solid var(--rule);
  white-space:nowrap; vertical-align:top; }
th:first-child, td:first-child { text-align:left; }
table.words td { text-align:left; white-space:normal; } table.words th { text-align:left; }
pre { background:var(--box); padding:.7rem; overflow-x:auto; font-size:.8rem; }
summary { cursor:pointer; color:var(--link); }
#tip { position:fixed; z-index:1; max-width:20rem; padding:.35rem .6rem; border-radius:.3rem;
  background:var(--ink); color:var(--paper); font-size:.82rem; white-space:pre-line;
  pointer-events:none; }
"""

# A browser shows a <title> after a while and alone; this shows it at once, inside the window.
SCRIPT = """
const tip = document.createElement("div");
tip.id = "tip"; tip.hidden = true; document.body.append(tip);
for (const title of document.querySelectorAll(".mark > title")) {
  title.parentNode.dataset.tip = title.textContent;
  title.remove();
}
addEventListener("pointermove", event => {
  const mark = event.target.closest ? event.target.closest(".mark") : null;
  tip.hidden = !mark;
  if (!mark) return;
  tip.textContent = mark.dataset.tip;
  const right = innerWidth - tip.offsetWidth - 4, above = event.clientY - tip.offsetHeight - 14;
  tip.style.left = Math.max(4, Math.min(event.clientX + 14, right)) + "px";
  tip.style.top = (above < 4 ? event.clientY + 18 : above) + "px";
});
addEventListener("scroll", () => { tip.hidden = true; });
"""


def escaped(words):
    return html.escape(str(words), quote=False)


def paragraph(words, cls=""):
    return f'<p class="{cls}">{escaped(words)}</p>' if cls else f"<p>{escaped(words)}</p>"


def counted(number, name):
    return f"{number:,d} {name}" + ("" if number == 1 else "s")


def listed(words, last="and"):
    words = list(words)
    return f" {last} ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def table(caption, head, rows, cls=""):
    if not rows:
        return ""
    cells = "".join(f"<th>{escaped(h)}</th>" for h in head)
    body = "".join("<tr>" + "".join(f"<td>{escaped(c)}</td>" for c in row) + "</tr>\n"
                   for row in rows)
    return (f'<div class="wide"><table class="{cls}"><caption>{escaped(caption)}</caption>\n'
            f"<thead><tr>{cells}</tr></thead>\n<tbody>\n{body}</tbody></table></div>\n")


def columns(parts):
    return '<div class="columns">' + "\n".join(parts) + "</div>" if parts else ""


def details(words, inner):
    return f"<details><summary>{escaped(words)}</summary>{inner}</details>" if inner else ""


def version_of(row):
    commit = row.get("commit", "unknown")
    return f"version {row.get('version', 'unknown')}, commit {commit}"


def origin(rows):
    """Which commit was measured, and on what: processor, kernel and pages, no more."""
    def words(row):
        pages = f", pages of {row['page_bytes']:,d} bytes" if "page_bytes" in row else ""
        large = (f", large pages: {row['large_pages']} (in tmpfs: {row['large_pages_shmem']})"
                 if "large_pages" in row else "")
        return (f"Measured: {version_of(row)}, on {row.get('processor', 'an unknown processor')}, "
                f"{row.get('kernel', 'an unknown kernel')}{pages}{large}.")
    lines = list(dict.fromkeys(map(words, rows)))
    if any(row.get("commit", "").endswith("+") for row in rows):
        lines.append("A + after a commit: with changes that were not committed.")
    return "".join(paragraph(line) for line in lines)


def explained(heading, words, names):
    """One sentence for each name that has one."""
    known = [f"<dt>{escaped(n)}</dt><dd>{escaped(words[n])}</dd>" for n in names if n in words]
    return f"<section><h2>{escaped(heading)}</h2><dl>" + "\n".join(known) + "</dl></section>"


def write(path, title, parts):
    whole = ('<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
             '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
             f"<title>{escaped(title)}</title>\n<style>{STYLE}</style></head><body>\n"
             f"<h1>{escaped(title)}</h1>\n" + "\n".join(filter(None, parts)) +
             f"\n<script>{SCRIPT}</script></body></html>\n")
    with open(path, "w", encoding="utf-8") as f:
        f.write(whole)
