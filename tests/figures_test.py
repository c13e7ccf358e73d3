"""bench/figures: a quick run gives every figure it was asked for, and what is drawn is what was
measured.

    figures_test.py FIGURES ALLOC_BENCH
"""

import html.parser
import json
import os
import statistics
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
FIGURES, ALLOC_BENCH = map(os.path.realpath, sys.argv[1:3])
sys.path.insert(0, os.path.dirname(FIGURES))

from plots import paper  # noqa: E402
from plots.samples import Samples, Spread, ratio  # noqa: E402
from plots.svg import Axis, Series, bars, short  # noqa: E402

VOID = {"meta", "link", "br", "hr", "img"}


class Page(html.parser.HTMLParser):
    """Every tag is closed by its own; texts and attributes by the section they stand in."""

    def __init__(self, text):
        super().__init__()
        self.open, self.wrong, self.sections, self.links = [], [], {}, []
        self.now = None
        self.feed(text)
        self.close()
        if self.open:
            self.wrong.append(f"never closed: {self.open}")

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if tag == "section" and attrs.get("id", "").startswith("figure-"):
            self.now = self.sections.setdefault(attrs["id"], {"tags": [], "text": [], "td": []})
        if self.now is not None:
            self.now["tags"].append(tag)
        for name in ("src", "href"):
            if name in attrs:
                self.links.append(attrs[name])
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(f"</{tag}> at {self.getpos()}")
        if tag == "section":
            self.now = None

    def handle_data(self, data):
        if self.now is not None:
            self.now["text"].append(data)
            if self.open[-1] == "td":
                self.now["td"].append(data)


def figures(*arguments):
    return subprocess.run([sys.executable, FIGURES, *arguments], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, check=False)


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


class QuickRun(unittest.TestCase):
    ASKED = ("9", "10", "11", "12", "13", "15", "16", "17", "18", "19", "N", "P", "W")

    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        cls.out = os.path.join(cls.directory.name, "page.html")
        cls.raw_file = os.path.join(cls.directory.name, "page.json")
        cls.done = figures("--quick", "--only", ",".join(cls.ASKED), "--out", cls.out,
                           "--threads", "1", "--alloc-bench", ALLOC_BENCH)
        if cls.done.returncode != 0:
            raise AssertionError(cls.done.stderr)
        cls.page = Page(read(cls.out))
        cls.raw = json.loads(read(cls.raw_file))

    @classmethod
    def tearDownClass(cls):
        cls.directory.cleanup()

    def rows(self, figure):
        return [row for run in self.raw["runs"] if run["figure"] == figure for row in run["rows"]]

    def test_the_page_is_well_formed_and_stands_alone(self):
        self.assertEqual(self.page.wrong, [])
        self.assertEqual([link for link in self.page.links if not link.startswith("#")], [])

    def test_each_figure_has_plots_tables_and_its_claim(self):
        self.assertEqual(sorted(self.page.sections), sorted(f"figure-{n}" for n in self.ASKED))
        for name, section in self.page.sections.items():
            self.assertIn("svg", section["tags"], name)
            self.assertIn("td", section["tags"], name)
            words = " ".join(section["text"])
            self.assertIn("What the paper reports", words)
            self.assertIn("alloc_bench --", words)
            self.assertNotIn("Not measured", words)

    def test_every_sample_has_its_place_in_a_table(self):
        for figure, field in (("9", "mops"), ("10", "mops"), ("12", "mops"), ("N", "remote_per_op"),
                              ("13", "peak_per_live"), ("15", "peak_per_live"), ("P", "mops"),
                              ("18", "open_killed_ms"), ("17", "lines_per_op"), ("W", "most_per_mean")):
            cells = " ".join(self.page.sections[f"figure-{figure}"]["td"])
            values = [row[field] for row in self.rows(figure) if field in row]
            self.assertGreater(len(values), 1, figure)
            for value in values:
                value = value["median"] if isinstance(value, dict) else value
                self.assertIn(short(value), cells, f"figure {figure}, {field}")

    def test_switches_reach_the_heap(self):
        # Stripes: neighbours' bits in one line are flushed again at once, in six they are not.
        one, six = ([row["reflushes_per_op"] for row in self.rows("16") if row["case"] == "shbench"
                     and row.get("stripes") == n and row["threads"] == 1] for n in (1, 6))
        self.assertGreater(one[0], six[0] + 0.1)
        # A log that is never rewritten is the longest.
        logs = {row.get("book_chunks_least"): row for row in self.rows("17")
                if row["case"] == "dbmstest" and "book_heap_ppm" not in row}
        self.assertEqual(logs[10**9]["book_slow_gcs"], 0)
        self.assertGreaterEqual(logs[10**9]["book_bytes"], logs[None]["book_bytes"])
        # Morphing saves memory, and switched off it does nothing.
        slabs = {row["morph_occupancy"]: row for row in self.rows("16")
                 if row["case"] == "fragbench-w4"}
        self.assertEqual(slabs[0]["morphed_slabs"], 0)
        self.assertLess(slabs[0.2]["peak_bytes"], slabs[0]["peak_bytes"])

    def test_each_setting_is_measured_with_and_without_delays(self):
        # That they are waited for is no test: turns are milliseconds long, on a machine with others.
        rows = [row for row in self.rows("11") if row["medium"] == "model"]
        with_delays, without = ({(row["case"], row["stripes"]) for row in rows
                                 if row.get("delays") is delays} for delays in (True, None))
        self.assertEqual(len(with_delays), 6)
        self.assertEqual(with_delays, without)

    def test_drawn_again_from_the_raw_file_the_page_is_the_same(self):
        again = os.path.join(self.directory.name, "again.html")
        done = figures("--from", self.raw_file, "--out", again)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(read(again), read(self.out))

    def page_of(self, runs):
        """The page of these runs alone."""
        path = os.path.join(self.directory.name, "part.html")
        paper.write(path, {**self.raw, "runs": runs}, paper.FIGURES)
        text = read(path)
        self.assertEqual(Page(text).wrong, [])
        return text

    def test_a_run_cut_short_is_drawn_as_far_as_it_came(self):
        runs = self.raw["runs"]
        for n in range(len(runs)):
            self.assertIn(f"cut short: {n} of {len(runs)} runs", self.page_of(runs[:n]))
        self.assertNotIn("cut short", self.page_of(runs))

    def test_any_engine_or_case_may_be_missing_or_alone(self):
        rows = [row for run in self.raw["runs"] for row in run["rows"]]
        for field in ("engine", "case", "medium"):
            for value in {row.get(field) for row in rows}:
                for alone in (True, False):
                    text = self.page_of([{**run, "rows": [row for row in run["rows"]
                                                          if (row.get(field) == value) == alone]}
                                         for run in self.raw["runs"]])
                    if value == "tenuto":
                        self.assertIn("nothing is compared", text)

    def test_what_alloc_bench_said_to_fail_is_on_the_page_and_in_the_exit_code(self):
        broken = json.loads(read(self.raw_file))
        broken["runs"][0]["failed"] = ["FAILED <somebody>: 3 wrong"]
        path = os.path.join(self.directory.name, "broken.json")
        with open(path, "w", encoding="utf-8") as f:
            json.dump(broken, f)
        done = figures("--from", path, "--out", path + ".html")
        self.assertEqual(done.returncode, 1)
        self.assertIn("FAILED &lt;somebody&gt;: 3 wrong", read(path + ".html"))


