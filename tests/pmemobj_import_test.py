"""A pool of libpmemobj is imported, and read through the drop-in.

usage: pmemobj_import_test.py PROGRAM IMPORTER DROP_IN

PROGRAM is tests/pmemobj_import_program.c, linked to libpmemobj.
"""
import os
import resource
import signal
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
        assert "is there already" in run(*words, new, code=3)
        small = run(importer, "--library", drop_in, "--size", "4096", old, new + "2", code=8)
        assert "PMEMOBJ_MIN_POOL" in small, small
        assert "usage" in run(importer, old, code=2)
        assert "without LD_PRELOAD" in run(*words, new + "3", env=ours, code=2)
        for wrong in ["x", "64MM", "-1", "0", "", "99999999999999999999", "99999999999G"]:
            run(importer, "--size", wrong, old, new + "4", code=2)
        for wrong in ["5", "5:", ":8", "5:zz", "5:4", "5:8 ", "-5:8"]:
            run(importer, "--offset", wrong, old, new + "5", code=2)
        assert "No such file" in run(*words[:-1], old + "x", new + "6", code=1)
        run(*words[:-1], new, new + "7", code=10)  # no pool of libpmemobj
        assert sorted(os.listdir(folder)) == ["new", "old"]

        # An offset that no object has is told, before the new pool has its name.
        plain = [importer, "--library", drop_in]
        for wrong in ["9:0", "5:4096", "root:4096"]:
            said = run(*plain, "--offset", wrong, old, new + "14", code=2)
            assert wrong + ": no such object" in said, said
        said = run(*plain, "--offset", "5:0", "--offset", "root:8", old, new + "14")
        assert "199 OIDs or offsets lead to no object" in said, said  # the numbers but for 0
        os.unlink(new + "14")

        # A damaged pool, a set of files, and little memory: a message, and nothing is left.
        size_of_text = before.index(b"node 7\0") - 16
        damaged = bytearray(before)
        damaged[size_of_text + 4] = 1  # 4 GiB more
        open(old + "15", "wb").write(damaged)
        assert "damaged" in run(*plain, old + "15", new + "15", code=9)
        os.unlink(old + "15")
        open(old + "16", "w").write("PMEMPOOLSET\n8M /dev/shm/nothing\n")
        assert "--size" in run(*plain, old + "16", new + "16", code=2)
        os.unlink(old + "16")
        for mib in range(20, 200, 5):
            limit = mib << 20
            done = subprocess.run([*plain, old, new + "17"], capture_output=True, text=True,
                                  preexec_fn=lambda: resource.setrlimit(
                                      resource.RLIMIT_AS, (limit, limit)))
            assert done.returncode >= 0 and (done.returncode == 0 or done.stderr), (mib, done)
            if done.returncode == 0:
                os.unlink(new + "17")
            assert sorted(os.listdir(folder)) == ["new", "old"], (mib, os.listdir(folder))

        # Files of others stay, and with a foreign journal the new pool could not be opened.
        for name in ["8.import", "8.import.journal", "9.journal"]:
            open(new + name, "w").write(name)
        run(*words, new + "8")
        run(program, "check", new + "8", env=ours)
        assert "9.journal is there already" in run(*words, new + "9", code=3)
        for name in ["8.import", "8.import.journal", "9.journal"]:
            assert open(new + name).read() == name
            os.unlink(new + name)
        os.unlink(new + "8")

        # A summary that cannot be written is told; the pool is complete.
        with open("/dev/full", "w") as full:
            done = subprocess.run([*words, new + "10"], stdout=full, stderr=subprocess.PIPE)
            assert done.returncode == 8, done
        run(program, "check", new + "10", env=ours)
        os.unlink(new + "10")

        # On medium journal; the journal of the unfinished pool goes with its name.
        journalled = dict(os.environ, TENUTO_PMEMOBJ_MEDIUM="journal")
        run(*words, new + "13", env=journalled)
        assert sorted(os.listdir(folder)) == ["new", "new13", "old"]
        run(program, "check", new + "13", env=dict(ours, TENUTO_PMEMOBJ_MEDIUM="journal"))
        for name in [new + "13", new + "13.journal"]:
            os.unlink(name)

        # What does not become a pool leaves nothing; of several at once, one wins.
        for i in range(20):
            one = subprocess.Popen([*words, new + "11"], stdout=subprocess.DEVNULL)
            try:
                one.wait(timeout=i * 0.002)
            except subprocess.TimeoutExpired:
                one.send_signal(signal.SIGTERM)
            assert one.wait() in (0, 14, -signal.SIGTERM), one.returncode
            left = sorted(os.listdir(folder))
            assert left in (["new", "old"], ["new", "new11", "old"]), left
            if "new11" in left:
                run(program, "check", new + "11", env=ours)
                os.unlink(new + "11")
        olds = [old]
        for i in range(2):
            olds.append(old + str(i))
            run(program, "make", olds[-1])
        for _ in range(5):
            several = [subprocess.Popen([*words[:-1], o, new + "12"], stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL) for o in olds]
            codes = sorted(p.wait() for p in several)
            assert codes == [0, 3, 3], codes
            run(program, "check", new + "12", env=ours)
            os.unlink(new + "12")
        assert sorted(os.listdir(folder)) == ["new", "old", "old0", "old1"]
        run(program, "check", old)  # it was read alone
        assert len(before) == os.path.getsize(old)


main()
