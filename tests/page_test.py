"""The pages of bench/figures and bench/kv_figures as a browser shows them.

    page_test.py BENCH SAMPLES OUT

Pages are made from SAMPLES, short runs of the benchmarks themselves, and rendered by Chromium without
a window, wide and narrow, light and dark. No text may lie on another or be cut, nothing may be said on
the console, and nothing may be fetched. A screenshot of each page is left in OUT for a person to see.
Without Chromium the rendering is skipped, and the reason is printed.
"""

import base64
import json
import math
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
from itertools import combinations

sys.dont_write_bytecode = True
BENCH, SAMPLES, OUT = map(os.path.realpath, sys.argv[1:4])
sys.path.insert(0, BENCH)

from plots import page  # noqa: E402

CHROMIUM = shutil.which("chromium")
WIDE, NARROW = 1280, 390
DARK = "--force-dark-mode"
SMALLEST = 9  # pixels of a font that can be read
SKIPPED = 77

# In the page before anything of its own. The policy makes a line on the console of whatever is fetched.
WATCH = """<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<script>
const said = [];
addEventListener("error", event => said.push(event.message));
for (const how of ["log", "warn", "error"]) console[how] = (...words) => said.push(words.join(" "));
</script>"""

# Runs in the page when all is there, and leaves what it sees in the page: the box of each line of each
# text, where it must stay, and what hovering over marks shows.
LOOK = """<script>{
// A window has a least width. The style asks for none, so a narrower page is like a narrower window.
if (WIDTH < innerWidth) document.documentElement.style.width = WIDTH + "px";
const high = document.documentElement.scrollHeight;
for (const d of document.querySelectorAll("details")) d.open = true;
const box = r => [r.left, r.top + scrollY, r.right, r.bottom + scrollY].map(x => Math.round(x * 10) / 10);
const texts = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
for (let n; n = walk.nextNode();) {
  if (!n.data.trim() || n.parentNode.closest("script, style, title, #tip")) continue;
  const range = document.createRange();
  range.selectNodeContents(n);
  const svg = n.parentNode.closest("svg.plot"), scrolls = n.parentNode.closest(".wide, pre");
  const scale = svg ? svg.getScreenCTM().a : 1;
  const size = parseFloat(getComputedStyle(n.parentNode).fontSize) * scale;
  const kept = svg || scrolls || document.documentElement;
  for (const r of range.getClientRects())
    texts.push({words: n.data.trim().slice(0, 60), size, box: box(r), scrolls: !!scrolls,
                inside: box(kept.getBoundingClientRect())});
}
const inks = [...document.querySelectorAll(".whisker, svg circle.fill")]
  .map(n => ({words: "a whisker or a point", box: box(n.getBoundingClientRect())}));
const tips = [], tip = document.getElementById("tip");
for (const mark of [...document.querySelectorAll(".mark")].filter((_, i) => i % 5 == 0)) {
  mark.scrollIntoView({block: "center"});
  const r = mark.getBoundingClientRect();
  mark.lastElementChild.dispatchEvent(new PointerEvent("pointermove",
    {bubbles: true, clientX: r.left + r.width / 2, clientY: r.top + r.height / 2}));
  const t = tip.getBoundingClientRect();
  tips.push({shown: !tip.hidden, words: tip.textContent,
             whole: t.left >= 0 && t.top >= 0 && t.right <= innerWidth && t.bottom <= innerHeight});
}
tip.hidden = true;
const seen = {texts, inks, tips, said,
  dark: matchMedia("(prefers-color-scheme: dark)").matches, high,
  sideways: Math.max(...[...document.body.children].map(e => e.getBoundingClientRect().right))};
const at = document.body.appendChild(document.createElement("pre"));
at.id = "seen"; at.textContent = btoa(unescape(encodeURIComponent(JSON.stringify(seen))));
}</script>"""


