"""kv_bench's JSON as one page: who is ahead, throughput, latency, opening, memory and files, counts.

Rows are those of `kv_bench --json`, whose rounds are in them already. A setting is a point of
kv_bench's lists, whatever the threads; each gets a section of its own.
"""

import json
from collections import namedtuple
from functools import partial

from plots import page, svg, verdict
from plots.samples import Spread
from plots.svg import Series, short, spread_text

# What makes settings differ, beside the distribution. An `open` has one thread whatever the others
# have, so threads are not in it.
SETTING = ("durability", "key_bytes", "value_bytes", "records", "key_order", "file_system", "seed")
# What tells two of the same engine apart; an engine is named by what differs.
VARIANT = ("medium", "journal_writes", "commit")
PERCENTILES = (("p50_us", "median"), ("p99_us", "99 %"), ("p999_us", "99.9 %"))
OPENING = (("open_ms", "after a clean close"), ("open_killed_ms", "after SIGKILL"),
           ("first_get_ms", "clean, its first get"),
           ("first_get_killed_ms", "SIGKILL, its first get"),
           ("first_write_ms", "clean, its first write"),
           ("first_write_killed_ms", "SIGKILL, its first write"))
SIZES = (("memory_bytes", "private memory"), ("file_bytes", "files"))
PER_OP = (("instructions_per_op", "instructions"), ("cycles_per_op", "cycles"),
          ("cache_misses_per_op", "cache misses"), ("tlb_misses_per_op", "TLB misses"),
          ("lines_per_op", "lines"), ("fences_per_op", "fences"), ("cpu_us_per_op", "CPU us"))
SMALL = 100_000
BOUNDS = ("null", "bare")  # the client alone, the device alone: no stores, and far off any scale
VOLATILE = "Keeps nothing beyond the process: a bound, drawn but not compared with"
UNIT = "million operations a second"
WORKLOADS = {
    "load": "Inserts all records into an empty store, in hashed order unless the setting says ordered.",
    "a": "Half of the operations read a record, half replace one. Zipfian: some records are far "
         "more popular.",
    "b": "95 % of the operations read a record, 5 % replace one.",
    "c": "All operations read a record.",
    "d": "95 % of the operations read, mostly the latest records; 5 % insert new ones.",
    "e": "95 % of the operations read 1 to 100 records in key order from a random one; 5 % insert.",
    "e-cold": "As e, the first operations after an open.",
    "e-warm": "As e, after all records were read once.",
    "f": "Half of the operations read a record, half read one and write it back changed.",
    "insert-delete": "Half of the operations insert a record, half delete one, all equally popular.",
    "sync-insert": "Inserts into an empty store, each durable on the device when it returns.",
    "open": "Loads and updates until SIGKILL; then opens the store and reads one record, against the clock.",
}
DURABILITY = {"buffered": "an acknowledged write survives kill -9",
              "sync": "an acknowledged write survives a power cut"}

# Where tenuto's medium gives less than that, or where its promise needs another memory.
UNEQUAL = {
    ("buffered", "journal"): "On medium journal, tenuto's buffered writes may lose the last 100 ms at a power "
                             "cut or kill -9; the others lose nothing at kill -9.",
    ("sync", "cache"): "Medium cache survives a power cut only where the processor's caches are persistent. On "
                       "an ordinary machine this is no equal comparison.",
    ("sync", "line"): "Medium line survives a power cut on persistent memory alone. On an ordinary machine this "
                      "is no equal comparison.",
}

# rows: of workloads. notes: what a reader must know of the files. failed: wrong answers.
Input = namedtuple("Input", "rows notes failed")


def parsed(path, lines, notes):
    """The objects of a file. A last line that breaks off is a run cut short; others are errors."""
    for number, line in enumerate(lines, 1):
        try:
            yield json.loads(line)
        except ValueError as e:
            if number < len(lines):
                raise ValueError(f"{path}:{number} is no JSON: {e}") from e
            notes.append(f"The last line of {path} breaks off and is left out.")


def read(paths):
    """Rows of all files, and in words how each run ended."""
    rows, notes, failed = [], [], []
    for path in paths:
        with open(path, encoding="utf-8") as f:
            lines = [line for line in f if line.startswith("{")]
        found = [row for row in parsed(path, lines, notes) if row.get("bench") == "kv"]
        rows += [row for row in found if "case" in row]
        ends = [row for row in found if "end" in row]
        failed += [line for row in ends for line in row["failed"]]
        if any("version" in row for row in found) and not ends:
            notes.append(f"{path}: the run was cut short; it wrote no last line. What it measured until "
                         "then is drawn.")
        notes += [f"{path}: the run was cut short ({row['end']}). What it measured until then is drawn."
                  for row in ends if row["end"] != "complete"]
    if not rows:
        raise ValueError(f"no line of kv_bench --json in {', '.join(paths)}")
    return Input(rows, notes, failed)


