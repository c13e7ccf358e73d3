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

from plots import kv, verdict  # noqa: E402
from plots.samples import Spread  # noqa: E402
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
            cls.lines = f.read().splitlines()
        cls.rows = [json.loads(line) for line in cls.lines[:-1]]

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

    def test_the_commit_and_the_machine_are_told_and_no_more_of_it(self):
        first = self.rows[0]
        for field in ("version", "commit", "processor", "kernel"):
            self.assertIn(first[field], self.text)
        self.assertIn(f"pages of {first['page_bytes']:,d} bytes", self.text)
        self.assertNotIn(os.uname().nodename + " ", self.text)

    def test_opening_and_ratios_are_there(self):
        killed = [r for r in self.rows if "open_killed_ms" in r]
        self.assertEqual(len(killed), 8)  # two engines, two key sizes, two numbers of threads
        shown = [r for r in killed if self.has_row(r["engine"], spread_text(kv.spread(r, "open_killed_ms")))]
        self.assertGreaterEqual(len(shown), 4)
        self.assertIn("tenuto / lmdb", self.text)

    def test_a_mark_is_drawn_for_every_figure(self):
        timed = sum("mops" in r for r in self.rows)
        self.assertGreaterEqual(self.page.marks, timed * 4)  # a bar and three percentiles

    def drawn(self, lines):
        """Exit code, errors and page of a file with these lines."""
        given, out = (os.path.join(self.folder.name, name) for name in ("part.jsonl", "part.html"))
        with open(given, "w", encoding="utf-8") as f:
            f.write("\n".join(lines))
        done = subprocess.run([KV_FIGURES, given, "--out", out], stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True, check=False)
        with open(out, encoding="utf-8") as f:
            text = f.read()
        self.assertEqual(Page(text).wrong, [])
        return done.returncode, done.stderr, text

    def test_a_run_cut_short_is_drawn_as_far_as_it_came(self):
        for n in (1, len(self.lines) // 2, len(self.rows)):
            code, errors, text = self.drawn(self.lines[:n] + [self.lines[n][:30]])
            self.assertEqual(code, 0, errors)
            for words in (errors, text):
                self.assertIn("cut short", words)
                self.assertIn("breaks off", words)
        interrupted = '{"bench":"kv","end":"interrupted","failed":[]}'
        self.assertIn("cut short (interrupted)", self.drawn(self.lines[:5] + [interrupted])[2])
        self.assertNotIn("cut short", self.text)

    def test_missing_engines_are_told(self):
        of = {name: [line for line, r in zip(self.lines, self.rows) if r["engine"] == name]
              for name in ("tenuto", "lmdb")}
        end = self.lines[-1:]
        self.assertIn("nothing is compared", self.drawn(of["tenuto"] + end)[2])
        self.assertIn("Tenuto took no part", self.drawn(of["lmdb"] + end)[2])
        without = [line for line in of["lmdb"] if '"case":"e"' not in line]
        self.assertIn("Not measured here: lmdb: e with 1 thread and e with 2 threads.",
                      self.drawn(of["tenuto"] + without + end)[2])
        few = self.lines[0].replace('"rounds":1,"turns":1', '"rounds":3,"turns":2')
        self.assertIn("only 2 of 3 rounds were measured", self.drawn([few] + self.lines[1:])[2])

    def test_two_commits_and_two_distributions_stay_apart(self):
        commit = f'"commit":"{self.rows[0]["commit"]}"'
        code, _, text = self.drawn(self.lines[:-1] + [line.replace(commit, '"commit":"another"')
                                                      for line in self.lines[:-1]] + self.lines[-1:])
        self.assertEqual(code, 0)
        self.assertIn("tenuto/another", text)
        self.assertIn(f"tenuto/{self.rows[0]['commit']}", text)
        uniform = [line.replace('"zipfian"', '"uniform"') for line in self.lines[:-1]]
        settings = self.drawn(self.lines[:-1] + uniform + self.lines[-1:])[2].count('<section id="setting-')
        self.assertEqual(settings, 4)  # of two key sizes

    def test_a_medium_that_promises_less_is_told(self):
        self.assertEqual(self.rows[0]["medium"], "cache")
        self.assertNotIn("no equal comparison", self.text)
        sync = [line.replace('"buffered"', '"sync"') for line in self.lines]
        self.assertIn("no equal comparison", self.drawn(sync)[2])

    def test_what_keeps_nothing_is_drawn_and_not_compared_with(self):
        volatile = [line.replace('"engine":"lmdb"', '"engine":"map","volatile":true') for line in self.lines]
        text = self.drawn(volatile)[2]
        self.assertIn("drawn but not compared with: map", text)
        self.assertIn("nothing is compared", text)
        self.assertNotIn("drawn but not compared with", self.text)

    def test_wrong_answers_are_told(self):
        code, errors, text = self.drawn(self.lines[:-1] + [
            '{"bench":"kv","end":"complete","failed":["lmdb, a, round 1: 3 <wrong>"]}'])
        self.assertEqual(code, 1)
        self.assertIn("3 <wrong>", errors)
        self.assertIn("3 &lt;wrong&gt;", text)

    def test_what_is_not_kv_benchs_is_refused(self):
        other = os.path.join(self.folder.name, "other.jsonl")
        with open(other, "w", encoding="utf-8") as f:
            f.write('{"bench":"alloc"}\n')
        done = subprocess.run([KV_FIGURES, other, "--out", self.out + "x"], stderr=subprocess.PIPE,
                              text=True, check=False)
        self.assertEqual(done.returncode, 8)
        self.assertIn("no line of kv_bench", done.stderr)


class Verdicts(unittest.TestCase):
    """Who is ahead: what no round contradicts."""

    def standing(self, mine, theirs, more_is_better, ratios=None):
        [found] = verdict.with_best("t", "w", Spread(*mine), {"a": Spread(*theirs), "b": None},
                                    more_is_better, ratios)
        return verdict.standing(found)

    def test_spreads_that_meet_show_no_difference(self):
        self.assertEqual(self.standing((3, 2, 4), (2, 1, 2.5), True), verdict.EVEN)
        self.assertEqual(self.standing((3, 2.6, 4), (2, 1, 2.5), True), verdict.AHEAD)
        self.assertEqual(self.standing((3, 2.6, 4), (2, 1, 2.5), False), verdict.BEHIND)
        self.assertEqual(self.standing((1, 1, 2), (3, 2.5, 4), False), verdict.AHEAD)

    def test_rounds_that_pair_up_are_believed(self):
        ratios = {"a": Spread(1.5, 1.2, 2)}
        self.assertEqual(self.standing((3, 2, 4), (2, 1, 2.5), True, ratios), verdict.AHEAD)

    def test_without_a_spread_a_tenth_is_needed(self):
        self.assertEqual(self.standing((105,) * 3, (100,) * 3, True), verdict.EVEN)
        self.assertEqual(self.standing((111,) * 3, (100,) * 3, True), verdict.AHEAD)
        self.assertEqual(self.standing((89,) * 3, (100,) * 3, True), verdict.BEHIND)

    def test_the_best_of_the_others_is_compared_with(self):
        others = {"slow": Spread(1, 1, 1), "fast": Spread(9, 9, 9), "none": None}
        for more, name in ((True, "fast"), (False, "slow")):
            self.assertEqual(verdict.with_best("t", "w", Spread(5, 5, 5), others, more)[0].other, name)
        self.assertEqual(verdict.with_best("t", "w", None, others, True), [])
        self.assertEqual(verdict.with_best("t", "w", Spread(5, 5, 5), {}, True), [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
