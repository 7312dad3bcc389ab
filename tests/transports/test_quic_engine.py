"""Both engines, two at a time, over a network that loses, delays, duplicates and reorders."""

from __future__ import annotations

import gc
import random
from typing import TYPE_CHECKING

import pytest
from aioquic.quic.stream import QuicStream

from certs import authority
from tests.transports.quic_pair import CLIENT_ADDRESS, Conditions, Pair
from transports.quic import _aioquic_send
from transports.quic.options import QUICOptions

if TYPE_CHECKING:
    from certs.authority import CertificatePaths
    from tests.transports.quic_pair import Side

ENGINES = ["aioquic", "qh3"]
MEGABYTE = 1_000_000

both_engines = pytest.mark.parametrize("engine", ENGINES)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> CertificatePaths:
    return authority.ensure(tmp_path_factory.mktemp("quic"))


def send_on_streams(pair: Pair, count: int, size: int, priority: int = 128) -> list[int]:
    streams = [pair.client.engine.open_stream(priority) for _ in range(count)]
    for stream_id in streams:
        pair.client.engine.send(stream_id, bytes(size))
    return streams


def received_bytes(side: Side) -> int:
    return sum(map(len, side.received.values()))


# --- handshake -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("server", ENGINES)
@both_engines
def test_any_two_engines_agree_on_the_protocol(certificates: CertificatePaths, engine: str, server: str) -> None:
    pair = Pair(certificates, engine, server_engine=server).connect()
    assert pair.client.handshake is not None
    assert pair.client.handshake.alpn == "mmqp"
    pair.client.engine.send(0, b"hello")
    pair.run(lambda: pair.server.received[0] == b"hello")
    pair.server.engine.send(0, b"welcome")
    pair.run(lambda: pair.client.received[0] == b"welcome")


# --- bytes ---------------------------------------------------------------------------------------------

NETWORKS = {
    "calm": Conditions(),
    "losing": Conditions(loss=0.05),
    "reordering": Conditions(jitter_s=0.004),
    "duplicating": Conditions(duplication=0.3),
    "hostile": Conditions(loss=0.1, jitter_s=0.01, duplication=0.1),
}


@both_engines
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("network", NETWORKS)
def test_every_stream_arrives_byte_for_byte(
    certificates: CertificatePaths, engine: str, network: str, seed: int
) -> None:
    pair = Pair(certificates, engine, conditions=NETWORKS[network], seed=seed).connect()
    rng = random.Random(seed)
    expected: dict[int, bytes] = {0: rng.randbytes(20_000)}
    for _ in range(12):
        expected[pair.client.engine.open_stream(rng.randrange(256))] = rng.randbytes(rng.randrange(1, 60_000))
    for stream_id, data in expected.items():
        cut = rng.randrange(len(data))
        pair.client.engine.send(stream_id, data[:cut])
        pair.client.engine.send(stream_id, data[cut:], fin=stream_id != 0)
    pair.run(lambda: len(pair.server.received[0]) > 0)
    answer = rng.randbytes(30_000)
    pair.server.engine.send(0, answer)
    pair.run(
        lambda: (
            len(pair.server.finished) == 12
            and len(pair.server.received[0]) == 20_000
            and len(pair.client.received[0]) == len(answer)
        ),
        limit_s=600,
    )
    assert {stream_id: bytes(data) for stream_id, data in pair.server.received.items()} == expected
    assert bytes(pair.client.received[0]) == answer
    pair.run(lambda: pair.client.engine.is_acknowledged(0), limit_s=600)


@both_engines
def test_a_stream_that_ends_later_ends_once(certificates: CertificatePaths, engine: str) -> None:
    pair = Pair(certificates, engine).connect()
    (stream_id,) = send_on_streams(pair, 1, 1000)
    pair.run(lambda: len(pair.server.received[stream_id]) == 1000)
    pair.client.engine.send(stream_id, b"", fin=True)
    pair.run(lambda: pair.server.finished == {stream_id})


@both_engines
def test_a_lost_end_is_sent_again(certificates: CertificatePaths, engine: str) -> None:
    pair = Pair(certificates, engine).connect()
    (stream_id,) = send_on_streams(pair, 1, 1000)
    pair.run(lambda: pair.client.engine.is_acknowledged(stream_id))
    pair.conditions.loss = 1.0
    pair.client.engine.send(stream_id, b"", fin=True)
    pair.run_for(0.5)
    pair.conditions.loss = 0.0
    pair.run(lambda: pair.server.finished == {stream_id})


