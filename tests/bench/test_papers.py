"""`moq bench papers`: each study in its quick form on real brokers, and the arithmetic behind the verdicts."""

from __future__ import annotations

import json
import math
import os
import re
import struct
import subprocess
import sys
import zlib
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import pytest

from moq.bench import brokers
from moq.bench.papers import cli, emqtt, equations, mqttplus, page, picture, published, rfc, standin
from moq.bench.papers.results import Chart, Study, Verdict
from moq.cli.exits import Exit
from moq.cli.main import make_parser

if TYPE_CHECKING:
    from pathlib import Path

VOID = "meta"
"""The only element of the page that has no end."""


@pytest.fixture(autouse=True)
def _keep_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pinning would outlast the test."""
    monkeypatch.setattr(brokers, "pin_generator", lambda: None)


def papers(study: str, out: Path) -> dict[str, Any]:
    args = make_parser().parse_args(["bench", "papers", "--quick", "--study", study, "--out", str(out)])
    assert args.run(args) == Exit.OK
    written = json.loads((out / cli.FIGURES).read_text())
    assert written["command"] == f"moq bench papers --study {study} --quick"
    assert written["machine"]["date"]
    (only,) = written["studies"]
    assert only["comparisons"]
    check_page((out / cli.REPORT).read_text(), only)
    return dict(only)


class Checker(HTMLParser):
    """Complains of elements that are not closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.count: dict[str, int] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.count[tag] = self.count.get(tag, 0) + 1
        assert not {name for name, _ in attrs} & {"src", "srcset"}, "the page must need nothing else"
        if tag != VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """`<path …/>` of SVG."""

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def check_page(text: str, study: dict[str, Any]) -> None:
    checker = Checker()
    checker.feed(text)
    assert checker.open == []
    assert checker.count["svg"] == len(study["charts"])
    assert len(re.findall(r'class="(?:met|missed)"', text)) == len(study["verdicts"])


# --- the studies ---


@pytest.mark.timeout(180)
def test_emqtt_counts_the_messages_of_every_exchange(tmp_path: Path) -> None:
    study = papers("emqtt", tmp_path)
    runs = study["figures"]["runs"]
    assert [(run["subscribers"], run["variant"]) for run in runs] == [
        (count, variant) for count in (1, *emqtt.QUICK.subscribers) for variant in emqtt.VARIANTS
    ]
    for run in runs:
        count, is_plain = run["subscribers"], run["variant"] == emqtt.PLAIN
        # Each exchange has four packets: of the query, to each subscriber, and of each response to and from the broker.
        assert run["messages"] == [4 + 12 * count if is_plain else 4 + 4 * count] * emqtt.QUICK.publishes
        assert run["set_up_messages"] == (2 if is_plain else 0)
        delays = run["delays_ms"]
        assert len(delays[emqtt.END_TO_END]) == len(delays[emqtt.COMPLETION]) == emqtt.QUICK.publishes
        assert len(delays[emqtt.BROKER_SUBSCRIBER]) == emqtt.QUICK.publishes * count
        assert all(delay > 0 for kind in delays.values() for delay in kind)
    messages = [row for row in study["comparisons"] if row["quantity"].startswith("messages to confirm one query")]
    assert [(row["paper"], row["ours"]) for row in messages] == [("18", "18"), ("9", "8"), ("9", "8")]


@pytest.mark.comparison
@pytest.mark.timeout(180)
def test_rfc_writes_what_arithmetic_allows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = papers("rfc", tmp_path)
    runs = study["figures"]["runs"]
    assert [(run["publishers"], run["variant"]) for run in runs] == [
        (publishers, variant) for publishers in rfc.QUICK.publishers for variant in rfc.VARIANTS
    ]
    for run in runs:
        assert run["written_bytes"] % run["message_bytes"] == 0
        if run["variant"] == rfc.STANDARD:
            assert run["share_of_limit"] == 1
        else:
            # Where the machine is so loaded that the last message is late, one more period begins, or two.
            messages = run["written_bytes"] // run["message_bytes"]
            paced = 9
            assert run["limit_messages"] - 3 * paced <= messages <= run["limit_messages"] + 2 * paced
    said = capsys.readouterr()
    assert "2 runs, about" in said.err
    assert str(tmp_path / cli.REPORT) in said.out


