"""Functions in worker processes: what goes wrong in them is told to whoever asked, and to nobody else."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING

import pytest

from moq.functions.process import NICENESS
from tests.functions.distributions import install
from tests.functions.processes import workers

if TYPE_CHECKING:
    from pathlib import Path

    from tests.functions.pools import Opened


# --- what comes back ----------------------------------------------------------------------------------


async def test_a_payload_goes_to_a_worker_and_its_result_comes_back(opened: Opened) -> None:
    async with opened() as pool:
        assert await pool.call("UPPER", "grüße".encode()) == "GRÜSSE".encode()
        assert await pool.call("LENGTH", b"four") == b"4"
        assert int(await pool.call("WHO")) != os.getpid()
    assert (pool.figures.calls, pool.figures.errors, pool.outstanding, pool.held_bytes) == (3, 0, 0, 0)
    assert pool.figures.busy_ns > 0


async def test_nothing_is_given_out_within_submit(opened: Opened) -> None:
    async with opened(max_function_input_bytes=1) as pool:
        asked = pool.ask("UPPER", b"too long")
        assert not asked.done()
        assert (pool.outstanding, pool.held_bytes) == (1, 8)
        with pytest.raises(RuntimeError, match="the payload has 8 bytes; at most 1 are processed"):
            await asked
        assert not workers()
        assert (pool.outstanding, pool.held_bytes) == (0, 0)


async def test_what_is_submitted_before_the_start_waits_for_it(opened: Opened) -> None:
    async with opened(is_started=False) as pool:
        asked = pool.ask("UPPER", b"early")
        await asyncio.sleep(0)
        assert not workers()
        pool.start()
        assert await asked == b"EARLY"


async def test_results_come_in_the_order_of_their_payloads(opened: Opened, tmp_path: Path) -> None:
    async with opened(workers=2) as pool:
        order: list[bytes] = []
        done = asyncio.Event()

        def then(result: bytes | None, error: str | None) -> None:
            order.append(result or b"")
            if len(order) == 3:
                done.set()

        there = tmp_path / "there"
        paths = [os.fsencode(path) for path in (tmp_path / "late", there, there)]
        there.touch()
        for path in paths:
            assert pool.submit("MEET", path, then)
        # Another function is not held up by it; once its answer is there, so are those of the two that are done.
        assert await pool.call("UPPER", b"other") == b"OTHER"
        assert order == []
        assert pool.outstanding == 3
        (tmp_path / "late").touch()
        await asyncio.wait_for(done.wait(), 30)
        assert order == paths


# --- what goes wrong ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "payload", "words"),
    [
        ("FAIL", b"", "ZeroDivisionError: division by zero"),
        ("LEAVE", b"bye", "SystemExit: bye"),
        ("HOG", b"", "MemoryError: "),
        ("FLOOD", b"1001", "PluginError: returned 1001 bytes; at most 1000 are allowed"),
        ("WORDS", b"", "PluginError: returned b'many', which is not a number it could be aggregated as"),
        ("NOTHING", b"", "PluginError: returned a NoneType; expected bytes, text or a number"),
        (
            "UPPER",
            b"\xff",
            "UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte",
        ),
    ],
)
async def test_what_a_function_raises_is_told_and_its_worker_goes_on(
    opened: Opened, name: str, payload: bytes, words: str
) -> None:
    async with opened(max_function_output_bytes=1000) as pool:
        before = await pool.call("WHO")
        assert await pool.complaint(name, payload) == words
        assert await pool.call("WHO") == before
        assert len(await pool.call("FLOOD", b"1000")) == 1000
    assert (pool.figures.errors, pool.figures.crashes, pool.figures.timeouts) == (1, 0, 0)


@pytest.mark.parametrize(
    ("name", "words"), [("END", "ended the worker with status 3"), ("FAULT", "ended the worker with signal 11")]
)
async def test_a_crash_is_told_and_the_next_call_has_another_worker(
    opened: Opened, caplog: pytest.LogCaptureFixture, name: str, words: str
) -> None:
    async with opened() as pool:
        before = await pool.call("WHO")
        for _ in range(3):
            assert await pool.complaint(name) == words
        assert await pool.call("WHO") != before
        assert pool.figures.crashes == 3
        assert len(workers()) == 1
    told = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert told == [
        f"the function {name} of some-functions 1.0: {words}; a new worker is started when there is work for it"
    ]


async def test_a_function_without_end_is_ended(opened: Opened) -> None:
    async with opened(function_timeout_s=2) as pool:
        assert await pool.complaint("SPIN") == "took more than 2 seconds"
        assert await pool.call("UPPER", b"next") == b"NEXT"
        assert len(workers()) == 1
    assert pool.figures.timeouts == 1


async def test_preparing_happens_once_and_not_in_the_time_a_call_has(opened: Opened, site: Path) -> None:
    late = """
        import time
        from moq.functions import Cost, Function, OutputType

        prepared = []

        def prepare():
            time.sleep(2)
            prepared.append(1)

        call = lambda payload: len(prepared)
        late = Function("LATE", ("*/*",), Cost.LOW, "is late", OutputType.VALUE, call, prepare=prepare)
    """
    install(site, "late-functions", "late_functions", late, LATE="late")
    async with opened(function_timeout_s=1.5) as pool:
        for _ in range(2):
            assert await pool.call("LATE") == b"1"


async def test_memory_is_limited_by_the_address_space(opened: Opened) -> None:
    async with opened(max_function_memory_bytes=256 * 2**20) as pool:
        assert await pool.complaint("FLOOD", b"300000000") == "MemoryError: "
        assert await pool.call("UPPER", b"still") == b"STILL"


async def test_a_full_queue_takes_no_more_until_there_is_room(opened: Opened, tmp_path: Path) -> None:
    async with opened(max_function_queue=3) as pool:
        late = tmp_path / "late"
        taken = [pool.ask("MEET", os.fsencode(late)) for _ in range(3)]
        with pytest.raises(asyncio.QueueFull):
            pool.ask("UPPER")
        assert (pool.figures.refused_queue_full, pool.outstanding) == (1, 3)
        late.touch()
        await asyncio.wait_for(asyncio.gather(*taken), 30)
        assert await pool.call("UPPER", b"room") == b"ROOM"
    assert pool.figures.calls == 4


# --- processes ----------------------------------------------------------------------------------------


async def test_workers_are_started_on_demand_up_to_their_number(opened: Opened, tmp_path: Path) -> None:
    async with opened(workers=2) as pool:
        assert not workers()
        late = tmp_path / "late"
        taken = [pool.ask("MEET", os.fsencode(late)) for _ in range(5)]
        late.touch()
        await asyncio.wait_for(asyncio.gather(*taken), 30)
        assert len(workers()) == 2
    assert not workers()


async def test_a_worker_has_low_priority_and_an_input_and_output_of_its_own(
    opened: Opened, capfd: pytest.CaptureFixture[str]
) -> None:
    async with opened() as pool:
        assert int(await pool.call("PRIORITY")) == min(os.nice(0) + NICENESS, 19)
        assert await pool.call("TALK") == b"done"
    assert capfd.readouterr() == ("", "said aloud\n")


async def test_closing_ends_workers_in_the_middle_of_a_call_and_gives_nothing_out(
    opened: Opened, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(workers=2) as pool:
        await pool.call("UPPER")
        asked = [pool.ask("SOMETIMES", b"wait"), pool.ask("SPIN")]
        await asyncio.sleep(0)
        assert workers()
    assert not workers()
    assert not any(future.done() for future in asked)
    assert not caplog.records


async def test_a_worker_that_cannot_be_started_is_told(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened() as pool:
        monkeypatch.setattr("sys.executable", "/nonexistent/python")
        assert "No such file or directory" in await pool.complaint("UPPER")


async def test_without_workers_there_are_no_functions(opened: Opened) -> None:
    async with opened(workers=0) as pool:
        assert not pool.names()
        assert pool.describe() == []