@pytest.mark.parametrize("seed", range(4))
def test_a_terrible_network_only_takes_longer(certificates: CertificatePaths, seed: int) -> None:
    conditions = Conditions(loss=0.3, jitter_s=0.03, duplication=0.2)
    # Probes are sent ever more rarely: some of these connections are silent for minutes.
    options = QUICOptions(idle_timeout_s=3600)
    pair = Pair(certificates, options=options, conditions=conditions, seed=seed).connect()
    data = random.Random(seed).randbytes(200_000)
    stream_id = pair.client.engine.open_stream(128)
    pair.client.engine.send(stream_id, data, fin=True)
    pair.run(lambda: pair.server.finished == {stream_id}, limit_s=36_000)
    assert pair.server.received[stream_id] == data


def test_data_goes_on_through_key_updates(certificates: CertificatePaths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_aioquic_send, "MAX_PACKETS_PER_KEY", 50)
    pair = Pair(certificates, conditions=Conditions(loss=0.02, jitter_s=0.002)).connect()
    data = random.Random(1).randbytes(500_000)
    stream_id = pair.client.engine.open_stream(128)
    pair.client.engine.send(stream_id, data)
    pair.run(lambda: len(pair.server.received[stream_id]) == len(data))
    assert pair.server.received[stream_id] == data
    assert pair.client.engine.stats().packets_sent > 300


@both_engines
def test_a_client_may_change_its_address(certificates: CertificatePaths, engine: str) -> None:
    pair = Pair(certificates, engine).connect()
    (stream_id,) = send_on_streams(pair, 1, 1000)
    pair.run(lambda: pair.client.engine.is_acknowledged(stream_id))
    pair.client_address = ("127.0.0.1", CLIENT_ADDRESS[1] + 1)
    data = random.Random(1).randbytes(200_000)
    pair.client.engine.send(stream_id, data)
    pair.run(lambda: len(pair.server.received[stream_id]) == 1000 + len(data))
    assert pair.server.received[stream_id][1000:] == data


# --- windows -------------------------------------------------------------------------------------------

SMALL_WINDOWS = QUICOptions(stream_window_bytes=64 * 1024, connection_window_bytes=256 * 1024)


@both_engines
def test_what_is_not_consumed_stops_the_sender(certificates: CertificatePaths, engine: str) -> None:
    pair = Pair(certificates, engine, SMALL_WINDOWS).connect()
    pair.server.is_consuming = False
    (stream_id,) = send_on_streams(pair, 1, MEGABYTE)
    pair.run_for(5)
    bound = 64 * 1024 if engine == "aioquic" else (256 + 64 + 64) * 1024
    assert len(pair.server.received[stream_id]) <= bound
    assert pair.client.engine.unsent(stream_id) >= MEGABYTE - bound - 64 * 1024
    pair.server.consume_held()
    pair.run(lambda: len(pair.server.received[stream_id]) == MEGABYTE)


@both_engines
def test_all_streams_together_are_bound_by_the_connection(certificates: CertificatePaths, engine: str) -> None:
    pair = Pair(certificates, engine, SMALL_WINDOWS).connect()
    pair.server.is_consuming = False
    streams = send_on_streams(pair, 20, 50_000)
    pair.run_for(5)
    assert received_bytes(pair.server) <= 512 * 1024
    pair.server.consume_held()
    pair.run(lambda: all(len(pair.server.received[stream_id]) == 50_000 for stream_id in streams))


def test_an_unread_stream_does_not_stop_another(certificates: CertificatePaths) -> None:
    pair = Pair(certificates, options=SMALL_WINDOWS).connect()
    pair.server.is_consuming = False
    (stuck,) = send_on_streams(pair, 1, MEGABYTE)
    pair.run_for(2)
    pair.server.is_consuming = True
    (other,) = send_on_streams(pair, 1, MEGABYTE)
    pair.run(lambda: len(pair.server.received[other]) == MEGABYTE)
    assert len(pair.server.received[stuck]) <= 64 * 1024


