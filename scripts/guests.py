"""Small virtual machines with the kernel's own RoCE (`rdma_rxe`), their network cards plugged into a switch. Python's standard library only.

A guest is Debian's kernel and an initramfs of what it needs: busybox, a few modules, `rdma`, libibverbs and the program that it runs. It is
emulated, so neither KVM nor root is needed, and takes some seconds to boot. Its network card is a pair of UDP ports of this host's loopback,
one datagram an Ethernet frame: whoever has the other end is its switch.
"""

from __future__ import annotations

import gzip
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import packages

ROOT = Path(__file__).resolve().parent.parent
#: What is made once and kept.
KEPT = ROOT / "target" / "guests"
PACKAGES = ("qemu-system-x86", "busybox-static", "cpio", "kmod", "iproute2", "ibverbs-providers", "libibverbs-dev", "gcc", "libc6-dev")
#: Modules of the kernel, with what they depend on. `rdma_rxe` asks for a CRC by its name only.
MODULES = ("virtio_pci", "virtio_net", "crc32_generic", "ib_uverbs", "rdma_rxe")
PROVIDER = "librxe-rdmav34.so"

#: What a guest does: its own part comes with the kernel's command line.
INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs dev /dev
for module in $(cat /modules.list); do insmod $module || echo "guest: insmod $module failed"; done
for word in $(cat /proc/cmdline); do case $word in fanin.*) export "${word#fanin.}";; esac; done
ip link set lo up; ip addr add $address/24 dev eth0; ip link set eth0 up
/usr/bin/rdma link add rxe0 type rxe netdev eth0 || echo "guest: no RoCE"
mkdir -p /dev/infiniband
for device in /sys/class/infiniband_verbs/uverbs*; do
    [ -e /dev/infiniband/${device##*/} ] || mknod /dev/infiniband/${device##*/} c $(tr : ' ' < $device/dev)
done
sleep 1
echo "guest: ready"
workers=
for words in $(echo "$arguments" | tr + ' '); do /worker $(echo "$words" | tr : ' ') & workers="$workers $!"; done
code=0
for worker in $workers; do wait $worker || code=$?; done
echo "guest: ended with $code"
for counter in /sys/class/infiniband/rxe0/ports/1/hw_counters/*; do echo "guest: counter ${counter##*/}=$(cat $counter)"; done
reboot -f
"""


def present() -> bool:
    """Whether all programs and libraries are installed."""
    programs = ("qemu-system-x86_64", "busybox", "cpio", "depmod", "rdma", "gcc")
    found = all(shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin") for name in programs)
    return found and Path("/usr/include/infiniband/verbs.h").exists() and provider() is not None


def provider() -> Path | None:
    """libibverbs' part for `rdma_rxe`."""
    return next(iter(Path("/usr/lib").glob(f"*/libibverbs/{PROVIDER}")), None)


def obstacle() -> str | None:
    """Why guests cannot be made here, or None if they can. Installs and downloads what it needs."""
    if os.uname().machine != "x86_64":
        return f"the guests are x86_64 and this machine is {os.uname().machine}"
    if reason := packages.missing(PACKAGES, present):
        return reason
    try:
        kernel()
    except (subprocess.CalledProcessError, StopIteration, OSError) as error:
        return f"Debian's kernel is not to be had: {error}"
    return None


def kernel() -> tuple[Path, Path]:
    """Debian's kernel, downloaded and unpacked but not installed: its image, and the folder of its modules."""
    unpacked = KEPT / "kernel"
    if not unpacked.exists():
        KEPT.mkdir(parents=True, exist_ok=True)
        depends = subprocess.run(["apt-cache", "depends", "linux-image-amd64"], capture_output=True, text=True, check=True).stdout
        package = next(iter(re.findall(r"Depends: (linux-image-\S+)", depends)))
        # As the user that we are: apt's own may not write to this folder, and apt would warn of that.
        command = ["apt-get", "download", "-qq", "-o", "APT::Sandbox::User=root", package]
        subprocess.run(command, cwd=KEPT, check=True, stdout=subprocess.DEVNULL)
        archive = next(KEPT.glob("linux-image-*.deb"))
        part = KEPT / "kernel.part"
        shutil.rmtree(part, ignore_errors=True)
        subprocess.run(["dpkg-deb", "-x", str(archive), str(part)], check=True)
        archive.unlink()
        version = next((part / "lib/modules").iterdir()).name
        subprocess.run(["/usr/sbin/depmod", "-b", str(part), version], check=True, stderr=subprocess.DEVNULL)
        part.rename(unpacked)
    modules = next((unpacked / "lib/modules").iterdir())
    return unpacked / f"boot/vmlinuz-{modules.name}", modules


def module_files(modules: Path) -> list[Path]:
    """The files of [`MODULES`] and of what they need, in the order in which they can be inserted."""
    needs = {}
    for line in (modules / "modules.dep").read_text().splitlines():
        name, _, rest = line.partition(":")
        needs[name] = rest.split()
    names = {Path(path).name.split(".")[0].replace("-", "_"): path for path in needs}
    ordered: list[str] = []
    for name in MODULES:
        path = names.get(name)
        # `modules.dep` names what is needed last first; what is not a module is part of the kernel.
        for file in [*reversed(needs[path]), path] if path else []:
            if file not in ordered:
                ordered.append(file)
    return [modules / path for path in ordered]


def libraries(programs: Sequence[Path]) -> set[Path]:
    """The shared libraries that these programs load."""
    found = set()
    for program in programs:
        said = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=True).stdout
        found.update(Path(path) for path in re.findall(r"(/\S+) \(0x", said))
    return found


