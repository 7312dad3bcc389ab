"""One open-loop measurement: warm up, count for a while, drain, and put all of it into a `Run`."""

from __future__ import annotations

import asyncio
import gc
import os
import time
from typing import TYPE_CHECKING, Final

from moq.bench.brokers import machine_user_s, usage
from moq.bench.ledger import histogram
from moq.bench.openloop import OpenLoop
from moq.bench.results import Run

if TYPE_CHECKING:
    from collections.abc import Callable

    from moq.bench.brokers import Usage
    from moq.bench.contenders import Server
    from moq.bench.scenarios import Case
    from moq.bench.sites import Site

CHECK_S: Final = 0.1


class Meter:
    """What broker, generator and everybody else use from one moment to another."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._began = self._now()
        self._ended = self._began

    def _now(self) -> tuple[float, Usage, Usage, float]:
        return time.perf_counter(), self._server.usage(), usage(os.getpid()), machine_user_s()

    def stop(self) -> None:
        """The counted time is over."""
        self._ended = self._now()

    def figures(self) -> dict[str, float]:
        """As `Run` has them."""
        (began, broker, own, everybody), (ended, broker_end, own_end, everybody_end) = self._began, self._ended
        ours_s = broker_end.user_s - broker.user_s + own_end.user_s - own.user_s
        seconds = max(ended - began, 1e-9)
        return {
            "duration_s": seconds,
            "broker_cpu_s": broker_end.cpu_s - broker.cpu_s,
            "generator_cpu_s": own_end.cpu_s - own.cpu_s,
            "others_cpu_share": max(0.0, everybody_end - everybody - ours_s) / seconds,
        }

    @property
    def rss_bytes(self) -> int:
        """Of the broker, at the end."""
        return self._ended[1].rss_bytes


async def measure(
    server: Server,
    case: Case,
    *,
    scenario: str,
    contender: str,
    repetition: int,
    site: Site,
    warm_up_s: float,
    duration_s: float,
    watch: Callable[[OpenLoop], None] | None = None,
) -> Run:
    """Put this load on a broker; `watch` is told when everybody is connected and before anything is sent."""
    load = OpenLoop(case)
    try:
        await load.open(server.connect)
        if watch is not None:
            watch(load)
        gc.collect()
        gc.disable()
        load.start(warm_up_s, duration_s)
        await _run_for(load, warm_up_s)
        site.begin()
        started_at, meter = time.time(), Meter(server)
        await _run_for(load, duration_s)
        meter.stop()
        await load.drain()
    finally:
        gc.enable()
        load.close()
        # Closing takes a turn of the loop; the broker is stopped after this.
        await asyncio.sleep(0)
    ledger = load.ledger
    books = ledger.books_of(video=False)
    sent, received = sum(book.sent for book in books), sum(book.received for book in books)
    figures = meter.figures()
    return Run(
        scenario=scenario,
        contender=contender,
        profile=site.profile,
        repetition=repetition,
        parameters=case.parameters(),
        rate=float(case.rate),
        started_at=started_at,
        duration_s=figures["duration_s"],
        sent=sent,
        expected=sent * ledger.receivers,
        received=received,
        lost=sent * ledger.receivers - received,
        repeated=sum(book.repeated for book in ledger.books),
        disordered=sum(book.disordered for book in ledger.books),
        is_overloaded=load.is_overloaded,
        latency_us=histogram(books),
        timeline=ledger.timeline(books),
        broker_cpu_s=figures["broker_cpu_s"],
        broker_rss_bytes=meter.rss_bytes,
        generator_cpu_s=figures["generator_cpu_s"],
        others_cpu_share=figures["others_cpu_share"],
        extra=load.extra(),
    )


async def _run_for(load: OpenLoop, seconds: float) -> None:
    """Let the load run, but not on after it has become too much."""
    end = time.perf_counter() + seconds
    while (now := time.perf_counter()) < end and not load.is_overloaded:
        load.check()
        await asyncio.sleep(min(CHECK_S, end - now))


def is_clean(run: Run) -> bool:
    """True if every message of every flow arrived once and in order."""
    faults = (run.lost, run.repeated, run.disordered, run.is_overloaded, run.extra.get("video_lost", 0.0))
    return not any(faults)
