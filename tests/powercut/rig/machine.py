"""A virtual machine whose power can be cut, and its disk, which then forgets what was not flushed.

The processor is emulated: a /dev/kvm that can be opened is not yet one that works, and a machine
that runs the same everywhere is worth more here than a fast one.
"""

import os
import re
import subprocess
import time

from rig import kernel
from rig.disk import ends_with_parent

# Who sends what through the second serial port: tests/powercut/story.h, and E from here.
INIT = """#!/bin/sh
export PATH=/bin
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs dev /dev
for m in @MODULES@; do insmod /lib/modules/$m.ko 2>/dev/null; done
. /order
n=0
while [ ! -b "$DEVICE" ] && [ $n -lt 500 ]; do sleep 0.02; n=$((n + 1)); done
if ! mount -t ext4 $MOUNT $DEVICE /disk; then
  dmesg | tail -n 20
  echo "E the disk cannot be mounted" >/dev/ttyS1
  sleep 100000
fi
while :; do
  rm -f /tmp/killed_itself
  powercut_life /disk /dev/ttyS1 /story $SEED $MEDIUM $PLANT
  status=$?
  [ $status = 0 ] || { [ $status = 137 ] && [ -e /tmp/killed_itself ]; } || break
done
dmesg | tail -n 5
echo "E powercut_life ended with status $status" >/dev/ttyS1
sleep 100000
"""


class Finding(Exception):
    """Something is wrong with what a cut left."""


class Silent(Finding):
    """The machine stopped, or said nothing for too long."""


class Machine:
    """One disk and the boots on it. `folder` gets all files."""

    def __init__(self, folder, the_kernel, disk, life, seed, plant=None):
        self.folder, self.kernel, self.disk = folder, the_kernel, disk
        self._order = f"{disk.order} SEED={seed} PLANT={plant or ''}\n"
        self._first_files = kernel.first_files(the_kernel, [life], INIT)
        self._qemu = None
        self._read = 0
        self._lines = []

    def path(self, name):
        return os.path.join(self.folder, name)

    def new_disk(self):
        """An empty file system, and nothing told of it."""
        self.disk.make()
        with open(self.path("story"), "wb"):
            pass

    # --- power on and off ------------------------------------------------------------------------

    def boot(self, loss, disk_seed):
        """Power on; `loss` is what its end will do to the disk."""
        order = kernel.Archive()
        order.put("order", self._order.encode())
        order.copy(self.path("story"), "story", 0o644)
        with open(self.path("initrd"), "wb") as f:
            f.write(self._first_files + order.bytes())
        for name in ("port", "console"):
            with open(self.path(name), "wb"):
                pass
        self._read, self._lines = 0, []
        options = self.disk.start(loss, disk_seed)
        with open(self.path("qemu.err"), "wb") as err:
            self._qemu = subprocess.Popen(
                [kernel.tool("qemu-system-x86_64"), *kernel.MACHINE, *options,
                 "-serial", "file:" + self.path("console"), "-serial", "file:" + self.path("port"),
                 "-kernel", self.kernel.image, "-initrd", self.path("initrd"),
                 "-append", kernel.PARAMETERS],
                stdin=subprocess.DEVNULL, stderr=err, preexec_fn=ends_with_parent)

    def cut(self):
        """Power off; what the disk says of it. What was told until now is in the story."""
        alive = self._qemu.poll() is None
        self._power_off()
        did = self.disk.settle()
        with open(self.path("story"), "a", encoding="ascii") as f:
            f.writelines(line + "\n" for line in self.lines() if line[:1] in ("L", "A"))
        if not alive:
            raise Finding("the machine was off before its power was cut")
        return did

    def _power_off(self):
        if self._qemu is not None:
            self._qemu.kill()
            self._qemu.wait()
            self._qemu = None

    def stop(self):
        """No process stays."""
        self._power_off()
        self.disk.stop()

    # --- what it tells ---------------------------------------------------------------------------

    def lines(self):
        """All whole lines that came out of it since it was switched on."""
        with open(self.path("port"), "rb") as f:
            f.seek(self._read)
            new = f.read()
        end = new.rfind(b"\n") + 1
        self._read += end
        self._lines += [line.decode("ascii", "replace").rstrip("\r")
                        for line in new[:end].splitlines()]
        return self._lines

    def told(self, kind):
        return [line for line in self.lines() if line.startswith(kind + " ")]

    def wait_for(self, happened, seconds, what):
        """Until then; what the guest finds wrong meanwhile is a finding, and so is its end."""
        def look():
            for line in self.told("W") + self.told("E"):
                self._lines = []  # said once
                raise Finding(line[2:])
            if self._qemu.poll() is not None:
                raise Silent("the machine stopped by itself: " + self.last_words())
            return happened()
        self._until(look, seconds, what)

    def _until(self, happened, seconds, what):
        end = time.monotonic() + seconds
        while not happened():
            if time.monotonic() > end:
                raise Silent(f"waited {seconds} s for {what}; " + self.last_words())
            time.sleep(0.002)

    def last_words(self):
        words = []
        for name in ("console", "qemu.err"):
            if os.path.exists(self.path(name)):
                with open(self.path(name), encoding="ascii", errors="replace") as f:
                    words += [re.sub(r"[^ -~]", "", line) for line in f.read().splitlines()[-6:]]
        return " | ".join(words)
