"""kv_bench's JSON as one page: throughput, latency percentiles, opening, memory and files.

Rows are those of `kv_bench --json`, whose rounds are in them already. A setting is a point of
kv_bench's lists; each gets a section of its own.
"""

import json

from plots import page, svg
from plots.samples import Spread
from plots.svg import Series, spread_text

# What makes settings differ; what is the same in all of them is said once.
SETTING = ("durability", "key_bytes", "value_bytes", "records", "distribution", "key_order",
           "threads", "file_system", "seed")
COLOURS = ("c0", "c1", "c2", "c3", "c4", "c5", "c6")
PERCENTILES = (("p50_us", "50 %"), ("p99_us", "99 %"), ("p999_us", "99.9 %"), ("max_us", "most"))
OPENING = (("open_ms", "after a clean close"), ("open_killed_ms", "after SIGKILL"))
PER_OP = (("instructions_per_op", "instructions"), ("cycles_per_op", "cycles"),
          ("cache_misses_per_op", "cache misses"), ("tlb_misses_per_op", "TLB misses"),
          ("lines_per_op", "lines"), ("fences_per_op", "fences"), ("cpu_us_per_op", "CPU us"))


def read(paths):
    rows = []
    for path in paths:
        with open(path, encoding="utf-8") as f:
            rows += [json.loads(line) for line in f if line.startswith("{")]
    rows = [row for row in rows if row.get("bench") == "kv"]
    if not rows:
        raise ValueError(f"no line of kv_bench --json in {', '.join(paths)}")
    return rows


def spread(row, field):
    value = row.get(field) if row else None
    if value is None:
        return None
    if isinstance(value, dict):
        return Spread(value["median"], value["min"], value["max"])
    return Spread(value, value, value)


def name_of(row, rows):
    """An engine takes part once, or once for each medium."""
    media = {r.get("medium") for r in rows if r["engine"] == row["engine"]}
    return row["engine"] if len(media) < 2 else f"{row['engine']}, {row['medium']}"


def setting_of(row):
    # An `open` has one thread whatever the others have, and a d its own distribution.
    return tuple(row.get(name) for name in SETTING if name not in ("threads", "distribution"))