class Refusals(unittest.TestCase):
    def test_usage_errors_are_told(self):
        for arguments in (["--only", "14"], ["--rounds", "0"], ["--threads", "1,x"]):
            self.assertEqual(figures(*arguments).returncode, 2, arguments)

    def test_a_missing_program_or_raw_file_is_an_error_without_a_page(self):
        with tempfile.TemporaryDirectory() as d:
            out = os.path.join(d, "page.html")
            for arguments in (["--alloc-bench", d + "/none"], ["--from", d + "/none.json"]):
                self.assertEqual(figures("--out", out, *arguments).returncode, 8)
                self.assertFalse(os.path.exists(out))


def run_of(round_number, **rows):
    return {"round": round_number,
            "rows": [{"case": "c", "engine": e, "mops": {"median": m}} for e, m in rows.items()]}


class Statistics(unittest.TestCase):
    def test_medians_have_the_least_and_the_most_beside_them(self):
        samples = Samples([run_of(r, a=m) for r, m in enumerate((5, 1, 9, 2, 4))])
        self.assertEqual(samples.one(engine="a").spread("mops"), (4, 1, 9))

    def test_ratios_are_taken_round_by_round(self):
        rounds = ((10, 1), (1, 10), (3, 1))
        samples = Samples([run_of(r, a=a, b=b) for r, (a, b) in enumerate(rounds)])
        of = ratio(samples.one(engine="a"), samples.one(engine="b"))
        self.assertEqual(of.median, statistics.median(a / b for a, b in rounds))

    def test_an_axis_starts_at_zero_and_is_high_enough(self):
        for top in (0, 0.003, 0.7, 1, 6, 6.1, 12, 99_000, 3e7):
            for most in (1, 2, 6):
                axis = Axis(top, 100, 500, most)
                self.assertEqual((axis.ticks[0], axis.at(0)), (0, 100))
                self.assertGreaterEqual(axis.high, top)
                self.assertTrue(2 <= len(axis.ticks) <= most + 1, (top, most, axis.ticks))
                self.assertAlmostEqual(axis.at(axis.high / 2), 300)

    def test_names_are_escaped(self):
        value = [Spread(2, 1, 3)]
        plot = bars("<b>", "<b>", ["<b>"], [Series("<b>", "c0", value, "<b>"), Series("", "c1", value)])
        self.assertNotIn("<b>", plot)
        self.assertIn("&lt;b&gt;, &lt;b&gt;\n2.00 &lt;b&gt;\nfrom 1.00 to 3.00\n&lt;b&gt;", plot)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