def test_lost_window_updates_are_sent_again(certificates: CertificatePaths) -> None:
    pair = Pair(certificates, options=SMALL_WINDOWS, conditions=Conditions(loss=0.2), seed=3).connect()
    streams = send_on_streams(pair, 5, 300_000)
    pair.run(lambda: all(len(pair.server.received[stream_id]) == 300_000 for stream_id in streams), limit_s=600)


def test_a_reset_stream_gives_its_window_back(certificates: CertificatePaths) -> None:
    pair = Pair(certificates, options=SMALL_WINDOWS).connect()
    pair.server.is_consuming = False
    for stream_id in send_on_streams(pair, 10, 100_000):
        pair.run_for(0.5)
        pair.client.engine.reset(stream_id, 7)
        pair.run(lambda: stream_id in pair.server.resets)  # noqa: B023  # run at once
    pair.server.is_consuming = True
    (stream_id,) = send_on_streams(pair, 1, MEGABYTE)
    pair.run(lambda: len(pair.server.received[stream_id]) == MEGABYTE)


# --- streams -------------------------------------------------------------------------------------------


@both_engines
def test_a_reset_carries_its_code(certificates: CertificatePaths, engine: str) -> None:
    pair = Pair(certificates, engine).connect()
    (stream_id,) = send_on_streams(pair, 1, 100)
    pair.run(lambda: len(pair.server.received[stream_id]) == 100)
    pair.client.engine.reset(stream_id, 0x97)
    pair.run(lambda: pair.server.resets == {stream_id: 0x97})


@both_engines
def test_a_stopped_stream_tells_its_sender(certificates: CertificatePaths, engine: str) -> None:
    pair = Pair(certificates, engine).connect()
    (stream_id,) = send_on_streams(pair, 1, 100)
    pair.run(lambda: len(pair.server.received[stream_id]) == 100)
    pair.server.engine.stop(stream_id, 0x97)
    pair.run(lambda: pair.client.stopped == {stream_id: 0x97})
    pair.client.engine.send(stream_id, b"to nobody")
    assert pair.client.engine.unsent(stream_id) == 0


@both_engines
def test_a_stream_stopped_while_it_waits_is_dropped_and_the_others_go_on(
    certificates: CertificatePaths, engine: str
) -> None:
    pair = Pair(certificates, engine, SMALL_WINDOWS).connect()
    stopped, kept = send_on_streams(pair, 2, 300_000)
    pair.run(lambda: len(pair.server.received[stopped]) > 0)
    pair.server.engine.stop(stopped, 0x97)
    pair.run(lambda: stopped in pair.client.stopped)
    pair.run(lambda: len(pair.server.received[kept]) == 300_000)
    assert len(pair.server.received[stopped]) < 300_000
    assert pair.client.engine.unsent(stopped) == 0


@both_engines
def test_lower_priority_numbers_go_first_and_control_before_all(certificates: CertificatePaths, engine: str) -> None:
    pair = Pair(certificates, engine, QUICOptions(connection_window_bytes=64 * MEGABYTE)).connect()
    bulk, urgent = pair.client.engine.open_stream(200), pair.client.engine.open_stream(10)
    for _ in range(20):
        pair.client.engine.send(bulk, bytes(50_000))
    pair.run(lambda: len(pair.server.received[bulk]) > 0)
    pair.client.engine.send(urgent, bytes(200_000))
    pair.client.engine.send(0, bytes(100_000))
    pair.run(lambda: len(pair.server.received[urgent]) == 200_000)
    assert len(pair.server.received[0]) == 100_000
    assert len(pair.server.received[bulk]) < MEGABYTE // 2


def test_streams_of_one_priority_share_the_connection(certificates: CertificatePaths) -> None:
    pair = Pair(certificates).connect()
    streams = send_on_streams(pair, 4, 500_000)
    pair.run(lambda: received_bytes(pair.server) > MEGABYTE)
    shares = [len(pair.server.received[stream_id]) for stream_id in streams]
    assert min(shares) > 200_000
    assert max(shares) < 300_000