def chromium(profile, width, path, *options):
    root = ["--no-sandbox"] if os.geteuid() == 0 else []
    done = subprocess.run(
        [CHROMIUM, "--headless", *root, "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr",
         f"--user-data-dir={profile}", f"--window-size={width},900", *options, "file://" + path],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120, check=False)
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def look(folder, text, width, *options):
    """What a browser shows of this page."""
    path = os.path.join(folder, "looked_at.html")
    text = text.replace("<head>", "<head>" + WATCH, 1)
    text = text.replace("</body>", LOOK.replace("WIDTH", str(width)) + "</body>", 1)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    dom, console = chromium(os.path.join(folder, "profile"), width, path, "--dump-dom", *options)
    found = re.search(r'<pre id="seen">([^<]*)</pre>', dom)
    if found is None:
        raise AssertionError(f"the page did not finish: {console} {dom[-500:]}")
    seen = json.loads(base64.b64decode(found.group(1)))
    seen["said"] += console
    return seen


def overlap(a, b):
    """By more than a pixel, which rounding and the space around letters make up for."""
    return (min(a[2], b[2]) - max(a[0], b[0]) > 1 and min(a[3], b[3]) - max(a[1], b[1]) > 3)


def mistakes(seen, width):
    """In words; none for a page that can be read."""
    found = []
    texts = sorted(seen["texts"], key=lambda t: t["box"][1])
    for i, t in enumerate(texts):
        for other in texts[i + 1:]:
            if other["box"][1] >= t["box"][3]:
                break
            if overlap(t["box"], other["box"]):
                found.append(f"overlap: '{t['words']}' and '{other['words']}'")
        found += [f"'{t['words']}' lies on {ink['words']}" for ink in seen["inks"]
                  if overlap(t["box"], ink["box"])]
        left, top, right, bottom = t["inside"]
        if not t["scrolls"] and (t["box"][0] < left - 1 or t["box"][2] > right + 1 or t["box"][1] < top - 3 or
                                 t["box"][3] > bottom + 3):
            found.append(f"cut: '{t['words']}'")
        if t["size"] < SMALLEST:
            found.append(f"small: '{t['words']}' has {t['size']:.1f} pixels")
    if seen["sideways"] > width + 1:
        found.append(f"the page is {seen['sideways']} wide in a window of {width}")
    found += [f"hovering shows nothing, or not all: {tip}" for tip in seen["tips"]
              if not tip["shown"] or not tip["whole"]]
    return found + [f"console: {words}" for words in seen["said"]]


def sample(name):
    return os.path.join(SAMPLES, name)


def made(folder, program, *arguments):
    out = os.path.join(folder, program + ".html")
    subprocess.run([sys.executable, os.path.join(BENCH, program), *arguments, "--out", out], check=True,
                   stdout=subprocess.DEVNULL)
    with open(out, encoding="utf-8") as f:
        return f.read()


