"""Looking at a running broker from outside: its HTTP answers, figures, memory; and waiting for what must come."""

from __future__ import annotations

import asyncio
import os
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.running import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.running import Broker

STEP_S: Final = 0.02


async def get(broker: Broker, path: str) -> tuple[int, str]:
    """Status and text of a page of the broker."""
    return await asyncio.to_thread(_get, f"http://127.0.0.1:{broker.ports['http']}{path}")


def _get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.code, refusal.read().decode()


async def figure(broker: Broker, name: str) -> float:
    """One of `/metrics`."""
    _, text = await get(broker, "/metrics")
    values = [line.split()[1] for line in text.splitlines() if line.startswith(f"{name} ")]
    assert values, f"there is no metric {name}"
    return float(values[0])


async def until(what: str, is_so: Callable[[], Awaitable[bool]]) -> None:
    """Wait for something that must happen."""
    began = time.monotonic()
    while not await is_so():
        assert time.monotonic() - began < PATIENCE_S, f"waited {PATIENCE_S} s in vain for {what}"
        await asyncio.sleep(STEP_S)


def resident_bytes(broker: Broker) -> int:
    """Memory the broker holds."""
    pages = Path(f"/proc/{broker.process.pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def cpu_s(broker: Broker) -> float:
    """Processor time it has used: the 14th and 15th field of its `stat`, after a name in brackets."""
    fields = Path(f"/proc/{broker.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def descriptors(broker: Broker) -> int:
    """Files and sockets it has open."""
    return len(os.listdir(f"/proc/{broker.process.pid}/fd"))