@pytest.mark.parametrize("open_streams", [1, 1000])
def test_a_packet_costs_the_same_with_a_thousand_open_streams(
    certificates: CertificatePaths, open_streams: int
) -> None:
    pair = Pair(certificates).connect()
    send_on_streams(pair, open_streams, 10)
    pair.run(lambda: len(pair.server.received) == open_streams)
    pair.run_for(1)
    busy = pair.client.engine.open_stream(128)
    before = [side.engine.stats() for side in (pair.client, pair.server)]
    for _ in range(50):
        pair.client.engine.send(busy, bytes(20_000))
        pair.run_for(0.1)
    after = [side.engine.stats() for side in (pair.client, pair.server)]
    assert len(pair.server.received[busy]) == MEGABYTE
    for old, new in zip(before, after, strict=True):
        packets = new.packets_sent - old.packets_sent
        visits = new.streams_visited - old.streams_visited
        assert visits <= packets + 10


@both_engines
def test_streams_that_come_and_go_leave_nothing_behind(certificates: CertificatePaths, engine: str) -> None:
    pair = Pair(certificates, engine, QUICOptions(max_incoming_streams=50)).connect()
    for _ in range(500):
        assert pair.client.engine.streams_left() >= 20
        for _ in range(20):
            pair.client.engine.send(pair.client.engine.open_stream(128), b"a short life", fin=True)
        pair.run_for(0.1)
    pair.run_for(1)
    assert len(pair.server.finished) == 10_000
    assert pair.client.engine.stats().open_streams == 0
    assert pair.server.engine.stats().open_streams == 0
    gc.collect()
    assert sum(isinstance(thing, QuicStream) for thing in gc.get_objects()) < 20, "only those of the handshakes"


def test_the_peer_s_stream_limit_is_known(certificates: CertificatePaths) -> None:
    pair = Pair(certificates, options=QUICOptions(max_incoming_streams=3)).connect()
    assert pair.client.engine.streams_left() == 3
    send_on_streams(pair, 3, 10)
    assert pair.client.engine.streams_left() == 0


@pytest.mark.parametrize("control", ["reno", "cubic"])
def test_the_congestion_window_grows_only_if_it_is_filled(certificates: CertificatePaths, control: str) -> None:
    pair = Pair(certificates, options=QUICOptions(congestion_control=control)).connect()
    initial = pair.client.engine.stats().congestion_window
    stream_id = pair.client.engine.open_stream(128)
    for _ in range(500):
        pair.client.engine.send(stream_id, bytes(100))
        pair.run_for(0.02)
    assert pair.client.engine.stats().congestion_window < 2 * initial
    pair.client.engine.send(stream_id, bytes(300_000))
    pair.run(lambda: len(pair.server.received[stream_id]) == 350_000)
    assert pair.client.engine.stats().congestion_window > 4 * initial


# --- ends ----------------------------------------------------------------------------------------------


@both_engines
def test_a_close_carries_code_and_message(certificates: CertificatePaths, engine: str) -> None:
    pair = Pair(certificates, engine).connect()
    pair.client.engine.close(0x8B, "going down")
    pair.run(lambda: pair.server.closed is not None)
    assert pair.server.closed is not None
    assert (pair.server.closed.code, pair.server.closed.message) == (0x8B, "going down")
    assert pair.server.closed.is_by_peer
    pair.run(lambda: pair.server.is_terminated and pair.client.is_terminated)


@both_engines
def test_a_close_without_a_code_has_none(certificates: CertificatePaths, engine: str) -> None:
    pair = Pair(certificates, engine).connect()
    pair.server.engine.close(None, "gone")
    pair.run(lambda: pair.client.closed is not None)
    assert pair.client.closed is not None
    assert pair.client.closed.code is None


@both_engines
def test_a_silent_peer_is_given_up(certificates: CertificatePaths, engine: str) -> None:
    pair = Pair(certificates, engine, QUICOptions(idle_timeout_s=5.0)).connect()
    pair.run_for(1)
    pair.conditions.loss = 1.0
    pair.run(lambda: pair.client.closed is not None, limit_s=60)
    assert pair.client.closed is not None
    assert pair.client.closed.code is None
    assert not pair.client.closed.is_by_peer


# --- bad input -----------------------------------------------------------------------------------------


