"""E-MQTT's experiment: how soon a publisher knows that its subscribers have a message, and what that takes.

    plain          QoS 2; every subscriber publishes a response at QoS 2 on a second topic, the last one counts
    asynchronous   QoS 3 with confirm = 0: the broker passes the first subscriber's answer on
    synchronous    QoS 3 with confirm = n: one answer, once all n subscribers have answered

The three take turns, query by query, on the same connections: a busy moment of the machine hits all of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import statistics
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from moq import wire
from moq.bench.brokers import ready_line, started
from moq.bench.papers import published
from moq.bench.papers.exchanges import (
    ALIASES,
    ANSWERED,
    CONFIRMED,
    PAYLOAD,
    RESPONSE,
    Conversation,
    Publisher,
    Subscriber,
)
from moq.bench.papers.metered import SETTLE_S, running_broker
from moq.bench.papers.tapped_broker import DELAYS, SUBSCRIBER
from transports import Target

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from moq.bench.papers.progress import Progress

PLAIN, ASYNCHRONOUS, SYNCHRONOUS = VARIANTS = ("plain", "asynchronous", "synchronous")
END_TO_END, COMPLETION, BROKER_SUBSCRIBER = DELAY_KINDS = tuple(published.EMQTT_DELAY_MS)

QUERY_TIMEOUT_S: Final = 20.0
WARM_UP: Final = 5
"""Queries of each variant before those that count."""
QUERY_ESTIMATE_S: Final = 0.015
START_ESTIMATE_S: Final = 2.0
NS_PER_MS: Final = 1e6


@dataclass(frozen=True, slots=True)
class Plan:
    """How much of it."""

    subscribers: tuple[int, ...] = published.EMQTT_SUBSCRIBERS
    publishes: int = published.EMQTT_PUBLISHES
    settle_s: float = SETTLE_S

    @property
    def steps(self) -> int:
        """Each number of subscribers, and one, on the broker and on the tapped one."""
        return 2 * (1 + len(self.subscribers))

    @property
    def estimate_s(self) -> float:
        """About how long it takes."""
        queries = len(VARIANTS) * (self.publishes + WARM_UP)
        return self.steps * (START_ESTIMATE_S + self.settle_s + queries * QUERY_ESTIMATE_S)


QUICK: Final = Plan(subscribers=(2, 4), publishes=3, settle_s=0.0)


@dataclass(slots=True)
class Run:
    """What one variant with one number of subscribers gave."""

    variant: str
    subscribers: int
    delays_ms: dict[str, list[float]] = field(default_factory=lambda: {kind: [] for kind in DELAY_KINDS})
    messages: list[int] = field(default_factory=list)
    """Packets of each query, at all links together, both ways."""
    set_up: int = 0
    """Packets that made the way back, before the first query."""

    def mean_ms(self, kind: str) -> float:
        """As the paper averages."""
        return statistics.fmean(self.delays_ms[kind])


class Group:
    """A publisher and its subscribers, connected."""

    def __init__(self, publisher: Publisher, subscribers: list[Subscriber], set_up: int) -> None:
        self.set_up = set_up
        """Packets it took to make the way back for responses."""
        self._publisher = publisher
        self._subscribers = subscribers
        self._conversation = Conversation()
        for party in (publisher, *subscribers):
            party.conversation = self._conversation
        publisher.wanted_responses = len(subscribers)

    @classmethod
    async def open(cls, target: Target, count: int) -> Group:
        """Connect and subscribe everybody."""
        subscribers = [await Subscriber.open(target, f"{SUBSCRIBER}{number}") for number in range(count)]
        for subscriber in subscribers:
            await subscriber.request(
                wire.Subscribe(2, False, ALIASES[ANSWERED], ANSWERED),
                wire.Register(0, False, ALIASES[RESPONSE], RESPONSE),
                wire.Subscribe(3, False, ALIASES[CONFIRMED], CONFIRMED),
            )
        publisher = await Publisher.open(target, "publisher")
        for topic in (ANSWERED, CONFIRMED):
            await publisher.request(wire.Register(0, False, ALIASES[topic], topic))
        before = publisher.sent + publisher.received
        await publisher.request(wire.Subscribe(2, False, ALIASES[RESPONSE], RESPONSE))
        return cls(publisher, subscribers, publisher.sent + publisher.received - before)

    @property
    def packets(self) -> int:
        """That have passed all links so far, both ways."""
        return sum(party.sent + party.received for party in (self._publisher, *self._subscribers))

    async def ask(self, variant: str) -> Conversation:
        """One query, to the end of its last exchange."""
        self._conversation.begin(len(self._subscribers))
        if variant == PLAIN:
            self._publisher.publish(ANSWERED)
        else:
            self._publisher.publish(CONFIRMED, 0 if variant == ASYNCHRONOUS else len(self._subscribers))
        async with asyncio.timeout(QUERY_TIMEOUT_S):
            await self._conversation.over()
        return self._conversation

    def close(self) -> None:
        """End all connections."""
        for party in (self._publisher, *self._subscribers):
            party.link.abort()


async def run(plan: Plan, progress: Progress) -> list[Run]:
    """Each variant with each number of subscribers."""
    runs: list[Run] = []
    for subscribers in (1, *plan.subscribers):
        progress.begin(f"E-MQTT, {subscribers} subscribers")
        async with running_broker() as broker:
            measured = await _measure(plan, broker.target, subscribers)
        progress.end(_means(measured, END_TO_END))
        progress.begin(f"E-MQTT, {subscribers} subscribers, inside the broker")
        async with _tapped() as (target, delays_ns):
            await _measure(plan, target, subscribers)
        for number, run in enumerate(measured):
            run.delays_ms[BROKER_SUBSCRIBER] = [
                delay_ns / NS_PER_MS
                for one in delays_ns
                for delay_ns in one[WARM_UP * len(VARIANTS) + number :: len(VARIANTS)]
            ]
        progress.end(_means(measured, BROKER_SUBSCRIBER))
        runs += measured
    return runs


def _means(runs: list[Run], kind: str) -> str:
    return ", ".join(f"{run.variant} {run.mean_ms(kind):.2f} ms" for run in runs)


async def _measure(plan: Plan, target: Target, subscribers: int) -> list[Run]:
    runs = [Run(variant, subscribers) for variant in VARIANTS]
    group = await Group.open(target, subscribers)
    runs[0].set_up = group.set_up
    try:
        await asyncio.sleep(plan.settle_s)
        for number in range(WARM_UP + plan.publishes):
            for run in runs:
                before = group.packets
                query = await group.ask(run.variant)
                if number >= WARM_UP:
                    run.messages.append(group.packets - before)
                    run.delays_ms[END_TO_END].append((query.known_ns - query.sent_ns) / NS_PER_MS)
                    run.delays_ms[COMPLETION].append((query.completed_ns - query.sent_ns) / NS_PER_MS)
    finally:
        group.close()
    return runs


@contextlib.asynccontextmanager
async def _tapped() -> AsyncIterator[tuple[Target, list[list[int]]]]:
    """A broker that takes times inside; the list, one of each subscriber, is filled once it has ended."""
    delays_ns: list[list[int]] = []
    with tempfile.TemporaryDirectory(prefix="moq-papers-") as name:
        directory = Path(name)
        command = [sys.executable, "-m", "moq.bench.papers.tapped_broker", name]
        async with started(command, directory) as process:
            ready = await ready_line(process, directory)
            yield Target("tcp", "127.0.0.1", ready["tcp"]), delays_ns
        delays_ns += json.loads((directory / DELAYS).read_text())


def publish_bytes(identifiers: int | None) -> int:
    """The size of the query's PUBREQ, topic spelt out: of QoS 2 for None, else of QoS 3 with so many identifiers."""
    if identifiers is None:
        return len(wire.encode(wire.PubReq(0, False, False, 2, 1, ALIASES[ANSWERED], ANSWERED, None, None, PAYLOAD)))
    # One character each, as in the paper; those from "!" on are 94.
    names = [chr(ord("!") + number) for number in range(identifiers)]
    extension = wire.PublishExtension(subscribers=names) if names else None
    packet = wire.PubReq(0, False, False, 3, 1, ALIASES[CONFIRMED], CONFIRMED, identifiers, extension, PAYLOAD)
    return len(wire.encode(packet))
