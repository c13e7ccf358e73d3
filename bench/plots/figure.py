"""What a figure is, and what several of them share."""

from collections import namedtuple

from plots import verdict
from plots.samples import ns_per_op, ratio
from plots.svg import Series, spread_text

def nothing(_):
    return []


# number: the paper's. claim: its words in ours. here: what differs. commands(setup): argument lists
# for alloc_bench. draw(samples): Drawn. compare(samples): with other allocators; worth(samples): with
# and without a part of the design; both are lists of Comparison.
Figure = namedtuple("Figure", "number title claim here commands draw compare worth",
                    defaults=(nothing, nothing))
Setup = namedtuple("Setup", "rounds quick threads scale objects directory")

# By engine and variant; the same on every figure.
COLOURS = {"tenuto": "c0", "pmdk": "c1", "pmdk-tx": "c3", "mimalloc": "c2", "jemalloc": "c4",
           "glibc": "c6"}
SPEED = "million operations a second"
COUNTS = ("lines_per_op", "fences_per_op", "reflushes_per_op")
COUNT_HEAD = ("lines", "fences", "reflushes")
SPEED_HEAD = ("Mops/s", "ns an operation")


def arguments(setup, **options):
    """alloc_bench's: dest="a" becomes --dest a, apart=True becomes --apart."""
    given = []
    for name, value in options.items():
        option = "--" + name.replace("_", "-")
        if value is True:
            given.append(option)
        elif isinstance(value, (list, tuple)):
            given += [option, ",".join(str(v) for v in value)]
        else:
            given += [option, str(value)]
    return given + (["--quick"] if setup.quick else ["--scale", str(setup.scale)])


def name_of(sample):
    """As alloc_bench calls the allocator: tenuto-gc."""
    return "-".join(filter(None, (sample.get("engine"), sample.get("variant"))))


def medium_text(sample):
    medium = sample.get("medium")
    if medium is None:
        return "DRAM"
    return "model with delays" if sample.get("delays") else medium


def threads_list(threads):
    return "1 thread" if threads == 1 else f"{threads} threads"


def note_of(samples):
    """Rounds and commit of these samples; None among them: not measured."""
    return " or ".join(dict.fromkeys(s.note() for s in samples if s))


def series_of(name, colour, samples, field, dash=""):
    """One figure of each of these samples; None: not measured."""
    return Series(name, colour, [s.spread(field) if s else None for s in samples], note_of(samples), dash)


def beside(topic, what, field, mine, others, more_is_better=False):
    """[Comparison] of a sample with the best of others, a dict of samples or None."""
    if mine is None:
        return []
    others = {name: s for name, s in others.items() if s is not None}
    return verdict.with_best(topic, what, mine.spread(field), {n: s.spread(field) for n, s in others.items()},
                             more_is_better, {n: ratio(mine, s, field) for n, s in others.items()})


def count_rows(samples, names):
    """Lines, fences and reflushes of each sample, exact."""
    return [[*names(s), *(spread_text(s.spread(f)) for f in COUNTS)] for s in samples
            if s.spread(COUNTS[0]) is not None]


def speed_rows(samples, names):
    return [[*names(s), spread_text(s.spread("mops")), spread_text(s.spread(ns_per_op))]
            for s in samples]