@unittest.skipIf(CHROMIUM is None, "no chromium here (Debian: apt-get install chromium)")
class Rendered(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.pages = {"kv_figures": made(cls.folder.name, "kv_figures", sample("kv.jsonl")),
                     "figures": made(cls.folder.name, "figures", "--from", sample("figures.json"))}
        os.makedirs(OUT, exist_ok=True)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def seen(self, name, width, *options):
        return look(self.folder.name, self.pages[name], width, *options)

    def test_nothing_overlaps_or_is_cut_narrow_and_dark(self):
        for name in self.pages:
            seen = self.seen(name, NARROW, DARK)
            self.assertEqual(mistakes(seen, NARROW), [], name)
            self.assertTrue(seen["dark"])

    def test_nothing_overlaps_or_is_cut_wide_and_light_and_a_screenshot_is_taken(self):
        for name in self.pages:
            seen = self.seen(name, WIDE)
            self.assertEqual(mistakes(seen, WIDE), [], name)
            self.assertFalse(seen["dark"])
            self.assertGreater(len(seen["texts"]), 300)
            self.assertGreater(len(seen["tips"]), 10)
            for tip in seen["tips"]:
                self.assertRegex(tip["words"], r"(?s)round.*version \S+, commit \w+", name)
            path, high = os.path.join(self.folder.name, name + ".html"), seen["high"]
            for theme, options in (("light", ()), ("dark", (DARK,))):
                picture = os.path.join(OUT, f"{name}_{theme}.png")
                chromium(os.path.join(self.folder.name, "profile"), WIDE, path, f"--screenshot={picture}",
                         f"--window-size={WIDE},{high}", *options)
                with open(picture, "rb") as f:
                    head = f.read(24)
                self.assertEqual(struct.unpack(">II", head[16:24]), (WIDE, high))

    def test_planted_mistakes_are_seen(self):
        style = {
            "overlap": (".middle { text-anchor:middle; }", ".middle { font-size:40px; }"),
            "lies on a whisker": ("svg .value, .whisker {",
                                  "svg .value { transform:translate(-14px); } .whisker {"),
            "cut": (".end { text-anchor:end; }", ".end { text-anchor:end; transform:translate(-30px); }"),
            "small": ("figcaption {", "h1 { font-size:.5rem !important; } figcaption {"),
            "wide in a window": ("figure {", "#summary { width:60rem; } figure {")}
        script = {
            "console": ("</body>", "<script>absent();</script></body>"),
            "Content Security Policy": ("</body>", '<img src="https://localhost:1/x.png"></body>'),
            "hovering": ("tip.hidden = !mark;", "")}
        for plants in (style, script):
            text = self.pages["kv_figures"]
            for old, new in plants.values():
                self.assertIn(old, text)
                text = text.replace(old, new)
            found = mistakes(look(self.folder.name, text, NARROW), NARROW)
            for words in plants:
                self.assertTrue(any(words in f for f in found), f"{words}: {found[:3]}")


# Machado, Oliveira and Fernandes 2009: linear red, green and blue as eyes without one cone see them.
EYES = {
    "all cones": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "no red cone": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216),
                    (-0.003882, -0.048116, 1.051998)),
    "no green cone": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413),
                      (-0.011820, 0.042940, 0.968881)),
}


def linear(colour):
    parts = [int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)]
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]


def luminance(rgb):
    return 0.2126 * rgb[0] + 0.7152 * rgb[1] + 0.0722 * rgb[2]


def lab(rgb):
    """CIE L*a*b*, in which a distance of 2 can just be seen."""
    xyz = (sum(k * c for k, c in zip(row, rgb)) for row in
           ((0.4339, 0.3762, 0.1899), (0.2126, 0.7152, 0.0722), (0.0177, 0.1095, 0.8728)))
    x, y, z = (v ** (1 / 3) if v > 0.008856 else 7.787 * v + 16 / 116 for v in xyz)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def contrast(a, b):
    low, high = sorted((luminance(linear(a)), luminance(linear(b))))
    return (high + 0.05) / (low + 0.05)


class Colours(unittest.TestCase):
    def test_any_two_stay_apart_for_colour_blind_eyes(self):
        for colours in (page.LIGHT, page.DARK):
            for eyes, matrix in EYES.items():
                seen = [lab([min(1, max(0, sum(k * c for k, c in zip(row, linear(colour)))))
                             for row in matrix]) for colour in colours]
                self.assertGreater(min(math.dist(a, b) for a, b in combinations(seen, 2)), 25, eyes)

    def test_marks_and_words_stand_out_from_the_paper(self):
        light, dark = page.STYLE.split("@media")[0], page.STYLE.split("@media")[1].split("}")[0]
        for style, marks in ((light, page.LIGHT), (dark, page.DARK)):
            value = dict(re.findall(r"--(\w+):(#\w+)", style))
            paper = value["paper"].ljust(7, "f") if len(value["paper"]) == 4 else value["paper"]
            for colour in marks:
                self.assertGreaterEqual(contrast(colour, paper), 3, colour)
            for name in ("ink", "quiet", "link", "bad"):
                self.assertGreaterEqual(contrast(value[name], paper), 4.5, name)


if __name__ == "__main__":
    result = unittest.main(argv=sys.argv[:1], exit=False).result
    for _, why in result.skipped:
        print(f"skipped: {why}")
    sys.exit(1 if not result.wasSuccessful() else SKIPPED if result.skipped else 0)
