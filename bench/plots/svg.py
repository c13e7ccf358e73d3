"""Plots as inline SVG: lines and bars over categories, with whiskers from least to most.

Colours are classes (c0, c1, ...) that the page's style sheet sets for light and dark. Marks carry a
<title>, which browsers show as a tooltip.
"""

import html
import math
from collections import namedtuple

# values: by category, a Spread or None. dash: a class for the line. stacked bars ignore whiskers.
Series = namedtuple("Series", "name colour values dash", defaults=("",))

WIDTH, HEIGHT = 460, 270
LEFT, RIGHT, TOP, BOTTOM = 68, 10, 30, 40
LEGEND_LINE = 17


def short(value):
    """Three significant digits, without an exponent."""
    if value is None:
        return "–"
    if value == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{digits}f}" if digits else f"{round(value):d}"


def spread_text(spread):
    if spread is None:
        return "–"
    if spread.least == spread.most:
        return short(spread.median)
    return f"{short(spread.median)} ({short(spread.least)}..{short(spread.most)})"


class Axis:
    """From values to heights; linear from zero, or logarithmic."""

    def __init__(self, values, log):
        most = max(values, default=1) or 1
        self.log = log and min(values, default=0) > 0
        if self.log:
            least = min(values)
            grid = [m * 10.0**e for e in range(math.floor(math.log10(least)) - 1,
                                               math.ceil(math.log10(most)) + 2) for m in (1, 2, 5)]
            low = max(t for t in grid if t < least)
            high = min(t for t in grid if t > most)
            self.low, self.high = math.log10(low), math.log10(high)
            self.ticks = [t for t in grid if low <= t <= high]
            if len(self.ticks) > 8:
                self.ticks = [t for t in self.ticks if f"{t:e}"[0] == "1"]
        else:
            step = 10.0 ** math.floor(math.log10(most))
            while most / step < 4:
                step /= 2
            self.low, self.high = 0, math.ceil(most * 1.05 / step) * step
            self.ticks = [i * step for i in range(round(self.high / step) + 1)]

    def y(self, value):
        if self.log:
            value = math.log10(max(value, 10**self.low))
        share = (value - self.low) / (self.high - self.low)
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)


class Plot:
    def __init__(self, title, y_label, categories, x_label, axis, legend=()):
        self.height = HEIGHT + LEGEND_LINE * len(legend)
        self.parts = []
        self.categories = categories
        self.axis = axis
        self.title = title
        self.step = (WIDTH - LEFT - RIGHT) / max(1, len(categories))
        self.frame(title, y_label, x_label)
        self.legend(legend)

    def add(self, tag, text=None, **attributes):
        attributes = {("class" if k == "cls" else k.replace("_", "-")): v
                      for k, v in attributes.items()}
        said = "".join(f' {k}="{v:.1f}"' if isinstance(v, float) else f' {k}="{html.escape(str(v))}"'
                       for k, v in attributes.items())
        self.parts.append(f"<{tag}{said}>{text or ''}</{tag}>")

    def text(self, x, y, words, cls, **more):
        self.add("text", html.escape(words), x=float(x), y=float(y), cls=cls, **more)

    def frame(self, title, y_label, x_label):
        self.text(LEFT, 14, title, "title")
        for tick in self.axis.ticks:
            y = self.axis.y(tick)
            self.add("line", x1=float(LEFT), x2=float(WIDTH - RIGHT), y1=y, y2=y, cls="grid")
            self.text(LEFT - 6, y + 4, f"{tick:g}", "tick end")
        middle = (TOP + HEIGHT - BOTTOM) / 2
        self.text(13, middle, y_label, "label middle", transform=f"rotate(-90 13 {middle:.1f})")
        for i, category in enumerate(self.categories):
            self.text(self.centre(i), HEIGHT - BOTTOM + 16, str(category), "tick middle")
        self.text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, x_label, "label middle")

    def legend(self, entries):
        for i, (name, colour, dash) in enumerate(entries):
            y = HEIGHT + LEGEND_LINE * i + 8.0
            if dash is None:
                self.add("rect", x=float(LEFT), y=y - 6, width=14.0, height=10.0,
                         cls=f"fill {colour}")
            else:
                self.add("line", x1=float(LEFT - 6), x2=float(LEFT + 16), y1=y, y2=y,
                         cls=f"curve {colour} {dash}")
            self.text(LEFT + 22, y + 4, name, "tick")

    def centre(self, i):
        return LEFT + self.step * (i + 0.5)

    def whisker(self, x, spread):
        if spread.least == spread.most:
            return
        low, high = self.axis.y(spread.least), self.axis.y(spread.most)
        self.add("path", d=f"M{x:.1f} {low:.1f}V{high:.1f}M{x - 3:.1f} {low:.1f}h6"
                           f"M{x - 3:.1f} {high:.1f}h6", cls="whisker")

    def tip(self, name, category, spread):
        return f"<title>{html.escape(f'{name}, {category}: {spread_text(spread)}')}</title>"

    def done(self):
        return (f'<svg viewBox="0 0 {WIDTH} {self.height}" role="img" '
                f'aria-label="{html.escape(self.title)}">{"".join(self.parts)}</svg>')


