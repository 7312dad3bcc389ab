"""The native network: where the kernel has netem, a third namespace with a bridge stands in the middle.

    client namespace ── eth0 ═ veth ═ client ─ bridge ─ server ═ veth ═ eth0 ── server namespace
                                    netem down  (router namespace)  netem up

The middle is a namespace of its own so that netem never sits on a sender's device: there a lost packet would be
reported to TCP, which sends it again at once, as no network lets it.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import platform
import socket
import struct
from typing import TYPE_CHECKING, Final

from moq.errors import LabError
from moq.lab import namespaces, system

if TYPE_CHECKING:
    from collections.abc import Sequence

    from moq.lab.namespaces import End

BRIDGE: Final = "br0"

SIOCETHTOOL: Final = 0x8946
OFFLOADS: Final = (0x17, 0x19, 0x1F, 0x24, 0x2C)
"""ETHTOOL_STXCSUM, _SSG, _STSO, _SGSO, _SGRO: with them off no packet is longer than the MTU, and one loss is one."""


def is_available() -> bool:
    """Whether this kernel has netem and lets us use it: tried, in a namespace that ends with the attempt."""
    return system.succeeds(["unshare", "--net", "tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"])


class Native:
    """A network of this kernel alone."""

    name: Final = "native"

    def __init__(self, client: End, server: End) -> None:
        self._ends = (client, server)
        self._middle = namespaces.name_of(namespaces.ROUTER, client.pid)

    def build(self) -> None:
        """Make the middle and a cable to each end."""
        namespaces.add(self._middle)
        system.run(["ip", "-n", self._middle, "link", "add", BRIDGE, "type", "bridge", "forward_delay", "0"])
        client, server = self._ends
        for end, other in ((client, server), (server, client)):
            self._connect(end)
            namespaces.configure(end, other)
        system.run(["ip", "-n", self._middle, "link", "set", BRIDGE, "up"])

    def _connect(self, end: End) -> None:
        cable = ["ip", "-n", self._middle, "link", "add", end.role, "type", "veth"]
        system.run([*cable, "peer", "name", namespaces.DEVICE, "address", end.mac, "netns", end.namespace])
        system.run(["ip", "-n", self._middle, "link", "set", end.role, "addrgenmode", "none"])
        system.run(["ip", "-n", self._middle, "link", "set", end.role, "master", BRIDGE, "up"])
        namespaces.inside(self._middle, lambda: _turn_offloads_off(end.role))
        namespaces.inside(end.namespace, lambda: _turn_offloads_off(namespaces.DEVICE))

    def tc(self, commands: Sequence[Sequence[str]]) -> str:
        """In the namespace in the middle."""
        lines = "".join(f"{' '.join(command)}\n" for command in commands)
        return system.run(["tc", "-n", self._middle, "-statistics", "-json", "-batch", "-"], stdin=lines)

    def describe(self) -> dict[str, str]:
        """The kernel and tc."""
        return {"kernel": platform.release(), "tc": system.run(["tc", "-V"]).strip()}

    def close(self) -> None:
        """The cables go with the middle."""
        with contextlib.suppress(OSError):
            namespaces.remove(self._middle)


def _turn_offloads_off(device: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for command in OFFLOADS:
            value = array.array("B", struct.pack("II", command, 0))
            request = struct.pack("16sP16x", device.encode(), value.buffer_info()[0])
            try:
                fcntl.ioctl(control, SIOCETHTOOL, request)
            except OSError as error:
                said = os.strerror(error.errno or 0)
                raise LabError(f"{device}: cannot turn offload {command:#x} off: {said}") from error
