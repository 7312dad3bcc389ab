"""E-MQTT's experiment: how soon a publisher knows that its subscribers have a message, and what that takes.

    plain          QoS 2; every subscriber publishes a response at QoS 2 on a second topic, the last one counts
    asynchronous   QoS 3 with confirm = 0: the broker passes the first subscriber's answer on
    synchronous    QoS 3 with confirm = n: one answer, once all n subscribers have answered

The three take turns, query by query, on the same connections: a busy moment of the machine hits all of them. A query
begins when every exchange of the last one has ended everywhere, so that each packet is counted for its own query.
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
from moq.bench.papers.crowd import Crowd
from moq.bench.papers.exchanges import ALIASES, ANSWERED, CONFIRMED, PAYLOAD, RESPONSE, Publisher
from moq.bench.papers.metered import SETTLE_S, running_broker
from moq.bench.papers.tapped_broker import DELAYS
from moq.errors import ConnectionLost
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


QUICK: Final = Plan(subscribers=(4,), publishes=3, settle_s=0.0)


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
    assert target.port is not None
    runs = [Run(variant, subscribers) for variant in VARIANTS]
    async with Crowd.run(target.port, subscribers) as crowd:
        publisher = await Publisher.open(target, "publisher")
        for topic in (ANSWERED, CONFIRMED):
            await publisher.request(wire.Register(0, False, ALIASES[topic], topic))
        before = publisher.packets
        await publisher.request(wire.Subscribe(2, False, ALIASES[RESPONSE], RESPONSE))
        runs[0].set_up = publisher.packets - before
        await asyncio.sleep(plan.settle_s)
        await _ask_in_turn(publisher, crowd, runs, plan.publishes)
        publisher.link.abort()
    return runs


async def _ask_in_turn(publisher: Publisher, crowd: Crowd, runs: list[Run], publishes: int) -> None:
    packets = 0
    for number in range(WARM_UP + publishes):
        for run in runs:
            before = publisher.packets
            passed = await _ask(publisher, crowd, run)
            if number >= WARM_UP:
                run.messages.append(publisher.packets - before + passed - packets)
                run.delays_ms[END_TO_END].append((publisher.known_ns - publisher.sent_ns) / NS_PER_MS)
                run.delays_ms[COMPLETION].append((publisher.completed_ns - publisher.sent_ns) / NS_PER_MS)
            packets = passed


async def _ask(publisher: Publisher, crowd: Crowd, run: Run) -> int:
    """One query, until it is over everywhere; the packets that have passed the subscribers' links by then."""
    waited = {PLAIN: None, ASYNCHRONOUS: 0, SYNCHRONOUS: run.subscribers}[run.variant]
    try:
        async with asyncio.timeout(QUERY_TIMEOUT_S):
            await publisher.query(ANSWERED if waited is None else CONFIRMED, waited, run.subscribers)
            return await crowd.packets_after_query()
    except TimeoutError:
        raise ConnectionLost(
            f"a query, {run.variant}, to {run.subscribers} subscribers was not over after {QUERY_TIMEOUT_S:g} s"
        ) from None


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
