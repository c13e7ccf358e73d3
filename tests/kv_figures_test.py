"""bench/kv_figures: every figure that kv_bench wrote stands on the page, and the page is sound.

    kv_figures_test.py KV_FIGURES KV_BENCH
"""

import html.parser
import json
import os
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
KV_FIGURES, KV_BENCH = map(os.path.realpath, sys.argv[1:3])
sys.path.insert(0, os.path.dirname(KV_FIGURES))

from plots import kv  # noqa: E402
from plots.svg import short, spread_text  # noqa: E402


class Page(html.parser.HTMLParser):
    """Tags that stay open, the rows of all tables, and how many marks are drawn."""

    def __init__(self, text):
        super().__init__()
        self.open, self.wrong, self.rows, self.marks = [], [], [], 0
        self.feed(text)
        self.close()
        self.wrong += self.open

    def handle_starttag(self, tag, attrs):
        if tag != "meta":
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag == "td":
            self.rows[-1].append("")
        if tag in ("circle", "rect"):
            self.marks += 1

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(f"</{tag}>")

    def handle_data(self, data):
        if self.open and self.open[-1] == "td":
            self.rows[-1][-1] += data


class KvFiguresTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.raw = os.path.join(cls.folder.name, "kv.jsonl")
        cls.out = os.path.join(cls.folder.name, "kv.html")
        subprocess.run([KV_BENCH, "--quick", "--records", "1000", "--threads", "1,2", "--key", "8,16",
                        "--engine", "tenuto,lmdb", "--workload", "load,a,e,open", "--json", cls.raw],
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        subprocess.run([KV_FIGURES, cls.raw, "--out", cls.out], stdout=subprocess.DEVNULL, check=True)
        with open(cls.out, encoding="utf-8") as f:
            cls.text = f.read()
        cls.page = Page(cls.text)
        with open(cls.raw, encoding="utf-8") as f:
            cls.rows = [json.loads(line) for line in f]

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def has_row(self, *cells):
        return any(all(c in row for c in map(str, cells)) for row in self.page.rows)

    def test_every_tag_is_closed(self):
        self.assertEqual(self.page.wrong, [])

    def test_every_throughput_and_percentile_stands_in_a_table(self):
        timed = [r for r in self.rows if "mops" in r]
        self.assertGreater(len(timed), 10)
        for r in timed:
            self.assertTrue(self.has_row(r["case"], r["threads"], r["engine"],
                                         spread_text(kv.spread(r, "mops"))), r)
            self.assertTrue(self.has_row(r["case"], r["engine"], short(r["p99_us"]), short(r["max_us"])))

    def test_opening_and_ratios_are_there(self):
        killed = [r for r in self.rows if "open_killed_ms" in r]
        self.assertEqual(len(killed), 8)  # two engines, two key sizes, two numbers of threads
        shown = [r for r in killed if self.has_row(r["engine"], short(r["open_killed_ms"]))]
        self.assertGreaterEqual(len(shown), 4)
        self.assertIn("tenuto / lmdb", self.text)

    def test_a_mark_is_drawn_for_every_figure(self):
        timed = sum("mops" in r for r in self.rows)
        self.assertGreaterEqual(self.page.marks, timed * 5)  # a bar and four percentiles

    def test_what_is_not_kv_benchs_is_refused(self):
        other = os.path.join(self.folder.name, "other.jsonl")
        with open(other, "w", encoding="utf-8") as f:
            f.write('{"bench":"alloc"}\n')
        done = subprocess.run([KV_FIGURES, other, "--out", self.out + "x"], stderr=subprocess.PIPE,
                              text=True, check=False)
        self.assertEqual(done.returncode, 8)
        self.assertIn("no line of kv_bench", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
