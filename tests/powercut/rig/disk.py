"""What keeps its contents when the power goes: a disk that forgets what was not flushed, or memory
that forgets nothing. Each makes its image, says how QEMU and the guest find it, and what a cut did.
"""

import ctypes
import json
import os
import shutil
import signal
import subprocess
import time

from rig import kernel

BYTES = 128 << 20


class Broken(Exception):
    """The rig itself does not work."""


def ends_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def make_file_system(path, offset=0):
    blocks = f"{(BYTES - offset) >> 10}k"
    # With checksums ext4 refuses to mount when a cut tears the last commit block of its own journal
    # (4 KiB, of which the first sector counts): "journal transaction N is corrupt".
    done = subprocess.run([kernel.tool("mkfs.ext4"), "-q", "-F", "-b", "4096", "-O",
                           "^metadata_csum", "-E", f"offset={offset}", path, blocks],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Broken("mkfs.ext4: " + done.stderr)


class Disk:
    """A block device whose write cache is lost (vdisk.cc)."""

    order = "DEVICE=/dev/vda MOUNT= MEDIUM=journal"

    def __init__(self, folder, program):
        self.image = os.path.join(folder, "disk.img")
        self._out = os.path.join(folder, "vdisk.out")
        self._program, self._process = program, None

    def make(self):
        with open(self.image, "wb") as f:
            f.truncate(BYTES)
        make_file_system(self.image)

    def start(self, loss, seed):
        """Options of QEMU."""
        # A socket's name must be short; the folder's may be long.
        socket = f"/tmp/powercut-{os.getpid()}.socket"
        with open(self._out, "wb") as out:
            self._process = subprocess.Popen(
                [self._program, socket, self.image, loss, str(seed)], stdin=subprocess.DEVNULL,
                stdout=out, preexec_fn=ends_with_parent)
        end = time.monotonic() + 20
        while os.path.getsize(self._out) == 0:
            if self._process.poll() is not None or time.monotonic() > end:
                raise Broken("powercut_vdisk does not start")
            time.sleep(0.005)
        return ["-drive", f"if=none,id=disk,driver=nbd,server.type=unix,server.path={socket}",
                "-device", "virtio-blk-pci,drive=disk,write-cache=on,discard=off,write-zeroes=off"]

    def stop_at_work(self, seconds):
        """Lets it fall silent while something is unflushed, if there is such a moment so soon."""
        self._process.send_signal(signal.SIGUSR1)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with open(self._out, "rb") as f:
                if b"stopped" in f.read():
                    return
            time.sleep(0.002)

    def settle(self):
        """After the cut: what it did."""
        self._process.wait(timeout=60)
        self._process = None
        with open(self._out, encoding="ascii") as f:
            told = f.read().splitlines()[-1]
        if not told.startswith("{"):
            raise Broken("powercut_vdisk failed")
        return json.loads(told)

    def stop(self):
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


# A namespace of an NVDIMM is raw at first, and cannot be mapped past the page cache. ndctl would
# make it fsdax; the kernel does it by these files, and writes its mark into the image.
TO_FSDAX = """#!/bin/sh
export PATH=/bin
mount -t sysfs sysfs /sys
for m in @MODULES@; do insmod /lib/modules/$m.ko 2>/dev/null; done
cd /sys/bus/nd/devices
echo namespace0.0 > /sys/bus/nd/drivers/nd_pmem/unbind
echo ram > pfn0.0/mode && echo 2097152 > pfn0.0/align &&
  echo 0b8a6d2e-6c55-4b0e-9d54-6f1f2a3b4c5d > pfn0.0/uuid &&
  echo namespace0.0 > pfn0.0/namespace && echo pfn0.0 > /sys/bus/nd/drivers/nd_pmem/bind
busybox reboot -f
"""


class Memory:
    """An NVDIMM in a file of the host, whose page cache outlives QEMU: as a processor whose caches
    persist. What was stored is there after the cut, flushed or not."""

    order = "DEVICE=/dev/pmem0 MOUNT='-o dax=always' MEDIUM=line"
    _MARK_BYTES = 2 << 20

    def __init__(self, folder, the_kernel):
        self.image = os.path.join(folder, "disk.img")
        self._kernel = the_kernel

    def make(self):
        raw = os.path.join(os.path.dirname(self._kernel.image), "fsdax.img")
        if not os.path.exists(raw):
            self._make_namespace(raw)
        shutil.copyfile(raw, self.image)
        make_file_system(self.image, self._MARK_BYTES)

    def _make_namespace(self, path):
        with open(path + ".new", "wb") as f:
            f.truncate(BYTES)
        with open(path + ".initrd", "wb") as f:
            f.write(kernel.first_files(self._kernel, (), TO_FSDAX))
        subprocess.run([kernel.tool("qemu-system-x86_64"), *kernel.MACHINE,
                        *self._options(path + ".new"), "-kernel", self._kernel.image, "-initrd",
                        path + ".initrd", "-append", kernel.PARAMETERS],
                       stdin=subprocess.DEVNULL, timeout=300, check=True,
                       preexec_fn=ends_with_parent)
        os.remove(path + ".initrd")
        with open(path + ".new", "rb") as f:
            if b"NVDIMM_PFN_INFO" not in f.read(self._MARK_BYTES):
                raise Broken("the kernel did not make an fsdax namespace")
        os.rename(path + ".new", path)

    @staticmethod
    def _options(path):
        return ["-machine", "nvdimm=on,nvdimm-persistence=mem-ctrl", "-object",
                f"memory-backend-file,id=memory,mem-path={path},share=on,size={BYTES},align=2M",
                "-device", "nvdimm,id=nvdimm,memdev=memory"]

    def stop_at_work(self, seconds):
        pass

    def start(self, _loss, _seed):
        return self._options(self.image)

    def settle(self):
        return {"writes": 0, "sectors": 0, "flushes": 0, "unflushed": 0, "lost": 0}

    def stop(self):
        pass