def axis_of(series, log):
    spreads = [s for one in series for s in one.values if s is not None]
    return Axis([s.most for s in spreads] + [s.least for s in spreads], log)


def lines(title, y_label, categories, x_label, series, log=False):
    plot = Plot(title, y_label, categories, x_label, axis_of(series, log),
                [(s.name, s.colour, s.dash) for s in series])
    for one in series:
        points = [(plot.centre(i), s, c)
                  for i, (s, c) in enumerate(zip(one.values, categories)) if s is not None]
        path = " ".join(f"{x:.1f},{plot.axis.y(s.median):.1f}" for x, s, _ in points)
        if len(points) > 1:
            plot.add("polyline", points=path, cls=f"curve {one.colour} {one.dash}")
        for x, spread, category in points:
            plot.whisker(x, spread)
            plot.add("circle", plot.tip(one.name, category, spread), cx=float(x),
                     cy=plot.axis.y(spread.median), r=3.5, cls=f"fill {one.colour}")
    return plot.done()


def bars(title, y_label, categories, x_label, series, log=False):
    plot = Plot(title, y_label, categories, x_label, axis_of(series, log),
                [(s.name, s.colour, None) for s in series] if len(series) > 1 else ())
    width = plot.step * 0.8 / max(1, len(series))
    base = float(HEIGHT - BOTTOM)
    for k, one in enumerate(series):
        for i, (spread, category) in enumerate(zip(one.values, categories)):
            if spread is None:
                continue
            x = plot.centre(i) + width * (k - len(series) / 2)
            y = plot.axis.y(spread.median)
            plot.add("rect", plot.tip(one.name, category, spread), x=x + 0.5, y=y,
                     width=max(1.0, width - 1), height=max(0.0, base - y), cls=f"fill {one.colour}")
            plot.whisker(x + width / 2, spread)
    return plot.done()


def stacked(title, y_label, categories, x_label, series):
    """Parts on top of each other, medians alone; the tables have the spreads."""
    sums = [sum(s.values[i].median for s in series if s.values[i] is not None)
            for i in range(len(categories))]
    plot = Plot(title, y_label, categories, x_label, Axis(sums, False),
                [(s.name, s.colour, None) for s in series])
    for i, category in enumerate(categories):
        below = 0.0
        for one in series:
            spread = one.values[i]
            if spread is None:
                continue
            top, bottom = plot.axis.y(below + spread.median), plot.axis.y(below)
            plot.add("rect", plot.tip(one.name, category, spread),
                     x=plot.centre(i) - plot.step * 0.3, y=top, width=plot.step * 0.6,
                     height=bottom - top, cls=f"fill {one.colour}")
            below += spread.median
    return plot.done()
