"""The metrics as declared, documented, shown in the dashboard and exposed: they are the same."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from moq.broker.figures import Figures
from moq.broker.link import LinkState
from moq.reasons import Reason
from moq.server.links import MAX_SAMPLED, LinkTally
from moq.server.metrics.exposition import Samples
from moq.server.metrics.families import FAMILIES
from tests.server.counting import CountingClient
from tests.server.scraping import scrape
from tests.server.wire_client import until

if TYPE_CHECKING:
    from moq.server import Server
    from tests.server.scraping import Scrape
    from tests.server.wire_client import Wires

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"
DASHBOARD = json.loads((DOCS / "examples/grafana-dashboard.json").read_text())
PAGE = (DOCS / "reference/metrics.md").read_text()

SUFFIXES = ("_bucket", "_sum", "_count")


def expressions() -> list[str]:
    """Every query of the dashboard."""
    return [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", [])]


def names_in(expression: str) -> set[str]:
    return set(re.findall(r"\b(?:moq|process)_[a-z0-9_]+", expression))


def sample_names(seen: Scrape) -> set[str]:
    """Every name that can be asked for, also of metrics that have no values yet."""
    named = {sample.name for family in seen.families.values() for sample in family.samples}
    for family in FAMILIES.values():
        named |= {family.name + suffix for suffix in SUFFIXES} if family.kind == "histogram" else {family.name}
    return named


# --- one declaration ----------------------------------------------------------------------------------


async def test_a_broker_exposes_what_is_declared_and_nothing_else(server: Server) -> None:
    seen = await scrape(server)
    exposed = {
        f"{family.name}_total" if family.type == "counter" else family.name: (family.type, family.documentation)
        for family in seen.families.values()
        if not family.name.startswith("process_")
    }
    assert exposed == {family.name: (family.kind, family.help) for family in FAMILIES.values()}


def test_names_and_labels_follow_the_conventions() -> None:
    for family in FAMILIES.values():
        assert re.fullmatch(r"moq(_[a-z]+)+", family.name)
        assert family.name.endswith("_total") == (family.kind == "counter")
        assert not re.search(r"_(ms|us|ns|kb|mb|milliseconds|kilobytes)\b", family.name), "base units only"
        assert set(family.labels).isdisjoint({"topic", "client_id", "client", "peer", "address"})


def test_every_counter_of_the_core_is_declared() -> None:
    groups = ("dropped_", "refused_")
    alone = {name for name in Figures().counters() if not name.startswith(groups)}
    assert {f"moq_{name}_total" for name in alone} <= FAMILIES.keys()


def test_the_reference_has_a_row_for_each() -> None:
    rows = re.findall(r"^\| `(moq_\w+)` \| (\w+) \| (.*?) \| (.+) \|$", PAGE, re.MULTILINE)
    documented = {name: (kind, tuple(re.findall(r"`(\w+)`", labels)), what) for name, kind, labels, what in rows}
    assert documented == {family.name: (family.kind, family.labels, family.help) for family in FAMILIES.values()}


def test_the_reference_explains_each_label() -> None:
    labels = {label for family in FAMILIES.values() for label in family.labels}
    (table,) = re.findall(r"\| label \| values \|\n(.+?)\n\n", PAGE, re.DOTALL)
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == labels - {"reason"}
    with_reason = {family.name for family in FAMILIES.values() if "reason" in family.labels}
    (table,) = re.findall(r"`reason` depends on the metric:\n\n(.+?)\n\n", PAGE, re.DOTALL)
    assert set(re.findall(r"`(moq_\w+)`", table)) == with_reason


def test_a_value_of_a_metric_that_is_not_declared_is_a_mistake() -> None:
    samples = Samples()
    with pytest.raises(KeyError):
        samples.add("moq_unheard_of_total", 1)
    with pytest.raises(AssertionError, match="has labels"):
        samples.add("moq_messages_dropped_total", 1)


# --- the dashboard ------------------------------------------------------------------------------------


async def test_the_dashboard_asks_for_metrics_that_there_are(server: Server) -> None:
    asked = {name for expression in expressions() for name in names_in(expression)}
    assert asked
    assert asked <= sample_names(await scrape(server))


def test_the_dashboard_shows_every_family_but_a_few() -> None:
    asked = {name for expression in expressions() for name in names_in(expression)}
    shown = {name for name in FAMILIES if asked & {name, *(name + suffix for suffix in SUFFIXES)}}
    missing = FAMILIES.keys() - shown
    assert len(missing) < len(FAMILIES) / 3, f"not shown: {sorted(missing)}"


def test_every_query_of_the_dashboard_is_for_the_chosen_brokers() -> None:
    for expression in expressions():
        selectors = re.findall(r"(?:moq|process)_[a-z0-9_]+(\{[^}]*\})?", expression)
        assert all('instance=~"$instance"' in selector for selector in selectors), expression
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    assert [variable["name"] for variable in DASHBOARD["templating"]["list"]] == ["datasource", "instance"]


# --- links --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["tcp", "tls", "quic"])
async def test_what_a_link_has_counted_stays_when_it_is_gone(server: Server, data_dir: Path, scheme: str) -> None:
    client = await CountingClient.connect(server.ports[scheme], scheme, "p", data_dir)
    await client.register("n")
    for number in range(1, 21):
        client.publish(bytes(1000), 1, number)
    await client.until(lambda: client.answers == 20)
    during = await scrape(server)
    assert during.value("moq_links_open") == 1
    assert during.value("moq_packets_sent_total", transport=scheme) > 0
    assert during.value("moq_packets_received_total", transport=scheme) > 0
    assert during.value("moq_round_trip_seconds_count", transport=scheme) == 1
    assert during.value("moq_round_trip_seconds_sum", transport=scheme) > 0
    assert during.value("moq_congestion_window_bytes_sum", transport=scheme) > 0
    await client.leave()
    await until(lambda: not server.connections)
    after = await scrape(server)
    assert after.value("moq_links_open") == 0
    assert after.value("moq_links_accepted_total", transport=scheme) == 1
    for name in ("moq_packets_sent_total", "moq_packets_received_total"):
        assert after.value(name, transport=scheme) >= during.value(name, transport=scheme)
    assert after.value("moq_round_trip_seconds_count", transport=scheme) == 1, "the link is not there any more"


async def test_streams_of_quic_are_counted_in_both_directions(server: Server, data_dir: Path) -> None:
    publisher = await CountingClient.connect(server.ports["quic"], "quic", "p", data_dir)
    subscriber = await CountingClient.connect(server.ports["quic"], "quic", "s", data_dir)
    await publisher.register("n")
    await subscriber.subscribe("n", 0)
    publisher.publish(b"x", 0)
    await subscriber.until(lambda: subscriber.received[0] == 1)
    during = await scrape(server)
    assert during.value("moq_streams_open", direction="in") == 3, "two control streams, one of a topic"
    assert during.value("moq_streams_open", direction="out") == 1
    publisher.link.lane(1).reset(Reason.QUOTA_EXCEEDED)
    await until(lambda: bool(sum(kind.lanes_ended["reset"] for kind in server.traffic)))
    reset = await scrape(server)
    assert reset.value("moq_streams_reset_total", reason="quota_exceeded") == 1
    assert reset.value("moq_streams_closed_total", direction="in", reason="reset") == 1
    await publisher.leave()
    await subscriber.leave()
    await until(lambda: not server.connections)
    after = await scrape(server)
    assert after.value("moq_streams_open") == 0
    assert after.value("moq_streams_opened_total", direction="in") == 3
    assert after.value("moq_streams_opened_total", direction="out") == 1
    assert after.value("moq_streams_closed_total", reason="link") == 3


async def test_a_connection_of_tls_that_is_none_is_counted(server: Server, wires: Wires) -> None:
    stranger = await wires.open(server.ports["tls"])
    stranger.send_bytes(b"this is no TLS")
    await stranger.read_to_the_end()
    await until(lambda: server.listeners["tls"].figures.handshakes_failed["tls"] == 1)
    assert (await scrape(server)).value("moq_handshakes_failed_total", transport="tls", reason="tls") == 1


async def test_a_scrape_tells_of_sessions_whose_client_is_away(server: Server, data_dir: Path) -> None:
    client = await CountingClient.connect(server.ports["tcp"], "tcp", "s", data_dir)
    await client.subscribe("n", 1)
    await client.cut()
    await until(lambda: not server.connections)
    other = await CountingClient.connect(server.ports["tcp"], "tcp", "p", data_dir)
    await other.register("n")
    other.publish(b"12345", 1, 1)
    await other.until(lambda: other.answers == 1)
    seen = await scrape(server)
    assert (seen.value("moq_sessions", state="connected"), seen.value("moq_sessions", state="away")) == (1, 1)
    assert seen.value("moq_messages_waiting") == seen.value("moq_messages_waiting_max") == 1
    assert seen.value("moq_waiting_bytes") == 5
    await other.leave()


class StandIn:
    """A link and its handler, of which a tally wants a few numbers."""

    transport = "tcp"
    unsent = 3

    def __init__(self) -> None:
        self.link = self
        self.seen: LinkState | None = None
        self.looks = 0
        self.counted = LinkState(0.1, 1000, 10, 0, 0, 0, None)

    def state(self) -> LinkState:
        self.looks += 1
        self.counted = replace(self.counted, packets_sent=self.counted.packets_sent + 1)
        return self.counted


def test_a_scrape_looks_at_a_bounded_number_of_links_and_at_each_in_its_turn() -> None:
    tally, links = LinkTally(), [StandIn() for _ in range(2 * MAX_SAMPLED + 500)]
    tally.sample(links)  # type: ignore[arg-type]
    assert sum(link.looks for link in links) == MAX_SAMPLED
    for _ in range(2):
        tally.sample(links)  # type: ignore[arg-type]
    assert {link.looks for link in links} == {1}
    network = tally.by_transport["tcp"]
    assert network.packets_sent == network.round_trip_s.count == len(links)
    for link in links:
        tally.fold(link)  # type: ignore[arg-type]
    assert network.packets_sent == sum(link.counted.packets_sent for link in links)
