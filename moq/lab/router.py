"""The router VM: a small Linux with real netem between two TAP devices, where this kernel has none.

    client namespace ── eth0 ═ TAP ═ QEMU: client ─ bridge ─ server ═ TAP ═ eth0 ── server namespace
                                       netem down     netem up

The ends run natively; only packets cross the VM. It is emulated in software on purpose: virtualization by hardware may
be missing or may hang inside another virtual machine, and the rates of a lab do not need it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import struct
import subprocess
import time
from typing import TYPE_CHECKING, Final

from moq.errors import LabError
from moq.lab import image, namespaces, system
from moq.lab.console import Console

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from moq.lab.namespaces import End

TUNSETIFF: Final = 0x400454CA
IFF_TAP: Final = 0x0002
IFF_NO_PI: Final = 0x1000
"""IFF_VNET_HDR stays out: with it TCP crosses in packets of 64 kB, and one loss takes all of it."""

TUN: Final = "/dev/net/tun"

TAP_PACKETS: Final = 2000
"""Wait for QEMU when it is held up for a moment: losses are netem's business alone."""

QEMU: Final = "qemu-system-x86_64"
MEMORY: Final = "192M"
BOOT_TIMEOUT_S: Final = 90.0
STOP_TIMEOUT_S: Final = 5.0


class RouterVM:
    """A network through QEMU."""

    name: Final = "router-vm"

    def __init__(self, client: End, server: End, progress: Callable[[str], None]) -> None:
        self._ends = (client, server)
        self._progress = progress
        self._taps: list[int] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._console: Console | None = None

    def build(self) -> None:
        """Open the TAPs inside the namespaces, boot, and wait until the bridge stands."""
        made = image.prepare(self._progress)
        client, server = self._ends
        for end, other in ((client, server), (server, client)):
            self._taps.append(namespaces.inside(end.namespace, _open_tap))
            link = ["ip", "-n", end.namespace, "link", "set", "dev", namespaces.DEVICE]
            system.run([*link, "address", end.mac, "txqueuelen", str(TAP_PACKETS)])
            namespaces.configure(end, other)
        self._progress("booting the router")
        began = time.monotonic()
        self._process = subprocess.Popen(
            self._command(made),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=self._taps,
            start_new_session=True,  # Ctrl-C is for the command; the router lasts until that has ended
            preexec_fn=system.dying_with_us(is_urgent=True),  # a network waits for none of those who use it
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._console = Console(self._process.stdin.fileno(), self._process.stdout.fileno())
        complaints = [line for line in self._console.wait_for(image.READY, BOOT_TIMEOUT_S) if "cannot load" in line]
        if complaints:
            raise LabError(f"the router has booted without its modules: {'; '.join(complaints)}")
        self._progress(f"the router is up after {time.monotonic() - began:.1f} s")

    def _command(self, made: image.Image) -> list[str]:
        program = system.find(QEMU)
        if program is None:
            raise LabError(f"{QEMU} is not installed; `moq lab doctor` says what to install")
        command = [program, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]
        command += ["-machine", "pc", "-accel", "tcg", "-cpu", "max", "-smp", "1", "-m", MEMORY]
        command += ["-kernel", str(made.kernel), "-initrd", str(made.initramfs)]
        command += ["-append", "console=ttyS0 quiet panic=-1", "-serial", "stdio", "-monitor", "none"]
        for number, (tap, end) in enumerate(zip(self._taps, self._ends, strict=True)):
            command += ["-netdev", f"tap,id=n{number},fd={tap}"]
            command += ["-device", f"virtio-net-pci,netdev=n{number},romfile=,mac={_router_mac(end)}"]
        return command

    def tc(self, commands: Sequence[Sequence[str]]) -> str:
        """Over the console, in one process: starting one takes the emulated processor 50 ms."""
        # By its path: busybox's shell prefers its own applet named tc, which knows no netem.
        lines = " ".join(shlex.quote(shlex.join(command)) for command in commands)
        return self._ask(f"printf '%s\\n' {lines} | /sbin/tc -statistics -json -batch -")

    def _ask(self, command: str) -> str:
        if self._console is None:
            raise LabError("the router has not been started")
        return self._console.ask(command)

    def describe(self) -> dict[str, str]:
        """QEMU and the kernel inside."""
        return {
            "qemu": system.run([QEMU, "--version"]).splitlines()[0],
            "kernel": self._ask("uname -r"),
            "tc": self._ask("/sbin/tc -V"),
        }

    def close(self) -> None:
        """Kill QEMU: it has nothing to lose. The TAPs go with their descriptors."""
        if self._process is not None:
            self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_TIMEOUT_S)
            for stream in (self._process.stdin, self._process.stdout):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()
            self._process = None
        while self._taps:
            os.close(self._taps.pop())


def _open_tap() -> int:
    """A TAP in the namespace of the calling thread; it lasts as long as its descriptor."""
    tap = os.open(TUN, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH22x", namespaces.DEVICE.encode(), IFF_TAP | IFF_NO_PI))
        os.set_blocking(tap, False)
    except OSError as error:
        os.close(tap)
        raise LabError(f"{TUN}: cannot open a TAP device: {error.strerror}") from error
    return tap


def _router_mac(end: End) -> str:
    return end.mac.replace("02:00:00:00:02", "02:00:00:00:ff")
