"""Plots as inline SVG: bars lying in rows, and lines. Scales are linear and start at zero.

Title and legend are HTML above the drawing, where they wrap. Colours are classes (c0, c1, ...) that
the page's style sheet sets for light and dark. A mark is a group with a <title>: value, spread and
origin, which the page's script shows at once.
"""

import html
import math
from collections import namedtuple

# values: by category, a Spread or None. note: what hovering adds, such as the commit. dash: a class
# for the line.
Series = namedtuple("Series", "name colour values note dash", defaults=("", ""))

WIDTH, LINES_HEIGHT = 440, 250
LETTER = 7.2  # no letter of a name is wider on average, in the 12 units of the font ("e-warm")
BAR, GAP, GROUP_GAP = 13, 2, 11


def short(value):
    """Three significant digits, without an exponent."""
    if value is None:
        return "–"
    if value == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{digits}f}" if digits else f"{round(value):,d}"


def spread_text(spread):
    if spread is None:
        return "–"
    if spread.least == spread.most:
        return short(spread.median)
    return f"{short(spread.median)} ({short(spread.least)}..{short(spread.most)})"


def top_of(*series):
    """The highest value drawn, for panels that share a range."""
    return max((s.most for one in series for s in one.values if s is not None), default=0)


def text(x, y, words, cls=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{cls}">{html.escape(str(words))}</text>'


def mark(tip, *parts):
    return f'<g class="mark"><title>{html.escape(tip)}</title>{"".join(parts)}</g>'


def rect(x, y, width, height, cls):
    return (f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(0.0, width):.1f}" height="{height:.1f}" '
            f'class="{cls}"/>')


def rule(x1, y1, x2, y2):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="grid"/>'


def tip_of(series, category, spread, unit):
    within = "" if spread.least == spread.most else f"\nfrom {short(spread.least)} to {short(spread.most)}"
    note = f"\n{series.note}" if series.note else ""
    return f"{series.name}, {category}\n{short(spread.median)} {unit}{within}{note}"


class Axis:
    """From values to places between `start` (zero) and `end`."""

    def __init__(self, top, start, end, steps_most=6):
        top = top or 1
        power = 10.0 ** math.floor(math.log10(top / steps_most))
        step = next(s * power for s in (1, 2, 2.5, 5, 10, 20) if top <= steps_most * s * power)
        steps = max(1, math.ceil(top / step - 1e-9))
        self.high, self.start, self.end = steps * step, start, end
        self.ticks = [i * step for i in range(steps + 1)]

    def at(self, value):
        return self.start + value / self.high * (self.end - self.start)

    def words(self):
        return [f"{t:,.10g}" for t in self.ticks]


def across(top, left, right):
    """An axis whose numbers, side by side, keep a letter's distance or more."""
    for steps_most in (6, 5, 4, 3, 2, 1):
        axis = Axis(top, left, right, steps_most)
        if (right - left) / (len(axis.ticks) - 1) > LETTER * (2 + max(map(len, axis.words()))):
            break
    return axis


def drawing(title, keys, height, parts):
    """keys: (name, class of a colour, class of a line or None for a bar) of each series."""
    drawn = "".join(
        f'<span><svg class="key" viewBox="0 0 24 10">'
        + (rect(0, 0, 24, 10, f"fill {colour}") if dash is None else
           f'<path d="M0 5h24" class="curve {colour} {dash}"/>')
        + f"</svg>{html.escape(name)}</span>" for name, colour, dash in keys)
    legend = f'<div class="legend">{drawn}</div>' if len(keys) > 1 else ""
    return (f'<figure><figcaption>{html.escape(title)}</figcaption>{legend}'
            f'<svg class="plot" viewBox="0 0 {WIDTH} {height:.0f}" role="img" '
            f'aria-label="{html.escape(title)}">{"".join(parts)}</svg></figure>')


def nothing(title):
    return (f'<figure><figcaption>{html.escape(title)}</figcaption>'
            "<p>Nothing is drawn here: this run has no figures for it.</p></figure>")


