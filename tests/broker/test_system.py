"""`$SYS`: the broker's figures as retained topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from moq.broker.system import SystemTopics

if TYPE_CHECKING:
    from tests.broker.desk import Desk


def figures(desk: Desk, filter_: str = "$SYS/#") -> dict[str, bytes]:
    client = desk.connect("reader")
    client.subscribe(filter_)
    return {message.topic.removeprefix("$SYS/broker/"): message.payload for message in client.messages()}


def test_the_figures_are_retained_topics(desk: Desk) -> None:
    SystemTopics(desk.broker, "1.2.3", 10, desk.now)
    found = figures(desk)
    assert found["version"] == b"1.2.3"
    assert found["clients/connected"] == b"0"
    assert "totals/messages_received" in found


def test_a_figure_is_published_when_it_has_changed(desk: Desk) -> None:
    SystemTopics(desk.broker, "1.2.3", 10, desk.now)
    client = desk.connect("alice")
    client.subscribe("$SYS/broker/clients/+")
    client.subscribe("$SYS/broker/version")
    assert sorted(client.payloads()) == [b"0", b"1.2.3"]
    desk.advance(10)
    assert client.payloads() == [b"1"]
    desk.advance(10)
    assert client.payloads() == []


def test_a_leading_wildcard_does_not_see_them(desk: Desk) -> None:
    SystemTopics(desk.broker, "1.2.3", 10, desk.now)
    assert figures(desk, "#") == {}
    assert figures(desk, "+/broker/version") == {}
