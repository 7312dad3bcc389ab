"""What the router boots: Debian's kernel for clouds, fetched and never installed, and an initramfs of this machine.

    CACHE/kernel/               what the kernel's package has: boot/vmlinuz-*, lib/modules/*
    CACHE/initramfs-<digest>    busybox, tc with its libraries, nine modules and `init`: about 4 MB

The cache is `$XDG_CACHE_HOME/moq/lab`. Both parts appear whole or not at all.
"""

from __future__ import annotations

import fcntl
import hashlib
import lzma
import os
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from moq.errors import LabError
from moq.lab import system

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Progress = Callable[[str], None]

META_PACKAGE: Final = "linux-image-cloud-amd64"
DOWNLOAD_TIMEOUT_S: Final = 300.0

MODULES: Final = (
    *("virtio_ring", "virtio", "virtio_pci_modern_dev", "virtio_pci_legacy_dev", "virtio_pci"),
    *("failover", "net_failover", "virtio_net", "llc", "stp", "bridge", "sch_netem"),
)
"""In the order in which they need each other."""

TC_TABLES: Final = ("/usr/lib/tc", "/usr/lib/x86_64-linux-gnu/tc", "/usr/share/tc")
"""Where distributions keep netem's tables of delays."""

READY: Final = "moq-lab ready"
PROMPT: Final = "moq-lab answer"

INIT: Final = f"""#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/sbin:/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
stty -F /dev/console -echo -onlcr
for module in /modules/*.ko; do insmod $module || echo "cannot load $module"; done
ip link set eth0 name client
ip link set eth1 name server
brctl addbr br0
for device in client server; do
    ip link set $device mtu 1500 up
    brctl addif br0 $device
done
ip link set br0 up
echo "{READY}"
while read -r number command; do
    said=$(eval "$command" 2>&1)
    code=$?
    echo "$said"
    echo "{PROMPT} $number $code"
done
poweroff -f
"""
"""Bridges the two ends, then does what the console says: a number and a command. The bridge has no spanning tree, so it
forwards at once."""


@dataclass(frozen=True, slots=True)
class Image:
    """Two files that QEMU boots."""

    kernel: Path
    initramfs: Path


def cache_dir() -> Path:
    """Where what was fetched stays."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "moq" / "lab"


def find_kernel(cache: Path) -> Path | None:
    """The kernel in the cache."""
    return next(iter(sorted((cache / "kernel" / "boot").glob("vmlinuz-*"))), None)


def prepare(progress: Progress) -> Image:
    """The image, made or fetched if it is not there yet.

    Raises:
        LabError: it cannot be; the message says what is missing.
    """
    cache = cache_dir()
    cache.mkdir(parents=True, exist_ok=True)
    with _lock(cache / "lock"):
        kernel = find_kernel(cache) or _fetch_kernel(cache, progress)
        return Image(kernel, _initramfs(cache, progress))


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Two labs that start at once fetch one kernel."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def kernel_package() -> str | None:
    """The package with the kernel itself, as far as apt's lists know it."""
    try:
        depends = system.run(["apt-cache", "depends", META_PACKAGE])
    except LabError:
        return None
    names = (line.partition("Depends:")[2].strip() for line in depends.splitlines())
    return next((name for name in names if name.startswith("linux-image-")), None)


def _fetch_kernel(cache: Path, progress: Progress) -> Path:
    package = kernel_package()
    if package is None:
        progress("asking apt for its lists of packages")
        system.run(["apt-get", "update", "-qq"], timeout_s=DOWNLOAD_TIMEOUT_S)
        package = kernel_package()
    if package is None:
        raise LabError(f"apt knows no package {META_PACKAGE}; its kernel boots the router (Debian has it)")
    progress(f"fetching {package}, once, to {cache}")
    with tempfile.TemporaryDirectory(prefix="fetching-", dir=cache) as name:
        directory = Path(name)
        _download(package, directory)
        archive = next(iter(directory.glob("*.deb")))
        system.run(["dpkg", "-x", str(archive), str(directory / "kernel")], timeout_s=DOWNLOAD_TIMEOUT_S)
        shutil.rmtree(cache / "kernel", ignore_errors=True)
        (directory / "kernel").rename(cache / "kernel")
    kernel = find_kernel(cache)
    if kernel is None:
        raise LabError(f"{package} has no boot/vmlinuz-*")
    return kernel


