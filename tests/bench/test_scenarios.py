"""The table of scenarios: every load is what its name says, and fixed before it runs."""

from __future__ import annotations

import pytest

from moq.bench.scenarios import SCENARIOS, VIDEO_BIT_S, VIDEO_FRAMES_PER_S, VIDEO_SIZES, Case
from moq.errors import ConfigError


def test_every_scenario_of_the_documentation_is_there() -> None:
    assert list(SCENARIOS) == [
        "1-1",
        "fan-in",
        "fan-out",
        "request",
        "qos",
        "sizes",
        "telemetry",
        "mixed",
        "rates",
    ]


def test_telemetry_is_eight_topics_of_one_connection_that_take_turns() -> None:
    (case,) = SCENARIOS["telemetry"].cases
    flows = case.flows()
    assert [(flow.publisher, flow.rate, flow.sizes) for flow in flows] == [(0, 50.0, (100,))] * 8
    first = sorted(flow.due_ns(0) for flow in flows)
    assert first == [number * 2_500_000 for number in range(8)]
    assert flows[3].due_ns(50) - flows[3].due_ns(0) == 1_000_000_000


def test_mixed_is_telemetry_and_a_video_of_two_megabits() -> None:
    (telemetry,), (mixed,) = SCENARIOS["telemetry"].cases, SCENARIOS["mixed"].cases
    *flows, video = mixed.flows()
    assert flows == telemetry.flows()
    assert video.is_video
    assert video.rate == VIDEO_FRAMES_PER_S
    assert abs(sum(VIDEO_SIZES) * 8 / len(VIDEO_SIZES) * video.rate - VIDEO_BIT_S) < VIDEO_BIT_S / 1000
    assert video.size(0) == video.size(25) == 8 * video.size(1)
    assert mixed.parameters()["video_bit_s"] == VIDEO_BIT_S


def test_the_cases_cover_what_they_are_to_compare() -> None:
    assert [case.qos for case in SCENARIOS["qos"].cases] == [0, 1, 2, 3]
    assert [case.payload_bytes for case in SCENARIOS["sizes"].cases] == [16, 100, 1024, 16384, 131072, 1048576]
    assert [case.subscribers for case in SCENARIOS["fan-out"].cases] == [10, 100]
    assert SCENARIOS["fan-in"].cases[0].publishers == 10
    rates = [case.rate for case in SCENARIOS["rates"].cases]
    assert rates == sorted(rates)
    assert [name for name, scenario in SCENARIOS.items() if scenario.is_ladder] == ["rates"]


def test_publishers_share_the_rate() -> None:
    flows = Case(rate=1000, publishers=5, topics=2).flows()
    assert [flow.publisher for flow in flows] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert sum(flow.rate for flow in flows) == pytest.approx(1000)


def test_a_load_that_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="size is 10; a message needs 16 bytes"):
        Case(rate=1, payload_bytes=10)
    with pytest.raises(ConfigError, match="rate is 0; it must be greater than 0"):
        Case(rate=0)
    with pytest.raises(ConfigError, match="qos is 4; it must be 0, 1, 2 or 3"):
        Case(rate=1, qos=4)
