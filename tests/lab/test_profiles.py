"""Profiles: what ships, what files may say, and how a mistake in one is told."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from moq.errors import ConfigError
from moq.lab import profiles
from moq.lab.profiles import DIRECTIONS, Direction

if TYPE_CHECKING:
    from pathlib import Path

OURS = profiles.load()


def one(text: str) -> profiles.Profile:
    return profiles.parse(f"[p]\n{text}", "test.toml")["p"]


def test_the_networks_people_ask_for_are_there() -> None:
    wanted = {"clear", "lan", "wifi", "lte", "satellite", "lossy", "bursty", "jitter", "narrow", "handover", "outage"}
    assert set(OURS) == wanted


@pytest.mark.parametrize("name", OURS)
def test_a_profile_of_ours_is_described_and_fits_into_the_router(name: str) -> None:
    profile = OURS[name]
    assert profile.description
    assert json.loads(json.dumps(profile.to_dict()))["name"] == name
    for state in profile.states:
        for direction in DIRECTIONS:
            assert state[direction].rate_mbit <= 50
            assert state[direction].rate_mbit or name == "clear"


def test_both_is_what_a_direction_starts_from() -> None:
    state = one("both = { delay_ms = 10, loss_percent = 1 }\nup = { delay_ms = 30 }").start
    assert (state.up.delay_ms, state.up.loss_percent) == (30, 1)
    assert (state.down.delay_ms, state.down.loss_percent) == (10, 1)
    assert state.rtt_ms == 40


def test_a_step_says_what_differs_from_the_start() -> None:
    profile = one(
        "both = { delay_ms = 10 }\n"
        "[[p.steps]]\nat_s = 1\nboth = { loss_percent = 100 }\n"
        "[[p.steps]]\nat_s = 2\nup = { delay_ms = 20 }\n"
        "[[p.steps]]\nat_s = 3\n"
    )
    outage, slower, back = (step.state for step in profile.steps)
    assert outage.up.is_closed
    assert outage.up.delay_ms == 10
    assert (slower.up.delay_ms, slower.up.loss_percent, slower.down.delay_ms) == (20, 0, 10)
    assert back == profile.start
    assert profile.states == (profile.start, outage, slower)
    assert profile.duration_s == 3


def test_the_loss_of_bursts_is_the_share_of_time_in_them() -> None:
    assert Direction(burst_start_percent=1, burst_end_percent=25).loss_share == pytest.approx(1 / 26)
    half = Direction(burst_start_percent=1, burst_end_percent=25, burst_loss_percent=50)
    assert half.loss_share == pytest.approx(1 / 52)


def test_a_queue_is_what_the_limit_leaves_beside_delayed_packets() -> None:
    direction = Direction(delay_ms=25, rate_mbit=20, limit=250)
    assert direction.delayed_packets == 42
    assert direction.queue_ms == pytest.approx((250 - 42) * 1514 * 8 / 20e6 * 1e3)
    assert Direction().queue_ms is None


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("both = { delay_ms = -1 }", "profile p: up.delay_ms is -1; expected 0 to 60000"),
        ("down = { delay_ms = 'x' }", "profile p: down.delay_ms is 'x'; expected a number"),
        ("both = { delay_ms = true }", "profile p: up.delay_ms is True; expected a number"),
        ("both = { delay_ms = inf }", "profile p: up.delay_ms is inf; expected a number"),
        ("both = { loss_percent = 101 }", "profile p: up.loss_percent is 101; expected 0 to 100"),
        ("both = { delay_ms = 1, jitter_ms = 2 }", "up.jitter_ms is 2; expected at most delay_ms, 1"),
        ("both = { distribution = 'flat' }", "up.distribution is 'flat'; expected uniform or normal"),
        ("both = { limit = 0 }", "up.limit is 0; expected a whole number of packets, 1 to 1000000"),
        ("both = { limit = 1.5 }", "up.limit is 1.5; expected a whole number"),
        ("both = { delay_ms = 300, rate_mbit = 25, limit = 600 }", "up.limit is 600; expected more than 620"),
        ("both = { reorder_percent = 5 }", "up.reorder_percent is 5; expected 0 without a delay"),
        ("both = { burst_start_percent = 1 }", "up.burst_end_percent is 0; expected more than 0"),
        ("both = { burst_end_percent = 1 }", "up.burst_end_percent is 1; expected 0 without burst_start_percent"),
        (
            "both = { burst_start_percent = 1, burst_end_percent = 9, loss_percent = 1 }",
            "up.loss_percent is 1; expected 0 beside burst_start_percent",
        ),
        ("both = { lag_ms = 1 }", "a setting is 'lag_ms'; expected one of delay_ms, jitter_ms"),
        ("sideways = {}", "a setting is 'sideways'; expected one of description, both, up, down, steps"),
        ("both = 5", "both is 5; expected a table of settings"),
        ("description = 5", "description is 5; expected text"),
        ("steps = 5", "steps is 5; expected an array of tables"),
        ("steps = [5]", "step 1: it is 5; expected a table"),
        ("[[p.steps]]\n", "step 1: at_s is None; expected seconds since the start"),
        ("[[p.steps]]\nat_s = 2\n[[p.steps]]\nat_s = 2", "step 2: at_s is 2; expected later than 2"),
        ("[[p.steps]]\nat_s = 2\nboth = { limit = 0 }", "step 1: up.limit is 0"),
    ],
)
def test_what_cannot_be_used_is_told_with_profile_field_value_and_rule(text: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as raised:
        one(text)
    assert str(raised.value).startswith("test.toml: profile p: ")
    assert complaint in str(raised.value)


def test_a_profile_is_a_table() -> None:
    with pytest.raises(ConfigError, match="profile p: it is 5; expected a table"):
        profiles.parse("p = 5", "test.toml")


def test_profiles_of_a_file_win_over_ours(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("[lan]\nboth = { delay_ms = 3 }\n[mine]\n")
    merged = profiles.load(path)
    assert merged["lan"].start.rtt_ms == 6
    assert set(merged) == {*OURS, "mine"}


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read the profiles .*none\.toml: No such file"):
        profiles.load(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("[")
    with pytest.raises(ConfigError, match=r"bad\.toml is not TOML"):
        profiles.load(tmp_path / "bad.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="cannot read the profiles"):
        profiles.load(tmp_path / "binary.toml")


def test_an_unknown_profile_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"profile is 'lossi'; known are clear, lan, "):
        profiles.find(OURS, "lossi")