def _download(package: str, directory: Path) -> None:
    command = ["apt-get", "download", "-qq", "-o", "APT::Sandbox::User=root", package]
    try:
        subprocess.run(command, cwd=directory, check=True, capture_output=True, text=True, timeout=DOWNLOAD_TIMEOUT_S)
    except subprocess.CalledProcessError as error:
        said = " ".join(error.stderr.split())
        raise LabError(f"`{' '.join(command)}` failed ({said}); try `apt-get update`, then again") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LabError(f"`{' '.join(command)}` failed: {error}") from error


def _initramfs(cache: Path, progress: Progress) -> Path:
    """The archive for the tools of this machine and the kernel of the cache; older ones go."""
    busybox, tc = _program("busybox"), _program("tc")
    modules = _module_files(cache / "kernel")
    digest = hashlib.sha256(INIT.encode())
    for path in (busybox, tc, *modules):
        status = path.stat()
        digest.update(f"{path} {status.st_size} {status.st_mtime_ns}\n".encode())
    target = cache / f"initramfs-{digest.hexdigest()[:16]}"
    if not target.exists():
        progress("making the router's initramfs")
        for old in cache.glob("initramfs-*"):
            old.unlink()
        with tempfile.TemporaryDirectory(prefix="making-", dir=cache) as name:
            root = Path(name) / "root"
            _populate(root, busybox, tc, modules)
            made = Path(name) / "initramfs"
            made.write_bytes(_archive(root))
            made.rename(target)
    return target


def _program(name: str) -> Path:
    found = system.find(name)
    if found is None:
        raise LabError(f"{name} is not installed; `moq lab doctor` says what to install")
    return Path(found).resolve()


def _module_files(kernel: Path) -> list[Path]:
    """The files of the modules, without those the kernel has built in."""
    root = next(iter(sorted((kernel / "lib" / "modules").glob("*")))) if (kernel / "lib" / "modules").is_dir() else None
    if root is None:
        raise LabError(f"{kernel} has no modules; remove it to have it fetched again")
    by_name = {path.name.partition(".ko")[0].replace("-", "_"): path for path in root.rglob("*.ko*")}
    built_in = {Path(line).stem.replace("-", "_") for line in (root / "modules.builtin").read_text().split()}
    missing = [name for name in MODULES if name not in by_name and name not in built_in]
    if missing:
        raise LabError(f"the kernel in {kernel} has no module {', '.join(missing)}")
    return [by_name[name] for name in MODULES if name in by_name]


def _populate(root: Path, busybox: Path, tc: Path, modules: list[Path]) -> None:
    for name in ("bin", "sbin", "dev", "proc", "sys", "modules"):
        (root / name).mkdir(parents=True)
    shutil.copy(busybox, root / "bin" / "busybox")
    shutil.copy(tc, root / "sbin" / "tc")
    for library in {*_libraries(busybox), *_libraries(tc)}:
        _copy_to(root, library)
    for directory in map(Path, TC_TABLES):
        if directory.is_dir():
            shutil.copytree(directory, root / directory.relative_to("/"))
    for number, module in enumerate(modules):
        data = module.read_bytes()
        if module.suffix == ".xz":
            data = lzma.decompress(data)
        (root / "modules" / f"{number:02}-{module.name.partition('.ko')[0]}.ko").write_bytes(data)
    init = root / "init"
    init.write_text(INIT)
    init.chmod(0o755)


def _libraries(program: Path) -> list[Path]:
    """What the dynamic linker would load, itself included; of a static program nothing."""
    try:
        words = system.run(["ldd", str(program)]).split()
    except LabError:
        return []
    return [Path(word) for word in words if word.startswith("/")]


def _copy_to(root: Path, path: Path) -> None:
    target = root / path.relative_to("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(path, target)


def _archive(root: Path) -> bytes:
    names = "\n".join(str(path.relative_to(root)) for path in sorted(root.rglob("*")))
    done = subprocess.run(
        [str(_program("cpio")), "--create", "--format=newc", "--quiet", "--owner=0:0"],
        input=f".\n{names}\n".encode(),
        cwd=root,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        raise LabError(f"cpio failed: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout
