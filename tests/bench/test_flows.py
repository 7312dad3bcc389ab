"""The readers of the load generator: nothing that goes wrong on the way escapes them."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moq.bench.dialects import MMQP, MQTT
from moq.bench.flows import Block, ComparingReader, Flow, Place, Tally, WalkingReader
from moq.bench.latencies import Latencies

MS = 1_000_000


class Bench:
    """Two flows at one subscriber."""

    def __init__(self, *, qos: int = 0) -> None:
        self.done: list[Block] = []
        self.sent: list[bytes] = []
        self.flows = [Flow(index, MMQP().frame(index, qos, 40), 1, self.done.append) for index in range(2)]
        self.places = [Place(flow) for flow in self.flows]
        self.tally = Tally(Latencies())
        answers = MMQP().first_answers(qos) if qos else []
        self.comparing = ComparingReader(self.places[0], self.tally)
        self.walking = WalkingReader(self.places, self.tally, MMQP(), answers, self.sent.append)

    def frames(self, flow: int, count: int, packet_id: int = 1) -> list[bytes]:
        data = self.flows[flow].make_block(count, MS, 0, packet_id).data
        size = len(data) // count
        return [data[at : at + size] for at in range(0, len(data), size)]

    @property
    def faults(self) -> tuple[int, int, int]:
        return self.tally.lost, self.tally.repeated, self.tally.disordered


@given(st.lists(st.integers(1, 5), min_size=1), st.lists(st.integers(1, 100)))
def test_comparing_counts_every_message_however_the_bytes_are_cut(blocks: list[int], cuts: list[int]) -> None:
    bench = Bench()
    data = b"".join(bench.flows[0].make_block(count, MS, 0, 1).data for count in blocks)
    for cut in cuts:
        assert bench.comparing.feed(data[:cut], 3 * MS) is None
        data = data[cut:]
    assert bench.comparing.feed(data, 3 * MS) is None
    assert bench.tally.received == sum(blocks) == bench.places[0].seq
    assert bench.tally.latencies.counts == {2000: sum(blocks)}
    assert len(bench.done) == len(blocks)


def test_walking_explains_what_comparing_found_different() -> None:
    bench = Bench()
    first, second, _, fourth = bench.frames(0, 4)
    assert bench.comparing.feed(first, MS) is None
    rest = bench.comparing.feed(second + fourth, MS)
    assert rest == second + fourth
    bench.walking.feed(rest, MS)
    assert bench.tally.received == 3
    assert bench.faults == (1, 0, 0)


def test_comparing_hands_over_what_was_cut_inside_a_frame() -> None:
    bench = Bench()
    first, second, third = bench.frames(0, 3)
    # The frames differ in their sequence numbers only, which come after the first bytes.
    assert bench.comparing.feed(first + second[:5], MS) is None
    assert bench.comparing.feed(third[5:], MS) == second[:5] + third[5:]


def test_comparing_does_not_take_what_was_never_sent() -> None:
    bench = Bench()
    (frame,) = bench.frames(0, 1)
    assert bench.comparing.feed(frame + frame, MS) == frame


def test_messages_due_at_different_times_have_latencies_of_their_own() -> None:
    bench = Bench()
    data = bench.flows[0].make_block(3, 10 * MS, MS, 1).data
    bench.comparing.feed(data, 20 * MS)
    assert bench.tally.latencies.counts == {10_000: 1, 9_000: 1, 8_000: 1}


@given(
    st.lists(st.integers(0, 1), min_size=1, max_size=30),
    st.data(),
)
def test_walking_agrees_with_a_naive_count_of_what_went_wrong(flows: list[int], data: st.DataObject) -> None:
    bench = Bench()
    sent = [(flow, bench.frames(flow, 1)[0]) for flow in flows]
    arriving = data.draw(st.lists(st.sampled_from(sent)))
    stream = b"".join(frame for _, frame in arriving)
    cut = data.draw(st.integers(0, len(stream)))
    bench.walking.feed(stream[:cut], MS)
    bench.walking.feed(stream[cut:], MS)
    naive: Counter[str] = Counter()
    for flow in (0, 1):
        numbers = {frame: number for number, (_, frame) in enumerate(pair for pair in sent if pair[0] == flow)}
        seen: list[int] = []
        for number in (numbers[frame] for which, frame in arriving if which == flow):
            naive["repeated"] += number in seen
            naive["disordered"] += number not in seen and number < max(seen, default=0)
            seen.append(number)
        naive["lost"] += max(seen, default=-1) + 1 - len(set(seen))
        naive["received"] += len(set(seen))
    assert bench.faults == (naive["lost"], naive["repeated"], naive["disordered"])
    assert bench.tally.received == naive["received"]


def test_walking_passes_over_packets_that_are_no_messages() -> None:
    bench = Bench()
    frames = bench.frames(0, 3)
    acknowledgement = MMQP().first_answers(1)[9]
    for byte in frames[0] + acknowledgement + frames[1] + acknowledgement + acknowledgement + frames[2]:
        bench.walking.feed(bytes([byte]), MS)
    assert bench.tally.received == 3
    assert bench.faults == (0, 0, 0)


@pytest.mark.parametrize("qos", [1, 2])
def test_walking_acknowledges_every_message(qos: int) -> None:
    bench = Bench(qos=qos)
    frames = bench.frames(0, 3, packet_id=0xFFFE)
    bench.walking.feed(b"".join(frames), MS)
    answers = MMQP().first_answers(qos)
    assert b"".join(bench.sent) == answers[0xFFFE] + answers[0xFFFF] + answers[1]


def test_walking_answers_a_release() -> None:
    bench = Bench(qos=2)
    release = MMQP().next_answer(MMQP().first_answers(2)[7])
    assert release is not None
    bench.walking.feed(release, MS)
    assert bench.sent == [MMQP().first_answers(1)[7]]


def test_a_block_is_done_when_every_receiver_has_passed_it() -> None:
    done: list[Block] = []
    flow = Flow(0, MQTT().frame(0, 0, 16), 2, done.append)
    first, second = flow.make_block(2, 0, 0, 1), flow.make_block(2, 0, 0, 1)
    quick, slow = Place(flow), Place(flow)
    quick.advance(4)
    assert done == []
    slow.advance(3)
    assert done == [first]
    slow.advance(4)
    assert done == [first, second]


def test_percentiles_are_the_least_latency_so_many_do_not_exceed() -> None:
    latencies = Latencies()
    assert latencies.percentiles_us() == {}
    for latency_us in range(1, 1001):
        latencies.counts[latency_us] += 1
    assert latencies.percentiles_us() == {"p50": 500, "p95": 950, "p99": 990, "p99.9": 999}
    assert latencies.total == 1000
