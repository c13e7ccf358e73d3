"""What was measured: rows of alloc_bench's JSON, gathered over the rounds.

A sample is one contestant in one setting; its rows are those of the rounds. Medians are taken here,
with least and most; a ratio is taken round by round between neighbours in time.
"""

import statistics
from collections import namedtuple

from plots import page

Spread = namedtuple("Spread", "median least most")

# What tells samples apart; everything else in a row is settings or figures.
KEY = ("case", "engine", "variant", "medium", "delays", "threads", "objects", "destinations_apart",
       "verify", "two_phase", "simulated", "wear_levelling", "stripes", "morph_occupancy", "book_dead_factor",
       "book_heap_ppm", "book_chunks_least")


def spread_of(values):
    return Spread(statistics.median(values), min(values), max(values))


class Sample:
    def __init__(self, key):
        self.key = key
        self.by_round = {}

    def get(self, name):
        return self.key.get(name)

    def note(self):
        """How often it was measured, and of which commit."""
        versions = dict.fromkeys(page.version_of(row) for row in self.by_round.values())
        return f"{page.counted(len(self.by_round), 'round')}, {page.listed(versions, 'or')}"

    def value(self, round_number, field):
        """One round's figure: a field, or a function of the row. None: not measured."""
        row = self.by_round.get(round_number)
        if row is None:
            return None
        value = field(row) if callable(field) else row.get(field)
        return value["median"] if isinstance(value, dict) else value

    def spread(self, field):
        values = [self.value(r, field) for r in sorted(self.by_round)]
        values = [v for v in values if v is not None]
        return spread_of(values) if values else None


def ratio(mine, theirs, field="mops"):
    """Of mine over theirs, pairs of the same round; None where nothing pairs up."""
    pairs = [(mine.value(r, field), theirs.value(r, field)) for r in mine.by_round]
    values = [a / b for a, b in pairs if a is not None and b]
    return spread_of(values) if values else None


class Samples:
    """All samples of one figure."""

    def __init__(self, runs):
        self.samples = {}
        for run in runs:
            for row in run["rows"]:
                key = {name: row[name] for name in KEY if name in row}
                at = tuple(key.items())
                self.samples.setdefault(at, Sample(key)).by_round[run["round"]] = row

    def all(self, **wanted):
        """Those with these values; None: without such a field."""
        return [s for s in self.samples.values()
                if all(s.get(name) == value for name, value in wanted.items())]

    def one(self, **wanted):
        found = self.all(**wanted)
        return found[0] if found else None

    def values(self, name, **wanted):
        """The different values of a field, in the order they were measured."""
        return list(dict.fromkeys(s.get(name) for s in self.all(**wanted)))


def ns_per_op(row):
    """Of all threads together: half as long when two threads do twice as much."""
    mops = row["mops"]["median"]
    return 1e3 / mops if mops > 0 else None