@both_engines
def test_damaged_datagrams_are_as_good_as_lost(certificates: CertificatePaths, engine: str) -> None:
    pair = Pair(certificates, engine, conditions=Conditions(damage=0.1), seed=5).connect()
    data = random.Random(2).randbytes(200_000)
    stream_id = pair.client.engine.open_stream(128)
    pair.client.engine.send(stream_id, data)
    pair.run(lambda: len(pair.server.received[stream_id]) == len(data))
    assert pair.server.received[stream_id] == data


@both_engines
def test_junk_between_datagrams_is_ignored(certificates: CertificatePaths, engine: str) -> None:
    pair = Pair(certificates, engine).connect()
    rng = random.Random(7)
    cid = pair.server.engine.connection_id
    for size in (0, 1, 8, 9, 20, 28, 29, 30, 45, 100, 1200):
        for prefix in (b"", b"\x40" + cid, b"\xc0\x00\x00\x00\x01\x08" + cid, b"\x5f" + cid):
            junk = (prefix + rng.randbytes(1500))[:size]
            pair.server.engine.receive([junk], CLIENT_ADDRESS, pair.now)
            pair.server.take_events()
    (stream_id,) = send_on_streams(pair, 1, 1000)
    pair.run(lambda: len(pair.server.received[stream_id]) == 1000)


# --- everything at once --------------------------------------------------------------------------------


class Traffic:
    """Random streams from one side to the other, and what has to come of them."""

    def __init__(self, sender: Side, receiver: Side, rng: random.Random) -> None:
        self._sender, self._receiver, self._rng = sender, receiver, rng
        self._sent: dict[int, bytearray] = {}
        self._open: list[int] = []
        self._reset: set[int] = set()

    def act(self) -> None:
        """Open, write, finish, reset or stop a stream, or stop or go on reading."""
        rng, engine = self._rng, self._sender.engine
        if engine.streams_left() and rng.random() < 0.3:
            self._open.append(engine.open_stream(rng.choice((0, 128, 255))))
            self._sent[self._open[-1]] = bytearray()
        if rng.random() < 0.1:
            self._receiver.is_consuming = False
        elif rng.random() < 0.3:
            self._receiver.consume_held()
        if not self._open:
            return
        stream_id = rng.choice(self._open)
        match rng.choices(("write", "finish", "reset", "stop"), (80, 10, 5, 5))[0]:
            case "write" | "finish" as action:
                data = rng.randbytes(rng.choice((0, 1, 100, 3000, 30_000)))
                self._sent[stream_id] += data
                engine.send(stream_id, data, fin=action == "finish")
                if action == "finish":
                    self._open.remove(stream_id)
            case "reset":
                engine.reset(stream_id, 1)
                self._abandon(stream_id)
            case _ if stream_id in self._receiver.received:
                self._receiver.engine.stop(stream_id, 2)
                self._abandon(stream_id)

    def _abandon(self, stream_id: int) -> None:
        self._open.remove(stream_id)
        self._reset.add(stream_id)

    def is_complete(self) -> bool:
        """True if all that was not abandoned has arrived; fails if anything else did."""
        for stream_id, data in self._receiver.received.items():
            if stream_id in self._sent:
                assert self._sent[stream_id].startswith(data), f"stream {stream_id} differs"
        return all(
            self._receiver.received[stream_id] == data
            for stream_id, data in self._sent.items()
            if stream_id not in self._reset
        )


@pytest.mark.parametrize("seed", range(15))
def test_random_traffic_both_ways_over_a_bad_network_is_intact(certificates: CertificatePaths, seed: int) -> None:
    rng = random.Random(seed)
    conditions = Conditions(loss=rng.random() * 0.1, jitter_s=rng.random() * 0.02, duplication=rng.random() * 0.1)
    options = QUICOptions(
        stream_window_bytes=20_000, connection_window_bytes=60_000, max_incoming_streams=10, idle_timeout_s=600
    )
    pair = Pair(certificates, options=options, conditions=conditions, seed=seed).connect()
    traffic = [Traffic(pair.client, pair.server, rng), Traffic(pair.server, pair.client, rng)]
    for _ in range(300):
        rng.choice(traffic).act()
        pair.run_for(rng.random() * 0.03)
    for side in (pair.client, pair.server):
        side.consume_held()
    pair.run(lambda: all(each.is_complete() for each in traffic), limit_s=3600)
    assert pair.client.closed is None
    assert pair.server.closed is None
