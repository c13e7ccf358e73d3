"""Who is ahead at what: computed from the figures, and told at the head of a page.

A difference counts when no round contradicts it. Figures without a spread (one round, percentiles of
all rounds together) must differ by more than a tenth.
"""

from collections import namedtuple

from plots import page
from plots.samples import Spread
from plots.svg import short, spread_text

# topic: what is compared, with its unit. mine, theirs: medians. ratio: of mine over theirs.
Comparison = namedtuple("Comparison", "topic what mine other theirs ratio more_is_better")

NOISE = 1.1
AHEAD, EVEN, BEHIND = "ahead", "no clear difference", "behind"


def ratio_of(mine, theirs):
    """Where rounds cannot be paired: as wide as the two spreads allow."""
    if not (theirs.median and theirs.least and theirs.most):
        return None
    return Spread(mine.median / theirs.median, mine.least / theirs.most, mine.most / theirs.least)


def standing(c):
    low, high = c.ratio.least, c.ratio.most
    if low == high:
        low, high = low / NOISE, high * NOISE
    if low > 1:
        return AHEAD if c.more_is_better else BEHIND
    if high < 1:
        return BEHIND if c.more_is_better else AHEAD
    return EVEN


def with_best(topic, what, mine, others, more_is_better, ratios=None):
    """[Comparison] with the best of others, a dict of spreads; [] when there is none to compare with.

    ratios: round by round, by name; what is not in it is computed from the spreads.
    """
    others = {name: s for name, s in others.items() if s is not None and s.median > 0}
    if mine is None or not others:
        return []
    best = (max if more_is_better else min)(others, key=lambda name: others[name].median)
    ratio = (ratios or {}).get(best) or ratio_of(mine, others[best])
    if ratio is None:
        return []
    return [Comparison(topic, what, mine.median, best, others[best].median, ratio, more_is_better)]


def group(words, comparisons):
    """One line a topic, so that a reader sees the whole list."""
    topics = {}
    for c in comparisons:
        topics.setdefault((c.topic, c.more_is_better), []).append(
            f"{c.what} {short(c.mine)}, {c.other} {short(c.theirs)} (×\u00a0{short(c.ratio.median)})")
    items = "".join(f"<li><b>{page.escaped(topic)}{'' if more else ', less is better'}:</b> "
                    f"{page.escaped('; '.join(lines))}</li>\n" for (topic, more), lines in topics.items())
    return f"<h3>{page.escaped(words)}</h3><ul>{items}</ul>" if items else ""


def told(comparisons, opening, behind, ahead):
    """What is behind first, in lists, then a table with spreads. opening: whose figures these are."""
    by = {AHEAD: [], EVEN: [], BEHIND: []}
    for c in comparisons:
        by[standing(c)].append(c)
    rows = [(c.topic, c.what, short(c.mine), c.other, short(c.theirs), spread_text(c.ratio), standing(c))
            for c in comparisons]
    return "\n".join((
        page.paragraph(f"{opening}: ahead in {len(by[AHEAD])} of "
                       f"{page.counted(len(comparisons), 'comparison')}, behind in {len(by[BEHIND])}, no clear difference in {len(by[EVEN])}. Each line has "
                       "Tenuto's figure, the other's, and in brackets the first divided by the second."),
        group(behind, by[BEHIND]), group(ahead, by[AHEAD]), group("No clear difference", by[EVEN]),
        page.details("All comparisons with their spreads", page.table(
            "Ratio of the two, round by round where rounds pair up; median (least..most)",
            ("measure", "at", "tenuto", "other", "its figure", "ratio", "tenuto is"), rows))))


RULE = ("A difference counts when no round contradicts it. Where a figure has no spread, it must be "
        "more than a tenth.")
