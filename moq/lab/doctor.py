"""What this machine has of what a lab needs, what is missing, and the command that gets it."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict, dataclass
from typing import Final

from moq.errors import ConfigError
from moq.lab import image, native, router, system

NATIVE: Final = "native"
VM: Final = "vm"
BACKENDS: Final = (NATIVE, VM)

EVERYWHERE: Final = {"ip": "iproute2", "tc": "iproute2", "unshare": "util-linux"}
FOR_THE_ROUTER: Final = {
    router.QEMU: "qemu-system-x86",
    "cpio": "cpio",
    "busybox": "busybox-static",
    "ldd": "libc-bin",
}
"""Programs, and the Debian packages that have them."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing a lab needs."""

    name: str
    is_there: bool
    detail: str
    """What was found, or what to do."""
    package: str | None = None
    """Of Debian, where it is a program that is missing."""


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that was looked at."""

    findings: tuple[Finding, ...]
    backend: str | None
    """What a run would use; None if it would not work."""

    @property
    def packages(self) -> list[str]:
        """What to install."""
        return sorted({finding.package for finding in self.findings if finding.package and not finding.is_there})

    @property
    def remedy(self) -> str:
        """What to do about all that is missing, in one line."""
        missing = [finding for finding in self.findings if not finding.is_there and not finding.package]
        steps = [f"{finding.name}: {finding.detail}" for finding in missing]
        if self.packages:
            steps.append(apt_command(self.packages))
        return "; ".join(steps)

    def to_dict(self) -> dict[str, object]:
        """As JSON has it."""
        return {**asdict(self), "packages": self.packages}


def apt_command(packages: list[str]) -> str:
    """How to install packages."""
    return f"apt-get install --no-install-recommends {' '.join(packages)}"


def examine(backend: str | None = None) -> Report:
    """Look at everything that a run needs, with one of the networks or whichever works."""
    common = [_rights(), *_programs(EVERYWHERE)]
    if all(finding.is_there for finding in common):
        common.append(_namespaces())
    can_start = all(finding.is_there for finding in common)
    netem = _netem(can_start)
    if backend == NATIVE or (backend is None and netem.is_there):
        return Report((*common, netem), NATIVE if can_start and netem.is_there else None)
    needed = (*_machine(), *_programs(FOR_THE_ROUTER), _tun(), _kernel())
    works = can_start and all(finding.is_there for finding in needed)
    if backend == VM:
        return Report((*common, *needed), VM if works else None)
    # Without netem the router takes its place: then its absence is nothing to do something about.
    noted = Finding("netem", True, "not in this kernel; the router VM has it") if works else netem
    return Report((*common, noted, *needed), VM if works else None)


def choose(backend: str | None) -> str:
    """The network a run uses.

    Raises:
        ConfigError: none works; the message says what to do.
    """
    report = examine(backend)
    if report.backend is None:
        raise ConfigError(f"the lab cannot be opened: {report.remedy} (`moq lab doctor` has the details)")
    return report.backend


def _rights() -> Finding:
    is_root = os.geteuid() == 0
    return Finding("root", is_root, "yes" if is_root else "namespaces and netem need root; use sudo")


def _namespaces() -> Finding:
    """Root in a container may have no right to make any."""
    is_allowed = system.succeeds(["unshare", "--net", "true"])
    return Finding(
        "namespaces", is_allowed, "yes" if is_allowed else "root may make none here; a container needs --privileged"
    )


def _programs(programs: dict[str, str]) -> list[Finding]:
    found = {name: system.find(name) for name in programs}
    return [
        Finding(name, path is not None, path or f"in the Debian package {programs[name]}", programs[name])
        for name, path in found.items()
    ]


def _netem(can_try: bool) -> Finding:
    if can_try and native.is_available():
        return Finding("netem", True, f"in this kernel, {platform.release()}")
    return Finding("netem", False, "this kernel has none (modprobe sch_netem); the router VM does without")


def _machine() -> list[Finding]:
    machine = platform.machine()
    is_usual = machine == "x86_64"
    return [Finding("processor", is_usual, machine if is_usual else f"{machine}; the router VM is for x86_64")]


def _tun() -> Finding:
    is_there = os.path.exists(router.TUN)
    return Finding(router.TUN, is_there, "yes" if is_there else "modprobe tun")


def _kernel() -> Finding:
    cached = image.find_kernel(image.cache_dir())
    if cached is not None:
        return Finding("router's kernel", True, str(cached))
    if system.find("apt-get") is None or system.find("dpkg") is None:
        how = f"no apt here to fetch it; unpack Debian's {image.META_PACKAGE} into {image.cache_dir() / 'kernel'}"
        return Finding("router's kernel", False, how)
    package = image.kernel_package()
    if package is not None:
        return Finding("router's kernel", True, f"{package}: fetched by the first run, and not installed")
    return Finding("router's kernel", False, f"apt knows no {image.META_PACKAGE}; apt-get update")
