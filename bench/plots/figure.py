"""What a figure is, and what several of them share."""

from collections import namedtuple

from plots.samples import ns_per_op
from plots.svg import spread_text

# number: the paper's. claim: its words in ours. here: what differs. commands(setup): argument lists
# for alloc_bench. draw(samples): Drawn.
Figure = namedtuple("Figure", "number title claim here commands draw")
Setup = namedtuple("Setup", "rounds quick threads scale objects directory")

COLOURS = {"tenuto": "c0", "pmdk": "c1", "pmdk-tx": "c3", "mimalloc": "c2", "jemalloc": "c4",
           "glibc": "c6"}


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


def medium_text(sample):
    medium = sample.get("medium")
    if medium is None:
        return "DRAM"
    return "model with delays" if sample.get("delays") else medium


def threads_list(threads):
    return "1 thread" if threads == 1 else f"{threads} threads"


def count_rows(samples, names):
    """Lines, fences and reflushes of each sample, exact."""
    return [[*names(s), *(spread_text(s.spread(f)) for f in COUNTS)] for s in samples
            if s.spread(COUNTS[0]) is not None]


def speed_rows(samples, names):
    return [[*names(s), spread_text(s.spread("mops")), spread_text(s.spread(ns_per_op))]
            for s in samples]