class Section:
    def __init__(self, rows):
        self.rows = rows
        self.names = list(dict.fromkeys(name_of(r, rows) for r in rows))
        self.colour = dict(zip(self.names, COLOURS * (1 + len(self.names) // len(COLOURS))))
        self.threads = sorted({r["threads"] for r in rows if r["case"] != "open"})

    def cases(self, threads):
        return list(dict.fromkeys(r["case"] for r in self.rows
                                  if r["threads"] == threads and "mops" in r))

    def row(self, case, name, threads):
        found = [r for r in self.rows if r["case"] == case and r["threads"] == threads
                 and name_of(r, self.rows) == name]
        return found[0] if found else None

    def series(self, field, cases, threads):
        return [Series(n, self.colour[n], [spread(self.row(c, n, threads), field) for c in cases])
                for n in self.names if any(self.row(c, n, threads) for c in cases)]

    def throughput(self):
        plots = []
        for t in self.threads:
            cases = self.cases(t)
            plots.append(svg.bars(f"{t} thread{'s' if t > 1 else ''}",
                                  "million operations a second", cases, "workload",
                                  self.series("mops", cases, t), log=True))
        rows = [(r["case"], r["threads"], name_of(r, self.rows), spread_text(spread(r, "mops")))
                for r in self.rows if "mops" in r]
        return plots, [page.table("Million operations a second, median (least..most) of the rounds",
                                  ("workload", "threads", "engine", "Mops/s"), rows), self.ratios()]

    def ratios(self):
        rows = []
        for r in self.rows:
            for other, ratio in r.get("ratio_to", {}).items():
                rows.append((r["case"], r["threads"], f"{name_of(r, self.rows)} / {other}",
                             spread_text(spread({"x": ratio}, "x"))))
        return page.table("Ratios, taken round by round", ("workload", "threads", "of", "ratio"),
                          rows) if rows else ""

    def latency(self):
        plots, rows = [], []
        for t in self.threads:
            for case in self.cases(t):
                found = [(n, self.row(case, n, t)) for n in self.names if self.row(case, n, t)]
                series = [Series(n, self.colour[n], [spread(r, f) for f, _ in PERCENTILES])
                          for n, r in found]
                plots.append(svg.lines(f"{case}, {t} thread{'s' if t > 1 else ''}", "microseconds",
                                       [label for _, label in PERCENTILES], "of the operations",
                                       series, log=True))
                rows += [(case, t, n, *(spread_text(spread(r, f)) for f, _ in PERCENTILES))
                         for n, r in found]
        return plots, [page.table("Microseconds from one completion to the next, all rounds together",
                                  ("workload", "threads", "engine",
                                   *(label for _, label in PERCENTILES)), rows)]

    def opening(self):
        last = {}
        for r in self.rows:
            for field, _ in OPENING:
                if field in r:
                    last.setdefault(name_of(r, self.rows), {})[field] = r[field]
        if not last:
            return [], []
        fields = [(f, label) for f, label in OPENING if any(f in r for r in last.values())]
        series = [Series(n, self.colour[n], [spread(last[n], f) for f, _ in fields]) for n in last]
        plot = svg.bars("Opening, with one read", "milliseconds", [label for _, label in fields],
                        "", series, log=True)
        return [plot], [page.table("Milliseconds from the open to the first record read",
                                   ("engine", *(label for _, label in fields)),
                                   [(n, *(spread_text(spread(last[n], f)) for f, _ in fields))
                                    for n in last])]

    def space(self):
        rows = [(r["case"], r["threads"], name_of(r, self.rows),
                 *(svg.short(r[f] / 1e6) if f in r else "–" for f in ("memory_bytes", "file_bytes")),
                 svg.short(r["file_bytes"] / (r["records"] * (r["key_bytes"] + r["value_bytes"])))
                 if "file_bytes" in r and r["case"] == "load" else "–")
                for r in self.rows if "memory_bytes" in r or "file_bytes" in r]
        return [], [page.table("Private memory and files, MB; after the load the file over keys and values",
                               ("after", "threads", "engine", "memory", "file", "file / records"),
                               rows)] if rows else []

    def counts(self):
        fields = [(f, label) for f, label in PER_OP if any(f in r for r in self.rows)]
        rows = [(r["case"], r["threads"], name_of(r, self.rows),
                 *(svg.short(r.get(f)) for f, _ in fields))
                for r in self.rows if any(f in r for f, _ in fields)]
        return [], [page.table("For each operation; a machine without such counters leaves them out",
                               ("workload", "threads", "engine", *(label for _, label in fields)),
                               rows)] if rows else []

    PARTS = (("Throughput", throughput), ("Latency", latency), ("Opening again", opening),
             ("Memory and files", space), ("Counts", counts))

    def html(self, number, title):
        parts = [f'<section id="setting-{number}"><h2>{page.escaped(title)}</h2>']
        for heading, draw in self.PARTS:
            plots, tables = draw(self)
            if plots or tables:
                parts += [f"<h3>{heading}</h3>", '<div class="plots">', *plots, "</div>", *tables]
        return "\n".join(parts + ["</section>\n"])


def write(path, rows):
    settings = {}
    for row in rows:
        settings.setdefault(setting_of(row), []).append(row)
    titles = [f"{g[0]['records']} records, keys of {g[0]['key_bytes']} bytes ({g[0]['key_order']}), "
              f"values of {g[0]['value_bytes']}, {g[0]['durability']}, {g[0]['file_system']}"
              for g in settings.values()]
    used = dict.fromkeys((r["engine"], r.get("settings", "")) for r in rows)
    parts = ['<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">',
             '<meta name="viewport" content="width=device-width, initial-scale=1">',
             f"<title>kv_bench</title><style>{page.STYLE}</style></head><body>",
             "<h1>Key-value stores beside each other</h1>",
             page.paragraph(f"Drawn from kv_bench's own figures: medians over {rows[0]['rounds']} rounds, "
                            "whiskers from the least to the most. Times belong to a machine and an hour; "
                            "whether it was idle, the file does not say. Scales are logarithmic."),
             "<nav>" + " ".join(f'<a href="#setting-{i}">{page.escaped(t)}</a>'
                                for i, t in enumerate(titles)) + "</nav>"]
    parts += [Section(group).html(i, titles[i]) for i, group in enumerate(settings.values())]
    parts.append(page.table("Settings", ("engine", "settings"), list(used)))
    parts.append("</body></html>\n")
    with open(path, "w", encoding="utf-8") as f:
        f.write("\n".join(parts))
    return titles