def spread(row, field, scale=1):
    value = row.get(field) if row else None
    if value is None:
        return None
    if not isinstance(value, dict):
        value = {"median": value, "min": value, "max": value}
    return Spread(*(value[name] / scale for name in ("median", "min", "max")))


def threads_text(threads):
    return page.counted(threads, "thread")


class Section:
    """One setting: its rows, by engine, workload and threads."""

    def __init__(self, rows):
        self.rows = rows
        self.variants = {}
        for r in rows:
            for field in VARIANT:
                self.variants.setdefault((r["engine"], field), set()).add(r.get(field))
        self.at = {(r["case"], self.name(r), r["threads"]): r for r in rows}
        self.names = list(dict.fromkeys(map(self.name, rows)))
        self.drawn = [n for n in self.names if n not in BOUNDS]
        self.mine = [n for n in self.names if n.split("/")[0] == "tenuto"]
        self.volatile = [n for n in self.drawn if any(r.get("volatile") for r in rows if self.name(r) == n)]
        self.others = [n for n in self.drawn
                       if n not in self.mine + self.volatile and not n.startswith("fptree-")]
        self.colour = {n: f"c{i % len(page.LIGHT)}" for i, n in enumerate(self.drawn)}
        self.timed = [r for r in rows if "mops" in r]
        self.threads = sorted({r["threads"] for r in self.timed})

    def name(self, row):
        engine = row["engine"]
        return "/".join((engine, *(row[field] for field in VARIANT
                                   if field in row and len(self.variants[engine, field]) > 1)))

    def title(self):
        r = self.rows[0]
        return (f"{page.counted(r['records'], 'record')} of {r['key_bytes']} + {r['value_bytes']} bytes, "
                f"{r['key_order']} keys, {r['distribution']}, {r['durability']}, on {r['file_system']}")

    def cases(self, threads):
        return list(dict.fromkeys(r["case"] for r in self.timed if r["threads"] == threads))

    def note(self, name):
        rows = [r for r in self.rows if self.name(r) == name]
        return page.listed(dict.fromkeys(f"{page.counted(r.get('turns', r['rounds']), 'round')}, "
                                         f"{page.version_of(r)}" for r in rows), "or")

    def series(self, value, keys):
        """For each engine value(name, key)."""
        return [Series(n, self.colour[n], [value(n, k) for k in keys], self.note(n))
                for n in self.drawn]

    def panels(self, field, title, unit):
        """One for each number of threads, all of the same range."""
        drawn = [(t, self.cases(t), self.series(
            lambda n, c, t=t: spread(self.at.get((c, n, t)), field), self.cases(t)))
            for t in self.threads]
        top = max(svg.top_of(*series) for _, _, series in drawn)
        return [svg.bars(title.format(threads_text(t)), unit, cases, series, top)
                for t, cases, series in drawn]

    def throughput(self):
        if not self.timed:
            return ""
        rows = [(r["case"], r["threads"], self.name(r), spread_text(spread(r, "mops")))
                for r in self.timed]
        ratios = [(r["case"], r["threads"], f"{self.name(r)} / {other}",
                   spread_text(spread({"x": ratio}, "x")))
                  for r in self.rows for other, ratio in r.get("ratio_to", {}).items()]
        return (page.columns(self.panels("mops", "Throughput, {}", UNIT)) +
                page.details("Throughput in figures", page.table(
                    f"{UNIT.capitalize()}, median (least..most) of the rounds",
                    ("workload", "threads", "engine", "Mops/s"), rows) + page.table(
                    "Ratios of throughput, taken round by round",
                    ("workload", "threads", "of", "ratio"), ratios)))

    def latency(self):
        if not self.timed:
            return ""
        plots = [plot for field, words in PERCENTILES
                 for plot in self.panels(field, f"Latency, {words}, {{}}", "microseconds")]
        fields = PERCENTILES + (("max_us", "most"),)
        rows = [(r["case"], r["threads"], self.name(r), *(spread_text(spread(r, f)) for f, _ in fields))
                for r in self.timed]
        return page.columns(plots) + page.details("Latency in figures", page.table(
            "Microseconds from one completion to the next, all rounds together",
            ("workload", "threads", "engine", *(words for _, words in fields)), rows))

    def last(self, field):
        """By engine, the rows with this field of the last workload that has it."""
        rows = [r for r in self.rows if field in r]
        return {self.name(r): r for r in rows if r["case"] == rows[-1]["case"]}

    def opening(self):
        fields = [(f, words) for f, words in OPENING if self.last(f)]
        if not fields:
            return ""
        series = self.series(lambda n, f: spread(self.last(f[0]).get(n), f[0]), fields)
        rows = [(n, *(spread_text(spread(self.last(f).get(n), f)) for f, _ in fields))
                for n in self.names if any(n in self.last(f) for f, _ in fields)]
        words = [w for _, w in fields]
        return page.columns([svg.bars("Open and first read", "milliseconds", words, series)]) + \
            page.details("Opening in figures", page.table(
                "Milliseconds from the open to the first record read", ("engine", *words), rows))

    def space(self):
        """After the last workload that was timed; the table has all."""
        rows = [r for r in self.timed if "memory_bytes" in r]
        if not rows:
            return ""
        t, case = self.threads[0], self.cases(self.threads[0])[-1]
        plots = [svg.bars(f"{words.capitalize()} after {case}, {threads_text(t)}", "MB", [case], self.series(
            lambda n, c, f=field: spread(self.at.get((c, n, t)), f, 1e6), [case])) for field, words in SIZES]
        figures = [(r["case"], r["threads"], self.name(r),
                    *(spread_text(spread(r, f, 1e6)) for f, _ in SIZES),
                    short(r["file_bytes"] / (r["records"] * (r["key_bytes"] + r["value_bytes"])))
                    if r["case"] == "load" else "–") for r in rows]
        return page.columns(plots) + page.details("Memory and files in figures", page.table(
            "MB; after the load also the files over the bytes of keys and values",
            ("after", "threads", "engine", *(w for _, w in SIZES), "files / records"), figures))

    def counts(self):
        fields = [(f, words) for f, words in PER_OP if any(f in r for r in self.rows)]
        rows = [(r["case"], r["threads"], self.name(r), *(short(r.get(f)) for f, _ in fields))
                for r in self.rows if any(f in r for f, _ in fields)]
        return page.details("Counts in figures", page.table(
            "For each operation; what this machine or medium does not count is left out",
            ("workload", "threads", "engine", *(words for _, words in fields)), rows))

    def missing(self):
        """What some engine has and another has not, and rounds that were asked for and not made."""
        every = dict.fromkeys((r["case"], r["threads"]) for r in self.rows)
        gone = {n: [f"{c} with {threads_text(t)}" for c, t in every if (c, n, t) not in self.at]
                for n in self.drawn}
        notes = [f"Not measured here: {n}: {page.listed(what)}." for n, what in gone.items() if what]
        return notes + [f"{self.name(r)}, {r['case']}, {threads_text(r['threads'])}: only {r['turns']} of "
                        f"{page.counted(r['rounds'], 'round')} were measured."
                        for r in self.rows if r.get("turns", r["rounds"]) < r["rounds"]]

    def comparisons(self):
        """Each tenuto with the best of the others."""
        found = []
        for name in self.mine:
            add = partial(self.compare, found, name, f", {name}" if len(self.mine) > 1 else "")
            for t in self.threads:
                for c in self.cases(t):
                    add(f"Throughput with {threads_text(t)}, {UNIT}", c, "mops",
                        lambda n, c=c, t=t: self.at.get((c, n, t)), more_is_better=True)
            for t in self.threads:
                for c in self.cases(t):
                    add(f"Latency, 99 %, {threads_text(t)}, microseconds", c, "p99_us",
                        lambda n, c=c, t=t: self.at.get((c, n, t)))
            for field, words in OPENING:
                add("Open and first read, ms", words, field, self.last(field).get)
            for field, words in SIZES:
                for t in self.threads[:1]:
                    c = self.cases(t)[-1]
                    add("Size, MB", f"{words} after {c}", field,
                        lambda n, c=c, t=t: self.at.get((c, n, t)), scale=1e6)
        return found

    def compare(self, found, name, suffix, topic, what, field, row_of, scale=1, more_is_better=False):
        mine = row_of(name) or {}
        ratios = {n: spread({"x": r}, "x") for n, r in mine.get("ratio_to", {}).items()} \
            if field == "mops" else None
        found += verdict.with_best(topic + suffix, what, spread(mine, field, scale),
                                   {n: spread(row_of(n), field, scale) for n in self.others},
                                   more_is_better, ratios)

    PARTS = (("Throughput", throughput), ("Latency", latency), ("Opening again", opening),
             ("Memory and files", space), ("Counts", counts))

    def compared(self):
        """What took part, in a sentence or two."""
        r, stores = self.rows[0], []
        for n in self.drawn:
            media = {row["medium"] for row in self.rows if self.name(row) == n and "medium" in row}
            stores.append(f"{n} (medium {page.listed(sorted(media))})" if media and "/" not in n else n)
        threads = [str(t) for t in self.threads] or ["1"]
        volatile = f"{VOLATILE}: {page.listed(self.volatile)}. " if self.volatile else ""
        return (f"Compared: {page.listed(stores)}. {volatile}Workloads: "
                f"{page.listed(dict.fromkeys(row['case'] for row in self.rows))}. Data: {self.title()}. "
                f"{page.listed(threads)} thread{'' if threads == ['1'] else 's'}, "
                f"{page.counted(r['rounds'], 'round')}. "
                f"{r['durability'].capitalize()}: {DURABILITY.get(r['durability'], 'see the settings')}.")

    def summary(self):
        r, parts = self.rows[0], [page.paragraph(self.compared())]
        if r["records"] < SMALL:
            parts.append(page.paragraph(
                f"A sample: with {page.counted(r['records'], 'record')} all data are in the processor's "
                "caches and a workload takes milliseconds. It shows what a run gives; its figures mean "
                "little.", "failed"))
        media = dict.fromkeys(row.get("medium") for row in self.rows if row["engine"] == "tenuto")
        parts += [page.paragraph(UNEQUAL[r["durability"], m]) for m in media if (r["durability"], m) in UNEQUAL]
        found = self.comparisons()
        if found:
            parts.append(verdict.told(found, "Tenuto beside the best of the others",
                                      "Tenuto is behind at", "Tenuto is ahead at"))
        elif not self.mine:
            parts.append(page.paragraph("Tenuto took no part, so nothing is compared with it."))
        else:
            parts.append(page.paragraph("This run has no figures of another store in the same workload, so "
                                        "nothing is compared."))
        return "\n".join(parts + [page.paragraph(n, "quiet") for n in self.missing()])

    def html(self, number):
        parts = [f'<section id="setting-{number}"><h2>{page.escaped(self.title())}</h2>']
        for heading, draw in self.PARTS:
            inner = draw(self)
            if inner:
                parts += [f"<h3>{heading}</h3>", inner]
        return "\n".join(parts + ["</section>"])


