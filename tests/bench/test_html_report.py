"""The report of a benchmark says what was put into it, stands alone, and is a page that a browser draws."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
import zlib
from html import unescape
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import pytest

from moq.bench.html_report import render, steps
from moq.bench.report_words import LOOKS, bytes_text, digits, look
from moq.bench.results import Results
from tests.bench.synthetic import TRUTH, everything, lossy, make_results, make_run

if TYPE_CHECKING:
    from pathlib import Path

VOID = ("meta", "br")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


class Checker(HTMLParser):
    """Complains of elements that are not closed in order, and of anything from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.count: dict[str, int] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.count[tag] = self.count.get(tag, 0) + 1
        for name, value in attrs:
            assert name not in ("src", "srcset", "data", "onload", "onclick"), "the page must need nothing else"
            assert name != "href" or (value or "").startswith("#")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """`<line …/>` of SVG."""

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def checked(text: str) -> Checker:
    checker = Checker()
    checker.feed(text)
    checker.close()
    assert checker.open == []
    return checker


def findings_of(page: str) -> list[str]:
    """The sentences at its top."""
    return [
        unescape(re.sub("<[^>]+>", "", item))
        for item in re.findall(r"<li(?: class=\"warning\")?>(<strong>.*?)</li>", page, re.DOTALL)
    ]


@pytest.fixture(scope="module")
def page() -> str:
    return render(everything(repetitions=4))


def test_the_page_is_well_formed_and_needs_nothing_else(page: str) -> None:
    count = checked(page).count
    assert "script" not in count
    assert "link" not in count
    assert "http" not in page.replace("http-equiv", "")
    assert "url(" not in page
    assert count["svg"] >= 15
    assert page.count('role="img"') == page.count("<title>") - 1, "every chart has a title, and so has the page"


def test_the_page_has_every_section_it_must(page: str) -> None:
    for heading in ("Findings", "At a glance", "telemetry on lossy", "telemetry on outage", "fan-out", "idle"):
        assert f">{heading}</h2>" in page
    for chart in (
        "messages delivered within a latency",
        "the slowest: messages above a latency",
        "percentiles with their intervals",
        "p50 against load",
        "p99 against load",
        "deliveries against the broker's processor time",
        "p99 of each tenth of a second",
    ):
        assert f"<title>{chart}" in page.replace("&#x27;", "'")
    assert "moq bench matrix --repeat 5" in page
    assert "2 x Imagined" in page
    assert "link down" in page
    assert "link up" in page
    assert "@media print" in page
    assert 'name="viewport"' in page


def test_findings_give_the_ratio_that_was_put_in_with_its_interval() -> None:
    (told,) = findings_of(render(make_results(lossy(8))))
    assert told.startswith("On lossy, telemetry: p99 of MoQ over QUIC with a stream per topic is ")
    match = re.search(r"([\d.]+) \[([\d.]+), ([\d.]+)\] of that of MoQ over TCP\+TLS", told)
    assert match, told
    ratio, low, high = map(float, match.groups())
    truth = TRUTH["moq quic"] / TRUTH["moq tls"]
    assert low <= truth <= high
    assert low < ratio < high < 1


def test_findings_claim_nothing_where_the_interval_includes_1() -> None:
    runs = [make_run(contender=name, repetition=at) for at in range(5) for name in ("moq quic", "moq tls")]
    (told,) = findings_of(render(make_results(runs)))
    assert "no difference shown to MoQ over TCP+TLS" in told
    assert "of that of" not in told
    assert "times that of" not in told


def test_findings_of_a_single_repetition_say_that_nothing_can_be_said() -> None:
    (told,) = findings_of(render(make_results(lossy(1))))
    assert "without repetitions nothing is said about differences" in told
    assert "[" not in told


def test_findings_do_not_hide_who_lost_messages_or_did_not_keep_up(page: str) -> None:
    told = "\n".join(findings_of(page))
    assert "At 16,000/s amqtt over TCP did not keep up in 4 of 4 runs and lost" in told
    assert "its latencies are of the others" in told
    assert "Network outage: what was measured is more than 10 % off" in told


def test_findings_warn_of_a_busy_machine_and_tell_figures_of_the_scenarios_own() -> None:
    extra = {"idle_connections": 1000.0, "idle_bytes_per_connection": 8192.0, "idle_cpu_percent": 1.0}
    runs = [make_run(scenario="idle", extra=extra, repetition=at, others_cpu_share=0.7) for at in range(3)]
    busy, idle = findings_of(render(make_results(runs)))
    assert "0.7 processors busy" in busy
    assert "8.00 [" in idle
    assert "kiB of the broker's memory for each" in idle


