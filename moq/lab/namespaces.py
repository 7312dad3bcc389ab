"""The two ends of the lab: network namespaces named after this process, sockets inside of them, and who lives there."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import socket
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from moq.errors import LabError
from moq.lab import system

if TYPE_CHECKING:
    from collections.abc import Callable

RUN_NETNS: Final = Path("/run/netns")
"""Where iproute2 keeps the names."""

NAME: Final = re.compile(r"moq-lab-(\d+)-(client|server|router)")
CLONE_NEWNET: Final = 0x40000000

CLIENT: Final = "client"
SERVER: Final = "server"
ROUTER: Final = "router"

DEVICE: Final = "eth0"
"""Of each end, the one that leads to the other."""

PREFIX_BITS: Final = 24

PATIENCE_S: Final = 3.0
"""What is left running in a namespace may take this long to end by itself."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class End:
    """One end of the path. The addresses are of the range for documentation, so they can be nobody else's."""

    role: str
    address: str
    mac: str
    pid: int

    @property
    def namespace(self) -> str:
        """The name of its namespace."""
        return name_of(self.role, self.pid)


def ends(pid: int | None = None) -> tuple[End, End]:
    """Client and server of this process."""
    owner = os.getpid() if pid is None else pid
    return (
        End(CLIENT, "192.0.2.1", "02:00:00:00:02:01", owner),
        End(SERVER, "192.0.2.2", "02:00:00:00:02:02", owner),
    )


def name_of(role: str, pid: int) -> str:
    """The name of a namespace."""
    return f"moq-lab-{pid}-{role}"


def add(name: str) -> None:
    """Make a namespace with its loopback up."""
    system.run(["ip", "netns", "add", name])
    system.run(["ip", "-n", name, "link", "set", "lo", "up"])


def configure(end: End, other: End) -> None:
    """Give an end its address. Neighbours are told, not asked for: a question that is lost takes a second."""
    commands = [
        f"link set dev {DEVICE} addrgenmode none",
        f"link set dev {DEVICE} mtu 1500",
        f"link set dev {DEVICE} up",
        f"address add {end.address}/{PREFIX_BITS} dev {DEVICE}",
        f"neighbour replace {other.address} lladdr {other.mac} dev {DEVICE} nud permanent",
    ]
    system.run(["ip", "-n", end.namespace, "-batch", "-"], stdin="\n".join(commands) + "\n")


def remove(name: str) -> None:
    """End whoever still lives in a namespace, and take it away; one that is not there is fine."""
    if not (RUN_NETNS / name).exists():
        return
    end_processes(name)
    with contextlib.suppress(LabError):
        system.run(["ip", "netns", "delete", name])


def end_processes(name: str) -> None:
    """Terminate the processes of a namespace, and kill those that do not mind."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + PATIENCE_S
        for pid in _processes(name):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        while _processes(name):
            if time.monotonic() > deadline:
                break
            time.sleep(0.02)
        else:
            return


def _processes(name: str) -> list[int]:
    try:
        return [int(pid) for pid in system.run(["ip", "netns", "pids", name]).split() if int(pid) != os.getpid()]
    except LabError:
        return []


def inside(name: str, call: Callable[[], T]) -> T:
    """Call something in a namespace: what it opens stays there, this process does not.

    A thread of its own enters the namespace and ends, so there is no way back that could fail.
    """
    outcome: list[T] = []
    failure: list[BaseException] = []

    def enter() -> None:
        try:
            _set_namespace(name)
            outcome.append(call())
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=enter, name=f"inside {name}")
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return outcome[0]


def _set_namespace(name: str) -> None:
    with (RUN_NETNS / name).open() as namespace:
        if system.LIBC.setns(namespace.fileno(), CLONE_NEWNET):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), str(RUN_NETNS / name))


def udp_socket(end: End, buffer_bytes: int) -> socket.socket:
    """A UDP socket at one end, on a free port."""

    def open_socket() -> socket.socket:
        opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        for option in (SO_RCVBUFFORCE, SO_SNDBUFFORCE):
            opened.setsockopt(socket.SOL_SOCKET, option, buffer_bytes)
        opened.bind((end.address, 0))
        return opened

    return inside(end.namespace, open_socket)


SO_SNDBUFFORCE: Final = 32
SO_RCVBUFFORCE: Final = 33
"""Root may have larger buffers than others; the module `socket` does not know the names."""