def by_setting(rows):
    """Lists of rows. A `d` has a distribution of its own and goes with the rows before it."""
    settings, distribution = {}, rows[0]["distribution"]
    for row in rows:
        distribution = distribution if row["case"] == "d" else row["distribution"]
        settings.setdefault((distribution, *(row.get(name) for name in SETTING)), []).append(row)
    return settings


def write(path, given):
    settings = by_setting(given.rows)
    sections = [Section(group) for group in settings.values()]
    parts = [page.paragraph(line, "failed") for line in given.failed + given.notes]
    parts.append('<section id="summary"><h2>Summary</h2>')
    for s in sections:
        parts += ([f"<h3>{page.escaped(s.title())}</h3>"] if len(sections) > 1 else []) + [s.summary()]
    parts += [page.paragraph(
        "Figures are medians over the rounds, and whiskers reach from the least to the most; latencies are "
        "of all rounds together. " + verdict.RULE + " Times belong to a machine and an hour; whether it was "
        "idle, the file does not say.", "quiet"), page.origin(given.rows), "</section>",
        page.explained("The workloads", WORKLOADS, dict.fromkeys(r["case"] for r in given.rows))]
    if len(sections) > 1:
        parts.append("<nav>" + " ".join(f'<a href="#setting-{i}">{page.escaped(s.title())}</a>'
                                        for i, s in enumerate(sections)) + "</nav>")
    parts += [s.html(i) for i, s in enumerate(sections)]
    used = dict.fromkeys((r["engine"], r.get("settings", "")) for r in given.rows)
    parts += ["<section><h2>Settings</h2>", page.table("What each engine was told", ("engine", "settings"),
                                                       list(used), "words"), "</section>"]
    page.write(path, "Key-value stores compared: a run of kv_bench", parts)
    return len(sections)