@pytest.mark.comparison
@pytest.mark.timeout(180)
def test_mqtt_plus_sends_what_its_equations_say(tmp_path: Path) -> None:
    study = papers("mqttplus", tmp_path)
    lengths = mqttplus.parameters(mqttplus.QUICK)
    ((sensors, subscribers),) = mqttplus.QUICK.shapes
    plain, keyword, participants = study["figures"]["scalar"]
    assert plain["downlink_bytes"] == equations.plain_bytes(45, sensors, subscribers, lengths.p)
    assert keyword["downlink_bytes"] == subscribers * lengths.exact_skr()
    assert participants["downlink_bytes"] == subscribers * lengths.exact_rpt(sensors)
    pictures, counted = study["figures"]["images"]
    assert (
        pictures["messages"]
        == counted["messages"]
        == math.prod((*mqttplus.QUICK.image_shapes[0], mqttplus.QUICK.images))
    )
    assert pictures["downlink_bytes"] > 90 * counted["downlink_bytes"]
    assert counted["worker_rss_bytes"] > 0
    for run in (plain, keyword, participants, pictures, counted):
        assert run["wrong"] == 0
        assert run["cpu_s"] > 0
        assert run["rss_bytes"] > 1_000_000


def test_a_stand_in_for_the_detector_is_found_like_any_plug_in(tmp_path: Path) -> None:
    standin.install(tmp_path)
    program = (
        "from moq.functions.plugins import find; found = find()[0].load(); print(found.description, found.call(b'abc'))"
    )
    said = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout == f"{standin.count_nobody.description} 0\n"


# --- the arithmetic ---


def test_a_verdict_follows_from_the_numbers() -> None:
    assert Verdict("x", 0.75, "at most", 0.75).is_met
    assert not Verdict("x", 0.76, "at most", 0.75).is_met
    assert Verdict("x", 5.0, "at least", 5.0).is_met
    assert not Verdict("x", 4.9, "at least", 5.0).is_met
    assert not Verdict("x", math.nan, "at most", 1.0).is_met
    assert not Verdict("x", math.nan, "at least", 1.0).is_met
    assert str(Verdict("x", 4.9, "at least", 5.0, " s")) == "x: 4.9 s; wanted at least 5 s"


def test_a_missed_bound_fails_a_full_run_and_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def measured(chosen: list[str], *, is_quick: bool) -> list[Study]:
        return [Study("RFC", "t", "r", [], verdicts=[Verdict("a < b", 2.0, "at most", 1.0)])]

    monkeypatch.setattr(cli, "_run", measured)
    arguments = ["bench", "papers", "--study", "rfc", "--out", str(tmp_path)]
    args = make_parser().parse_args(arguments)
    assert args.run(args) == Exit.FAILURE
    assert "NOT MET a < b: 2; wanted at most 1" in capsys.readouterr().out
    assert "0 of 1 bounds met" in (tmp_path / cli.REPORT).read_text()
    args = make_parser().parse_args([*arguments, "--quick"])
    assert args.run(args) == Exit.OK


@pytest.mark.parametrize(
    ("period_s", "deliveries"),
    [(0.0, 18_000), (5.0, 3), (2.5, 5), (1.25, 9), (100.0, 2)],
)
def test_a_period_allows_the_first_message_and_one_for_each_period_begun(period_s: float, deliveries: int) -> None:
    assert rfc.Schedule(180, 10.0).deliveries(period_s) == deliveries


def test_messages_are_due_evenly_and_all_of_them() -> None:
    schedule = rfc.Schedule(4, 1.0)
    assert schedule.messages == 40
    assert [schedule.due(elapsed_s) for elapsed_s in (0.0, 0.024, 0.026, 0.976, 9.0)] == [1, 1, 2, 40, 40]
    assert schedule.span_s == pytest.approx(0.975)