def initramfs(worker: Path, into: Path) -> Path:
    """The guests' root file system with a program as `/worker`."""
    root = into / "root"
    for name in ("bin", "proc", "sys", "dev", "usr/bin", "etc/libibverbs.d", "modules"):
        (root / name).mkdir(parents=True)
    (root / "init").write_text(INIT)
    (root / "init").chmod(0o755)
    shutil.copy(str(shutil.which("busybox")), root / "bin/busybox")
    rdma = Path(str(shutil.which("rdma", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")))
    shutil.copy(rdma, root / "usr/bin/rdma")
    shutil.copy(worker, root / "worker")
    backend = provider()
    assert backend is not None, "`present` has looked"
    for library in libraries([rdma, worker, backend]) | {backend}:
        place = root / str(library).lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, place)
    (root / "etc/libibverbs.d/rxe.driver").write_text("driver rxe\n")
    names = []
    for file in module_files(kernel()[1]):
        shutil.copy(file, root / "modules" / file.name)
        names.append(f"/modules/{file.name}")
    (root / "modules.list").write_text("\n".join(names) + "\n")
    everything = subprocess.run(["find", ".", "-print0"], cwd=root, capture_output=True, check=True).stdout
    packed = subprocess.run(["cpio", "--null", "--create", "--format=newc", "--quiet"], cwd=root, input=everything, capture_output=True, check=True)
    image = into / "initramfs.gz"
    image.write_bytes(gzip.compress(packed.stdout, 1))
    return image


@dataclass(frozen=True)
class Guest:
    """One virtual machine."""

    number: int
    address: str
    #: Words for `/worker`; none may hold a colon, a plus or a space.
    arguments: Sequence[str]
    #: UDP ports of loopback: the guest's network card, and the switch's end of its cable.
    card_port: int
    switch_port: int
    #: The words of further workers on the same card, at once.
    more: Sequence[Sequence[str]] = ()

    def command(self, image: Path, root: Path) -> list[str]:
        """The emulator's command line; the guest's console is its standard output."""
        workers = "+".join(":".join(words) for words in (self.arguments, *self.more))
        own = f"address={self.address} arguments={workers}"
        words = " ".join(f"fanin.{word}" for word in own.split(" "))
        cable = (
            f"dgram,id=n0,local.type=inet,local.host=127.0.0.1,local.port={self.card_port}"
            f",remote.type=inet,remote.host=127.0.0.1,remote.port={self.switch_port}"
        )
        return [
            *("qemu-system-x86_64", "-machine", "q35,accel=tcg", "-cpu", "max", "-m", "256", "-smp", "1", "-no-reboot", "-nodefaults"),
            *("-display", "none", "-serial", "stdio", "-kernel", str(image), "-initrd", str(root)),
            *("-netdev", cable, "-device", f"virtio-net-pci,netdev=n0,mac=52:54:00:0f:a1:{self.number + 1:02x},romfile="),
            # `no_timer_check`: a kernel that boots while its emulator does not get a processor misses ticks of its timer, and would panic ("IO-APIC
            # + timer doesn't work").
            *("-append", f"no_timer_check console=ttyS0 panic=-1 quiet loglevel=3 mitigations=off random.trust_cpu=on {words}"),
        ]
