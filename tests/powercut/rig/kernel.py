"""What the virtual machine boots: Debian's cloud kernel, unpacked and never installed, and a file
system in memory with busybox, a few modules, and the program under test.
"""

import glob
import os
import re
import shutil
import stat
import subprocess
import tempfile

# In the order in which they need each other: the package has no modules.dep.
DISK_MODULES = ("virtio/virtio_ring", "virtio/virtio", "virtio/virtio_pci_legacy_dev",
                "virtio/virtio_pci_modern_dev", "virtio/virtio_pci", "block/virtio_blk")
MEMORY_MODULES = ("nvdimm/libnvdimm", "nvdimm/nd_btt", "acpi/nfit/nfit", "nvdimm/nd_pmem")
TOOLS = {"qemu-system-x86_64": "qemu-system-x86", "busybox": "busybox-static",
         "mkfs.ext4": "e2fsprogs", "xz": "xz-utils", "lz4": "lz4", "ldd": "libc-bin",
         "dpkg-deb": "dpkg", "apt-get": "apt", "strip": "binutils"}
COMPRESSIONS = ((b"\x02\x21\x4c\x18", ("lz4", "-dc")), (b"\xfd7zXZ\0", ("xz", "-dc")))
APPLETS = ("sh", "mount", "insmod", "echo", "sleep", "rm", "cat", "dmesg", "tail", "umount")
# The machine whatever its processors and memory are, the one whose power is cut, and how the kernel
# is to start quickly.
BOARD = ("-M", "q35", "-accel", "tcg", "-nodefaults", "-no-user-config", "-display", "none",
         "-no-reboot")
MACHINE = (*BOARD, "-cpu", "max", "-smp", "2", "-m", "256M,slots=2,maxmem=2G")
PARAMETERS = ("console=ttyS0 quiet panic=1 mitigations=off nokaslr tsc=reliable no_timer_check "
              "random.trust_cpu=on")


class Unavailable(Exception):
    """The machine cannot be had here; says why and what to do."""


def tool(name):
    path = shutil.which(name, path=os.environ.get("PATH", "") + ":/sbin:/usr/sbin")
    if path is None:
        raise Unavailable(f"{name} is not there; the package is {TOOLS[name]} (tools/setup)")
    return path


def output_of(*command, **more):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          check=False, **more)
    if done.returncode != 0:
        told = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise Unavailable(f"{' '.join(command)} failed: {told[-1] if told else 'no reason given'}")
    return done.stdout


class Kernel:
    """The kernel in `folder`, fetched and unpacked when it is not there."""

    def __init__(self, folder):
        for name in TOOLS:
            tool(name)
        self.image = os.path.join(folder, "vmlinux")
        self.modules = os.path.join(folder, "modules")
        if not os.path.exists(self.image):
            os.makedirs(folder, exist_ok=True)
            self._fetch(folder)

    def _fetch(self, folder):
        depends = output_of("apt-cache", "depends", "linux-image-cloud-amd64")
        package = re.search(r"Depends: (linux-image-\d\S+)", depends)
        if package is None:
            raise Unavailable("apt knows no linux-image-cloud-amd64; apt-get update helps")
        unpacked = os.path.join(folder, "package")
        shutil.rmtree(unpacked, ignore_errors=True)
        os.makedirs(unpacked)
        output_of("apt-get", "download", "-q", package[1], cwd=unpacked)
        (deb,) = glob.glob(os.path.join(unpacked, "*.deb"))
        output_of("dpkg-deb", "-x", deb, unpacked)
        (modules,) = glob.glob(os.path.join(unpacked, "lib/modules/*/kernel/drivers"))
        shutil.rmtree(self.modules, ignore_errors=True)
        os.makedirs(self.modules)
        for name in DISK_MODULES + MEMORY_MODULES:
            there = os.path.join(modules, name + ".ko")
            if os.path.exists(there):  # or it is part of the kernel itself
                output_of("strip", "--strip-debug", "-o",
                          os.path.join(self.modules, os.path.basename(there)), there)
        (compressed,) = glob.glob(os.path.join(unpacked, "boot/vmlinuz-*"))
        self._uncompress(compressed)
        shutil.rmtree(unpacked)

    def _uncompress(self, path):
        """QEMU starts the uncompressed kernel at once; emulated, unpacking takes seconds."""
        with open(path, "rb") as f:
            data = f.read()
        for magic, command in COMPRESSIONS:
            at = data.find(magic)
            while at >= 0:
                out = subprocess.run(command, input=data[at:], stdout=subprocess.PIPE,
                                     stderr=subprocess.DEVNULL, check=False).stdout
                if out.startswith(b"\x7fELF"):
                    with open(self.image + ".new", "wb") as f:
                        f.write(out)
                    os.rename(self.image + ".new", self.image)
                    return
                at = data.find(magic, at + 1)
        raise Unavailable(f"no kernel found inside {os.path.basename(path)}")


class Archive:
    """A cpio archive (newc), which is what a kernel takes for its first file system. Several, one
    after the other in one file, are one."""

    def __init__(self):
        self._parts, self._folders, self._inode = [], set(), 0

    def _add(self, path, mode, data):
        self._inode += 1
        name = path.encode() + b"\0"
        fields = (self._inode, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name), 0)
        head = b"070701" + b"".join(b"%08x" % f for f in fields) + name
        self._parts += [head, b"\0" * (-len(head) % 4), data, b"\0" * (-len(data) % 4)]

    def folder(self, path):
        if path and path not in self._folders:
            self.folder(os.path.dirname(path))
            self._folders.add(path)
            self._add(path, stat.S_IFDIR | 0o755, b"")

    def put(self, path, data, mode=0o644):
        self.folder(os.path.dirname(path))
        self._add(path, stat.S_IFREG | mode, data)

    def copy(self, source, path, mode=0o755):
        with open(source, "rb") as f:
            self.put(path, f.read(), mode)

    def link(self, path, target):
        self.folder(os.path.dirname(path))
        self._add(path, stat.S_IFLNK | 0o777, target.encode())

    def bytes(self):
        self._add("TRAILER!!!", 0, b"")
        return b"".join(self._parts)


def first_files(kernel, programs, script):
    """The archive with which the machine starts `script`; programs bring their libraries along."""
    a = Archive()
    for name in ("proc", "sys", "dev", "disk", "tmp"):
        a.folder(name)
    a.copy(tool("busybox"), "bin/busybox")
    for name in APPLETS:
        a.link("bin/" + name, "busybox")
    loaded = []
    for name in map(os.path.basename, DISK_MODULES + MEMORY_MODULES):
        if os.path.exists(os.path.join(kernel.modules, name + ".ko")):
            a.copy(os.path.join(kernel.modules, name + ".ko"), f"lib/modules/{name}.ko")
            loaded.append(name)
    a.put("init", script.replace("@MODULES@", " ".join(loaded)).encode(), 0o755)
    libraries = set()
    for program in programs:
        libraries.update(re.findall(r"(/\S+) \(0x", output_of("ldd", program)))
        with tempfile.NamedTemporaryFile() as stripped:  # debug information is most of it
            output_of(tool("strip"), "-o", stripped.name, program)
            a.copy(stripped.name, "bin/" + os.path.basename(program))
    for library in sorted(libraries):
        a.copy(library, library.lstrip("/"))
    return a.bytes()
