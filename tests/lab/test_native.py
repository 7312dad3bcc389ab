"""The native network: bridge, cables and offloads, built here also where the kernel has no netem."""

from __future__ import annotations

import contextlib
import os
import socket
from typing import TYPE_CHECKING

import pytest

from moq.lab import namespaces
from moq.lab.native import Native
from moq.lab.probes import Probes
from moq.lab.profiles import DIRECTIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from moq.lab.namespaces import End

pytestmark = pytest.mark.network

EVERY_PROTOCOL = socket.htons(3)


@pytest.fixture
def ends(can_open: None) -> Iterator[tuple[End, End]]:
    """Client and server, connected."""
    client, server = namespaces.ends()
    network = Native(client, server)
    try:
        for end in (client, server):
            namespaces.add(end.namespace)
        network.build()
        yield client, server
    finally:
        network.close()
        for end in (client, server):
            namespaces.remove(end.namespace)
    assert not list(namespaces.RUN_NETNS.glob(f"moq-lab-{os.getpid()}-*"))


def test_packets_pass_both_ways(ends: tuple[End, End]) -> None:
    with Probes(*ends) as probes:
        probes.wait_until_open(10)
        flows = probes.flood(DIRECTIONS, 100, 2000, 1514, 0.3)
    assert {direction: flow.lost for direction, flow in flows.items()} == {"up": 0, "down": 0}


def test_a_packet_of_tcp_is_never_longer_than_the_mtu(ends: tuple[End, End]) -> None:
    client, server = ends
    middle = namespaces.name_of(namespaces.ROUTER, os.getpid())
    watch = namespaces.inside(middle, lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, EVERY_PROTOCOL))
    listener = namespaces.inside(server.namespace, lambda: socket.create_server((server.address, 0)))
    with watch, listener:
        sender = namespaces.inside(client.namespace, lambda: socket.create_connection(listener.getsockname()))
        accepted, _ = listener.accept()
        with sender, accepted:
            sender.sendall(bytes(300_000))
            received = 0
            while received < 300_000:
                received += len(accepted.recv(65536))
        watch.setblocking(False)
        sizes = []
        with contextlib.suppress(BlockingIOError):
            while True:
                sizes.append(len(watch.recv(100_000)))
    assert 1000 < max(sizes) <= 1514
