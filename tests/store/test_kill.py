"""A process killed while it writes: what it was told is safe is there, and no call of the core is torn apart."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from moq.broker.store import Table
from tests.store.opened import SQLiteKeeper, facts, queues, read

if TYPE_CHECKING:
    from pathlib import Path

WINDOW = 50
"""How many deliveries the queue holds: each turn adds some and removes as many."""

CHILD = f"""
import pathlib, sys, threading
from moq.broker.message import Message
from moq.broker.store import Table
from tests.store.opened import open_sqlite

progressed = threading.Event()
store = open_sqlite(pathlib.Path(sys.argv[1]), durability=sys.argv[2], on_progress=progressed.set)
number = 0
promised = []
while True:
    for _ in range(20):
        number += 1
        store.put(Table.RECEIVED, ("publisher", number), None)
        store.enqueue("c", number, Message("t", b"%d " % number * (50 if number % 10 == 0 else 1)), 1e10, 1, 0, None)
        store.delete(Table.RECEIVED, ("publisher", number - {WINDOW}))
        store.dequeue("c", number - {WINDOW})
        promised.append((store.last, number))
    progressed.clear()
    if store.advance() or progressed.wait(0.001) and store.advance():
        while promised and promised[0][0] <= store.durable:
            told = promised.pop(0)[1]
        print(told, flush=True)
"""


@pytest.mark.parametrize("durability", ["full", "relaxed"])
@pytest.mark.parametrize("seed", range(3))
def test_nothing_that_was_safe_is_lost_by_a_kill(tmp_path: Path, durability: str, seed: int) -> None:
    lines = random.Random(seed).randrange(1, 40)
    command = [sys.executable, "-c", CHILD, str(tmp_path), durability]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        told = [child.stdout.readline() for _ in range(lines)]
        child.send_signal(signal.SIGKILL)
        told += child.stdout.readlines()
    safe = int([line for line in told if line.endswith("\n")][-1])

    keeper = SQLiteKeeper(tmp_path)
    assert not keeper.sqlite._database.recovered.was_clean
    newest = queues(keeper.store)["c"].next_number - 1
    assert newest >= safe
    expected = list(range(max(1, newest - WINDOW + 1), newest + 1))
    page = read(keeper, "c")
    assert page.numbers == expected
    assert page.payloads == [b"%d " % number * (50 if number % 10 == 0 else 1) for number in expected]
    assert [key for key, _ in facts(keeper.store, Table.RECEIVED)] == [("publisher", number) for number in expected]
    assert len(list((tmp_path / "spool").iterdir())) == sum(len(payload) >= 100 for payload in page.payloads)
    keeper.close()