def rows(title, unit, keys, groups, top):
    """groups: a category and its bars; a bar: its parts (class, end, tip), whisker and words."""
    left = max(LETTER * max(len(str(category)) for category, _ in groups), 20.0) + 8
    right = WIDTH - LETTER * max(len(words) for _, bars in groups for *_, words in bars) - 8
    axis = across(top, left, right)
    y, parts = 4.0, []
    for category, bars in groups:
        height = len(bars) * (BAR + GAP)
        parts.append(text(left - 6, y + height / 2 + 3, category, "end"))
        for segments, whisker, words in bars:
            start, end = 0.0, max(whisker.most if whisker else 0.0, segments[-1][1] if segments else 0.0)
            for cls, stop, tip in segments:
                # The whole row answers a pointer: a bar near zero is too thin to be met.
                hit = rect(left, y, WIDTH - left, BAR + GAP, "hit") if len(segments) == 1 else ""
                parts.append(mark(tip, hit, rect(axis.at(start), y, axis.at(stop) - axis.at(start), BAR,
                                                 f"fill {cls}")))
                start = stop
            if whisker and whisker.least != whisker.most:
                low, high, middle = axis.at(whisker.least), axis.at(whisker.most), y + BAR / 2
                parts.append(f'<path class="whisker" d="M{low:.1f} {middle:.1f}H{high:.1f}'
                             f'M{low:.1f} {middle - 3:.1f}v6M{high:.1f} {middle - 3:.1f}v6"/>')
            parts.append(text(axis.at(end) + 5, y + BAR / 2 + 4, words, "value"))
            y += BAR + GAP
        y += GROUP_GAP
    grid = [rule(axis.at(t), 0, axis.at(t), y - GROUP_GAP / 2) for t in axis.ticks]
    scale = [text(axis.at(t), y + 10, words, "tick middle") for t, words in zip(axis.ticks, axis.words())]
    scale.append(text((left + right) / 2, y + 28, unit, "middle"))
    return drawing(title, keys, y + 34, grid + parts + scale)


def bars(title, unit, categories, series, top=None):
    """A bar for each category and series, with the median beside it; missing ones say so."""
    series = [s for s in series if any(v is not None for v in s.values)]
    if not series:
        return nothing(title)

    def bar(one, category, spread):
        if spread is None:
            return [], None, "not measured"
        return ([(one.colour, spread.median, tip_of(one, category, spread, unit))], spread,
                short(spread.median))
    groups = [(c, [bar(one, c, one.values[i]) for one in series]) for i, c in enumerate(categories)]
    return rows(title, unit, [(s.name, s.colour, None) for s in series], groups,
                top_of(*series) if top is None else top)


def stacked(title, unit, categories, series, top=None):
    """Parts behind each other, medians alone; the tables have the spreads."""
    groups = []
    for i, category in enumerate(categories):
        sum_, segments = 0.0, []
        for one in series:
            if one.values[i] is not None:
                sum_ += one.values[i].median
                segments.append((one.colour, sum_, tip_of(one, category, one.values[i], unit)))
        groups.append((category, [(segments, None, short(sum_))]))
    if not groups:
        return nothing(title)
    if top is None:
        top = max(segments[-1][1] for _, [(segments, _, _)] in groups if segments)
    return rows(title, unit, [(s.name, s.colour, None) for s in series], groups, top)


def lines(title, unit, categories, x_label, series, top=None):
    series = [s for s in series if any(v is not None for v in s.values)]
    if not series:
        return nothing(title)
    high, low = 26.0, LINES_HEIGHT - 40.0
    axis = Axis(top_of(*series) if top is None else top, low, high)
    left = LETTER * max(map(len, axis.words())) + 10
    step = (WIDTH - left) / len(categories)
    parts = [text(0, 12, unit)]
    for t, words in zip(axis.ticks, axis.words()):
        y = axis.at(t)
        parts += [rule(left, y, WIDTH, y), text(left - 6, y + 4, words, "tick end")]
    places = [left + step * (i + 0.5) for i in range(len(categories))]
    parts += [text(x, low + 16, c, "tick middle") for x, c in zip(places, categories)]
    parts.append(text((left + WIDTH) / 2, LINES_HEIGHT - 6, x_label, "middle"))
    for one in series:
        found = [(x, c, s) for x, c, s in zip(places, categories, one.values) if s is not None]
        path = " ".join(f"{x:.1f},{axis.at(s.median):.1f}" for x, _, s in found)
        parts.append(f'<polyline points="{path}" class="curve {one.colour} {one.dash}"/>')
        for x, category, s in found:
            y, least, most = axis.at(s.median), axis.at(s.least), axis.at(s.most)
            whisker = (f'<path class="whisker" d="M{x:.1f} {least:.1f}V{most:.1f}M{x - 3:.1f} {least:.1f}h6'
                       f'M{x - 3:.1f} {most:.1f}h6"/>' if s.least != s.most else "")
            parts.append(mark(tip_of(one, f"{category} {x_label}", s, unit), whisker,
                              f'<circle cx="{x:.1f}" cy="{y:.1f}" r="9" class="hit"/>'
                              f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" class="fill {one.colour}"/>'))
    return drawing(title, [(s.name, s.colour, s.dash) for s in series], LINES_HEIGHT, parts)