def test_the_mix_of_periods_is_that_of_the_paper() -> None:
    periods = rfc.Plan().periods_of_subscribers()
    assert {period_s: periods.count(period_s) for period_s in set(periods)} == {5.0: 30, 2.5: 30, 1.25: 30, 0.0: 10}
    assert [rfc.topic_filter(period_s) for period_s in (5.0, 1.25, 0.0)] == [
        "$MRP;500/degree",
        "$MRP;125/degree",
        "degree",
    ]


def test_pubreq_grows_as_in_table_3() -> None:
    plain = emqtt.publish_bytes(None)
    assert emqtt.publish_bytes(0) - plain == published.EMQTT_PUBLISH_BYTES[0] - published.EMQTT_PUBLISH_BYTES_QOS2
    # Ours has a flag byte and a count before the identifiers, which the paper's packets do without.
    for count, paper in published.EMQTT_PUBLISH_BYTES.items():
        assert emqtt.publish_bytes(count) - emqtt.publish_bytes(0) == paper - 14 + (2 if count else 0)


def test_a_number_is_as_long_as_in_mqtt_plus() -> None:
    lengths = mqttplus.parameters(mqttplus.Plan())
    assert lengths.p == published.MQTTPLUS_PUBLISH_BYTES
    assert len(mqttplus.sensor_name(99)) == lengths.w == published.MQTTPLUS_SENSOR_BYTES
    assert len(published.MQTTPLUS_OPERATOR) == 21


@pytest.mark.parametrize("sensors", [1, 2, 10, 50, 100])
def test_the_average_of_all_sensors_is_as_long_as_a_value(sensors: int) -> None:
    thousandths = [round(float(mqttplus.sensor_value(number, sensors)) * 1000) for number in range(sensors)]
    assert sum(thousandths) == mqttplus.MEAN * sensors
    assert {len(mqttplus.sensor_value(number, sensors)) for number in range(sensors)} == {6}


def test_the_equations_are_those_of_the_paper() -> None:
    lengths = equations.Parameters(p=44, o=21, w=8)
    assert equations.ratio(45, 100, lengths.p, lengths.skr()) == pytest.approx(100 * 45 * 44 / 65)
    assert equations.ratio(45, 100, lengths.p, lengths.rpt(100)) == pytest.approx(100 * 45 * 44 / 865)
    assert equations.plain_bytes(45, 100, 10, 44) == 45 * 100 * 10 * 44


@pytest.mark.parametrize("sensors", [1, 10, 100])
def test_the_equations_to_the_byte_give_the_length_of_a_result(sensors: int) -> None:
    plan = mqttplus.Plan()
    lengths = mqttplus.parameters(plan)
    names = ";".join(mqttplus.sensor_name(number) for number in range(sensors))
    for name, q in (("$AGGREGATE", lengths.exact_skr()), (names, lengths.exact_rpt(sensors))):
        result = f"{mqttplus.operator(plan)}/{published.MQTTPLUS_TOPIC}{name}"
        header = 4 if len(result) + 2 + 6 < 128 else 5
        # The paper's P has a length of one byte; a topic of hundreds of names needs two.
        assert q == header + len(result) + 6 - (header - 4)


def test_a_picture_has_the_size_asked_for_and_can_be_read() -> None:
    data = picture.draw(4500)
    assert 4500 <= len(data) < 4500 * 1.05
    width, height = struct.unpack_from(">II", data, 16)
    (size,) = struct.unpack_from(">I", data, 33)
    pixels = zlib.decompress(data[41 : 41 + size])
    assert len(pixels) == height * (width + 1)


def test_a_page_escapes_what_it_is_given() -> None:
    chart = Chart("a < b", "x & y", "z", {"<s>": [(1, 1), (2, 4)]})
    study = Study("X", "<title>", "r", ["a < b"], charts=[chart])
    text = page.render([study], {"date": "<now>"}, "moq bench papers")
    assert "&lt;title&gt;" in text
    assert "&lt;s&gt;" in text
    check_page(text, {"charts": [chart], "verdicts": []})
