"""A random program has the same results over libpmemobj and over the drop-in.

usage: pmemobj_same_test.py PROGRAM DROP_IN

PROGRAM is tests/pmemobj_random_program.c, linked to libpmemobj. TENUTO_SEED repeats a run.
"""
import os
import random
import subprocess
import sys
import tempfile

RUNS, STEPS = 8, 500


def main():
    program, drop_in = sys.argv[1:]
    first = os.environ.get("TENUTO_SEED") or os.environ.get("TENUTO_FRESH_SEED")
    first = int(first, 0) if first else random.SystemRandom().getrandbits(32)
    print(f"TENUTO_SEED={first}")
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="tenuto-test-same-") as folder:
        for seed in range(first, first + RUNS):
            words = [program, os.path.join(folder, "pool"), str(seed), str(STEPS)]
            lines = []
            for preload in ("", drop_in):
                done = subprocess.run(words, env=dict(os.environ, LD_PRELOAD=preload),
                                      capture_output=True, text=True)
                if done.returncode != 0:
                    print(f"seed {seed}: {preload or 'libpmemobj'}: {done.returncode}", done.stderr)
                    return 1
                lines.append(done.stdout.splitlines())
            for theirs, ours in zip(*lines):
                if theirs != ours:
                    print(f"seed {seed}\nlibpmemobj: {theirs}\ndrop-in:    {ours}")
                    return 1
            if len(lines[0]) != STEPS + 1 or len(lines[1]) != STEPS + 1:
                print(f"seed {seed}: {len(lines[0])} and {len(lines[1])} lines")
                return 1
    return 0


sys.exit(main())
