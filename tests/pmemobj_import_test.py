"""A pool of libpmemobj is imported, and read through the drop-in.

usage: pmemobj_import_test.py PROGRAM IMPORTER DROP_IN

PROGRAM is tests/pmemobj_import_program.c, linked to libpmemobj.
"""
import os
import subprocess
import sys
import tempfile


def main():
    program, importer, drop_in = sys.argv[1:]
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="tenuto-test-import-") as folder:
        old, new = os.path.join(folder, "old"), os.path.join(folder, "new")
        ours = dict(os.environ, LD_PRELOAD=drop_in)

        def run(*words, env=None, code=0):
            done = subprocess.run(words, env=env, capture_output=True, text=True)
            assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
            return done.stdout + done.stderr

        run(program, "make", old)
        before = open(old, "rb").read()
        assert "import-pmemobj" in run(program, "check", old, env=ours, code=1)
        # A node's text is at byte 24 as an OID, and at byte 56 as a bare offset.
        words = [importer, "--library", drop_in, "--offset", "5:56", old]
        print(run(*words, new), end="")
        run(program, "check", new, env=ours)
        assert sorted(os.listdir(folder)) == ["new", "old"]
        assert "is there already" in run(*words, new, code=1)
        small = run(importer, "--library", drop_in, "--size", "4096", old, new + "2", code=1)
        assert "PMEMOBJ_MIN_POOL" in small, small
        assert "usage" in run(importer, old, code=2)
        assert "without LD_PRELOAD" in run(*words, new + "3", env=ours, code=1)
        run(program, "check", old)  # it was read alone
        assert len(before) == os.path.getsize(old)


main()
