"""Runs alloc_bench as a child and keeps what it said.

Round by round every command of every figure is run once, so that what drifts (clock rate, neighbours)
meets all of them. The raw file is written anew after each run: what is there can be drawn at any time.
"""

import json
import os
import shlex
import subprocess
import sys
import time


# Settings of tenuto that only some builds of alloc_bench can change. A figure that asks for one that
# is missing goes without that command, and the page says so.
SWITCHES = ("--stripes", "--morph-occupancy", "--book-dead-factor", "--book-heap-ppm",
            "--book-chunks-least")


class Stopped(Exception):
    """A run that cannot go on; its exit code."""


def command_text(argv):
    return shlex.join(["build/release/bench/alloc_bench", *argv])


def switches_of(program):
    """The settings of tenuto that this alloc_bench can change."""
    listed = subprocess.run([program, "--list"], stdout=subprocess.PIPE, text=True, check=True).stdout
    return {word for line in listed.splitlines() for word in line.split()[:1] if word[:2] == "--"}


def run_once(program, argv, directory, run):
    command = [program, *argv, "--rounds", "1", "--dir", directory, "--json", "-"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          check=False)
    run["seconds"] = round(time.time() - run.pop("started"), 3)
    run["rows"] = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    run["failed"] = [line for line in done.stderr.splitlines() if line.startswith("FAILED")]
    if done.returncode not in (0, 1) or (done.returncode == 1 and not run["failed"]):
        sys.stderr.write(done.stderr)
        raise Stopped(f"{shlex.join(command)} ended with exit code {done.returncode}")


def measure(program, figures, setup, raw_file):
    """All commands of the figures, `setup.rounds` times. Returns what was written to raw_file."""
    raw = {"directory": setup.directory, "quick": setup.quick, "rounds": setup.rounds,
           "started": time.strftime("%Y-%m-%d %H:%M"), "left_out": [], "runs": []}
    known = switches_of(program)
    commands = []
    for figure in figures:
        for argv in figure.commands(setup):
            unknown = [a for a in argv if a in SWITCHES and a not in known]
            if unknown:
                raw["left_out"].append({"figure": figure.number, "argv": argv, "unknown": unknown})
            else:
                commands.append((figure.number, argv))
    raw["planned"] = len(commands) * setup.rounds
    for round_number in range(1, setup.rounds + 1):
        for at, (figure, argv) in enumerate(commands, start=1):
            print(f"round {round_number}/{setup.rounds}, {at}/{len(commands)}: figure {figure}: "
                  f"{command_text(argv)}", file=sys.stderr)
            run = {"figure": figure, "round": round_number, "argv": argv, "started": time.time()}
            run_once(program, argv, setup.directory, run)
            raw["runs"].append(run)
            write_raw(raw, raw_file)
    return raw


def write_raw(raw, path):
    with open(path + ".part", "w", encoding="utf-8") as f:
        json.dump(raw, f, separators=(",", ":"))
        f.write("\n")
    os.replace(path + ".part", path)


def read_raw(path):
    with open(path, encoding="utf-8") as f:
        raw = json.load(f)
    if not isinstance(raw, dict) or not isinstance(raw.get("runs"), list):
        raise ValueError(f"{path} is no raw file of this program")
    return raw
