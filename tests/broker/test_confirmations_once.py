"""QoS 3 delivers exactly once too, and every message is confirmed with its own reply, over the same histories as QoS 2.

The subscriber's program answers each message with a reply of its own, while connections break and the broker crashes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from moq.client.confirming import Wish
from tests.broker.test_exactly_once import ExactlyOnce, World

if TYPE_CHECKING:
    from moq.client.inbox import Inbox
    from moq.client.messages import Message


class ConfirmedWorld(World):
    """Every message waits for the subscriber, whose program takes its time over each and replies with what it got."""

    def __init__(self, *, has_lanes: bool) -> None:
        self.looked_at: dict[Inbox, Message] = {}
        super().__init__(has_lanes=has_lanes)

    def subscribe(self, filter_: str) -> Inbox:
        assert self.subscriber.core is not None
        return self.subscriber.core.subscribe(filter_, qos=3, replies=True)

    def publish(self, topic: str) -> None:
        assert self.publisher.core is not None
        payload = f"{topic} {len(self.published[topic])}".encode()
        self.published[topic].append(payload)
        self.exchanges.append(self.publisher.core.publish(topic, payload, wish=Wish(1)))

    def read(self) -> None:
        core = self.subscriber.core
        for inbox in self.inboxes:
            if core is not None and inbox not in self.looked_at and (message := core.take(inbox)) is not None:
                self.received[message.topic].append(message.payload)
                self.looked_at[inbox] = message

    def answer(self) -> None:
        assert self.subscriber.core is not None
        for message in self.looked_at.values():
            self.subscriber.core.reply(message, b"got " + message.payload)
        self.looked_at.clear()

    def settle(self) -> None:
        super().settle()
        while self.looked_at:
            self.answer()
            super().settle()


class ConfirmedOnce(ExactlyOnce):
    """Random histories of such a world."""

    world: ConfirmedWorld

    @initialize(has_lanes=st.booleans())
    def begin(self, has_lanes: bool) -> None:
        self.world = ConfirmedWorld(has_lanes=has_lanes)

    @rule()
    def the_program_answers(self) -> None:
        self.world.answer()

    def teardown(self) -> None:
        super().teardown()
        if hasattr(self, "world"):
            for exchange in self.world.exchanges:
                assert exchange.confirmations is not None
                told = [(item.client_id, item.reply) for item in exchange.confirmations]
                assert told == [("subscriber", b"got " + exchange.payload)]


ConfirmedOnce.TestCase.settings = ExactlyOnce.TestCase.settings
TestConfirmedOnce = pytest.mark.slow(ConfirmedOnce.TestCase)
