"""From a record to a file and back; what a full disk, a slow thread and a killed process leave."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from moq import trace
from moq.errors import ConfigError
from moq.trace import parquet
from moq.trace.records import UNKNOWN
from moq.trace.schema import BROKER, BROKER_ROLE, CLIENT, SUBSCRIBER_ROLE, TABLES, VERSION, VERSION_KEY
from moq.trace.writer import BUFFERS, MESSAGES_PER_BUFFER, TraceWriter
from tests.trace.reading import ORIGIN, check_files, files, rows

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parent.parent.parent
PATIENCE_S = 30.0


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def record(writer: TraceWriter, number: int, topic: str = "a/b") -> None:
    writer.message(BROKER_ROLE, 1, ORIGIN, topic, 7, 3, 1, 0, 100, 0, 5, 1000 + number, 0, 250, 2, False, UNKNOWN, 1.0)


def test_what_was_recorded_is_what_is_read(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path, BROKER).open()
    writer.message(
        BROKER_ROLE, 4, ORIGIN, "room/1", 15, 32770, 2, 1, 99, 1_000, 2_000, 3_000, 0, 512, 6, True, UNKNOWN, 4.0
    )
    writer.message(
        SUBSCRIBER_ROLE, 4, ORIGIN, "room/2", 0, 0, 0, 2, 0, 0, 0, 0, 9_000, UNKNOWN, UNKNOWN, False, 12, 1.0
    )
    writer.close()
    first, second = rows(tmp_path)
    common = {
        "version": VERSION,
        "process": writer.process,
        "connection": 4,
        "client_id": "client",
        "transport": "quic",
        "dialect": "mmqp",
    }
    day = {"date": first["date"]}
    assert first == common | day | {
        "role": "broker",
        "stream_id": 15,
        "topic": "room/1",
        "alias": 32770,
        "qos": 2,
        "kind": "request",
        "payload_bytes": 99,
        "queue_bytes": 512,
        "queue_messages": 6,
        "sent_at_ns": 1_000,
        "broker_in_ns": 2_000,
        "broker_out_ns": 3_000,
        "received_at_ns": None,
        "is_duplicate": True,
        "sequence": None,
        "weight": 4.0,
    }
    assert second == common | day | {
        "role": "subscriber",
        "stream_id": 0,
        "topic": "room/2",
        "alias": None,
        "qos": 0,
        "kind": "response",
        "payload_bytes": 0,
        "queue_bytes": None,
        "queue_messages": None,
        "sent_at_ns": None,
        "broker_in_ns": None,
        "broker_out_ns": None,
        "received_at_ns": 9_000,
        "is_duplicate": False,
        "sequence": 12,
        "weight": 1.0,
    }


def test_states_clocks_and_totals_are_tables_of_their_own(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path, CLIENT).open()
    writer.state(4, ORIGIN, 77, (1_500, 20_000, 300, 10, 11, 2, UNKNOWN, 40))
    writer.clock("client", "192.0.2.1:14567", 88, -250, 4_000, True)
    writer.sampler.weigh(0)
    record(writer, 0)
    writer.close()
    (state,) = rows(tmp_path, "connections", role="client", process=writer.process)
    assert (state["at_ns"], state["round_trip_ns"], state["congestion_window_bytes"]) == (77, 1_500, 20_000)
    assert (state["losses"], state["open_streams"], state["unsent_bytes"], state["peer"]) == (2, None, 40, ORIGIN.peer)
    (clock,) = rows(tmp_path, "clocks")
    assert (clock["at_ns"], clock["offset_ns"], clock["round_trip_ns"], clock["is_best"]) == (88, -250, 4_000, True)
    (total,) = rows(tmp_path, "totals")
    assert (total["offered"], total["recorded"], total["dropped"], total["probability"]) == (1, 1, 0, 1.0)


def test_many_topics_and_connections_keep_their_names(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path, BROKER).open()
    for number in range(3_000):
        record(writer, number, f"topic/{number}")
    writer.close()
    assert {row["broker_out_ns"] - 1000: row["topic"] for row in rows(tmp_path)} == {
        number: f"topic/{number}" for number in range(3_000)
    }


def test_every_file_has_the_schema_and_its_version(tmp_path: Path) -> None:
    test_states_clocks_and_totals_are_tables_of_their_own(tmp_path)
    for path in files(tmp_path):
        schema = pq.read_schema(path)
        table = path.relative_to(tmp_path).parts[0]
        assert schema.metadata[VERSION_KEY] == str(VERSION).encode()
        found = [(field.name, str(field.type).replace("double", "float64")) for field in schema]
        assert found == [(column.name, column.type) for column in TABLES[table]]


def test_the_documentation_has_every_table_and_column() -> None:
    text = (ROOT / "docs" / "reference" / "trace.md").read_text()
    assert f"version {VERSION}" in text
    for table, columns in TABLES.items():
        _, _, section = text.partition(f"## `{table}`")
        section = section.partition("\n## ")[0]
        told = re.findall(r"^\| `(\w+)` \| (\w+) \| (.*?) \| (.*?) \|$", section, re.MULTILINE)
        assert told == [(column.name, column.type, column.meaning, column.null or "never") for column in columns]


def test_a_slow_thread_costs_records_that_are_counted_and_never_waiting(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path, BROKER)
    capacity = BUFFERS * MESSAGES_PER_BUFFER
    for number in range(capacity + 500):  # nobody takes them: the thread has not been started
        record(writer, number)
    assert (writer.recorded, writer.dropped) == (capacity, 500)
    writer.open().close()
    assert len(rows(tmp_path)) == capacity
    (total,) = rows(tmp_path, "totals")
    assert (total["recorded"], total["dropped"]) == (capacity, 500)


def test_a_directory_that_cannot_be_written_is_refused_at_the_start(tmp_path: Path) -> None:
    occupied = tmp_path / "file"
    occupied.write_text("")
    with pytest.raises(ConfigError, match=r"trace is '.*file', where nothing can be written"):
        TraceWriter(occupied, BROKER).open()


def test_without_arrow_the_message_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "moq.trace.parquet")
    monkeypatch.delattr(trace, "parquet")
    with pytest.raises(ConfigError, match=re.escape("pip install 'moq-broker[trace]'")):
        TraceWriter(tmp_path / "traces", BROKER).open()
    assert not (tmp_path / "traces").exists()


def test_what_cannot_be_written_later_is_counted_and_writing_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    writer = TraceWriter(tmp_path, BROKER).open()
    (tmp_path / "messages").rmdir()
    (tmp_path / "messages").write_text("in the way")
    record(writer, 1)
    writer._messages.flush()
    until(lambda: writer.dropped == 1)
    (tmp_path / "messages").unlink()
    record(writer, 2)
    writer.close()
    assert [row["broker_out_ns"] for row in rows(tmp_path)] == [1002]
    assert [entry.levelname for entry in caplog.records] == ["ERROR", "WARNING"]
    assert "cannot be written" in caplog.text
    assert sum(row["dropped"] for row in rows(tmp_path, "totals")) == 1


def test_a_full_disk_loses_the_file_that_was_open_and_no_other(tmp_path: Path) -> None:
    """The device is full for good: a write beyond its end fails as on a full disk."""
    full = Path("/dev/full")
    file = parquet.TableFile(tmp_path, "messages", "broker-x")
    writer = TraceWriter(tmp_path, BROKER)
    record(writer, 1)
    buffer = writer._messages.current
    assert buffer is not None
    file.write(lambda: parquet.buffer_table("messages", buffer, BROKER, "x"), 1)
    file.complete()
    file.write(lambda: parquet.buffer_table("messages", buffer, BROKER, "x"), 1)
    with full.open("wb", buffering=0) as device:
        os.dup2(device.fileno(), file._file.fileno())
        with pytest.raises(OSError, match="No space left"):
            file.complete()
    assert file.abandon() == 1
    assert check_files(tmp_path) == 1
    assert files(tmp_path, ".*.tmp") == []


KILLED = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from moq.trace import parquet
from tests.trace.test_writer import record
from moq.trace.writer import TraceWriter
parquet.MAX_FILE_S = 0.05
writer = TraceWriter(Path(sys.argv[1]), "broker").open()
number = 0
while True:
    for _ in range(200):
        record(writer, number)
        number += 1
    writer._messages.flush()
    print(number, flush=True)
    time.sleep(0.005)
"""


def test_a_killed_writer_leaves_only_files_that_can_be_read(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path), str(ROOT)], stdout=subprocess.PIPE)
    try:
        until(lambda: len(files(tmp_path)) >= 3 and len(files(tmp_path, ".*.tmp")) >= 1)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert check_files(tmp_path) >= 3
    numbers = {row["broker_out_ns"] - 1000 for row in rows(tmp_path)}
    assert len(numbers) == len(rows(tmp_path))
    assert {number // 200 for number in numbers} == {number // 200 for number in numbers if number % 200 == 199}
    alive = TraceWriter(tmp_path, BROKER).open()
    record(alive, 0)
    alive._messages.flush()
    until(lambda: len(files(tmp_path, ".*.tmp")) == 1)
    TraceWriter(tmp_path, BROKER).open().close()
    assert len(files(tmp_path, ".*.tmp")) == 1, "what a living writer has open stays"
    alive.close()
    assert files(tmp_path, ".*.tmp") == []


def test_closing_ends_the_thread(tmp_path: Path) -> None:
    before = threading.active_count()
    writer = TraceWriter(tmp_path, BROKER).open()
    assert threading.active_count() == before + 1
    writer.close()
    assert threading.active_count() == before
    writer.close()