def test_calibration_is_shown_as_wanted_and_measured(page: str) -> None:
    text = unescape(re.sub("<[^>]+>", " ", page.partition('id="networks"')[2]))
    words = " ".join(text.split())
    assert "lossy round trip, ms 50 51.2 yes" in words
    assert "lossy loss 0.02 0.0206 yes" in words
    assert "lossy rate, bit/s, up 20M 19.1M yes" in words
    assert "outage round trip, ms 30 36 NO" in words


def test_a_contender_has_one_colour_on_the_whole_page(page: str) -> None:
    for name in TRUTH:
        assert page.count(look(name).colour) > 10
    assert len({known.colour for name, known in LOOKS.items() if "resumed" not in name}) == len(LOOKS) - 1
    assert look("somebody new").name == "somebody new"
    assert look("somebody new") == look("somebody new")


def test_what_a_run_is_called_cannot_become_markup() -> None:
    run = make_run(scenario="<b>x", contender="<i>y", profile="<u>z", parameters={"<p>": "<q>"}, messages=50)
    text = render(Results(command="<script>", machine={"<m>": "<n>"}, runs=[run, run]))
    assert "script" not in checked(text).count
    assert not {"b", "i", "u", "q"} & checked(text).count.keys()


def test_a_report_without_runs_says_so() -> None:
    text = render(Results(command="moq bench run"))
    checked(text)
    assert "There are no runs" in text


def test_steps_are_named_by_what_they_do_to_the_link() -> None:
    down, up, slow = {"loss_percent": 100}, {"loss_percent": 0}, {"delay_ms": 50}
    told = {"profile": {"steps": [{"at_s": 1, "up": down}, {"at_s": 2.5, "both": up}, {"at_s": 4, "both": slow}]}}
    assert [(mark.x, mark.label) for mark in steps(told)] == [(1.0, "link down"), (2.5, "link up"), (4.0, "change")]
    assert steps({}) == []
    assert steps({"steps": "none"}) == []


def test_figures_have_three_digits() -> None:
    assert [digits(value) for value in (0, 0.0123, 0.456, 1.234, 12.34, 123.4, 12345)] == [
        *("0", "0.012", "0.46", "1.23", "12.3", "123", "12,345")
    ]
    assert [bytes_text(value) for value in (100, 2048, 3 << 20, 5 << 30)] == [
        "100 B",
        "2.00 kiB",
        "3.00 MiB",
        "5.00 GiB",
    ]


def pixels(path: Path) -> tuple[int, int, set[bytes]]:
    """Width, height and every eighth row of an 8-bit PNG, as it is packed: enough to tell a drawing from a blank."""
    data = path.read_bytes()
    width, height, depth, kind = struct.unpack_from(">IIBB", data, 16)
    assert depth == 8
    size = {2: 3, 6: 4}[kind]
    at, packed = 8, b""
    while at < len(data):
        (length,) = struct.unpack_from(">I", data, at)
        if data[at + 4 : at + 8] == b"IDAT":
            packed += data[at + 8 : at + 8 + length]
        at += length + 12
    raw = zlib.decompress(packed)
    step = width * size + 1
    return width, height, {raw[row * step + 1 :][:step] for row in range(0, height, 8)}


@pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's chromium: apt install chromium")
@pytest.mark.parametrize(("width", "height"), [(1200, 1600), (500, 1600)], ids=["desk", "telephone"])
def test_a_browser_draws_the_page(page: str, tmp_path: Path, width: int, height: int) -> None:
    file, picture = tmp_path / "report.html", tmp_path / "report.png"
    file.write_text(page)
    assert CHROMIUM is not None
    subprocess.run(
        [
            *(CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
            *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
            *("--hide-scrollbars", f"--user-data-dir={tmp_path / 'profile'}", f"--screenshot={picture}"),
            *(f"--window-size={width},{height}", file.as_uri()),
        ],
        check=True,
        capture_output=True,
        timeout=50,
    )
    drawn_width, drawn_height, rows = pixels(picture)
    assert (drawn_width, drawn_height) == (width, height)
    assert len(rows) > 50, "a blank page has rows that are all alike"
