"""Debian's Prometheus scrapes a running broker with the configuration we ship, and answers the dashboard's queries."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import subprocess
import urllib.parse
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import moq
from tests.running import PATIENCE_S, Broker, Running
from tests.server.test_metrics import expressions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CONFIGURATION = Path(__file__).resolve().parent.parent.parent / "docs/examples/prometheus.yml"

pytestmark = pytest.mark.skipif(
    shutil.which("prometheus") is None or shutil.which("promtool") is None,
    reason="prometheus is not installed: apt install prometheus",
)


def filled_in(expression: str) -> str:
    """A query of the dashboard as Grafana sends it."""
    return expression.replace("$__rate_interval", "1m").replace("$instance", ".*")


def test_promtool_accepts_the_configuration_and_every_query_of_the_dashboard(tmp_path: Path) -> None:
    rules = [{"record": f"query:{n}", "expr": filled_in(text)} for n, text in enumerate(expressions())]
    (tmp_path / "rules.yml").write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    for what, path in (("config", CONFIGURATION), ("rules", tmp_path / "rules.yml")):
        checked = subprocess.run(
            ["promtool", "check", what, str(path)], capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        assert checked.returncode == 0, checked.stderr


def test_promtool_finds_nothing_to_complain_of_in_what_a_broker_exposes(broker: Broker) -> None:
    with urllib.request.urlopen(f"http://127.0.0.1:{broker.ports['http']}/metrics") as answer:
        text = answer.read()
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=text, capture_output=True, timeout=PATIENCE_S, check=False
    )
    assert checked.returncode == 0, (checked.stdout + checked.stderr).decode()


@pytest.fixture
def broker(data_dir: Path) -> Iterator[Broker]:
    with Broker(data_dir) as running:
        yield running


class Prometheus(Running):
    """A Prometheus of this test alone, scraping one broker."""

    def __init__(self, directory: Path, broker: Broker) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        shipped = CONFIGURATION.read_text()
        assert "127.0.0.1:9090" in shipped
        assert "scrape_interval: 5s" in shipped
        configuration = shipped.replace("127.0.0.1:9090", f"127.0.0.1:{broker.ports['http']}")
        path = directory / "prometheus.yml"
        path.write_text(configuration.replace("scrape_interval: 5s", "scrape_interval: 250ms"))
        super().__init__(
            "prometheus",
            f"--config.file={path}",
            f"--storage.tsdb.path={directory / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
        )

    def get(self, path: str, **parameters: str) -> Any:
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(
            f"http://127.0.0.1:{self.port}/api/v1/{path}?{query}", timeout=PATIENCE_S
        ) as answer:
            said = json.load(answer)
        assert said["status"] == "success"
        return said["data"]

    def query(self, expression: str) -> list[float]:
        return [float(series["value"][1]) for series in self.get("query", query=expression)["result"]]

    async def until(self, expression: str, is_wanted: Callable[[list[float]], bool]) -> None:
        """Wait for scrapes to bring an answer."""
        async with asyncio.timeout(PATIENCE_S):
            while not is_wanted(await asyncio.to_thread(self.query, expression)):  # noqa: ASYNC110 - scrapes have no event
                await asyncio.sleep(0.1)


async def test_prometheus_scrapes_a_broker_and_answers_the_dashboards_queries(broker: Broker, tmp_path: Path) -> None:
    with Prometheus(tmp_path, broker) as prometheus:
        prometheus.wait_for("Server is ready to receive web requests")
        async with (
            moq.connect(broker.url("quic"), data_dir=broker.data_dir) as publisher,
            moq.connect(broker.url("tcp"), data_dir=broker.data_dir) as subscriber,
            subscriber.subscribe("a", qos=1) as messages,
        ):
            await prometheus.until('up{job="moq"}', [1.0].__eq__)
            for number in range(20):
                await publisher.publish("a", str(number), qos=1)
                await anext(messages)
            await prometheus.until('moq_messages_received_total{transport="quic",qos="1"}', [20.0].__eq__)
            await prometheus.until('sum(moq_messages_sent_total{transport="tcp",dialect="mmqp"})', [20.0].__eq__)
            await prometheus.until("sum(moq_connections_open)", [2.0].__eq__)
            rates = filled_in(next(text for text in expressions() if "moq_messages_received_total" in text))
            await prometheus.until(rates, lambda answer: any(rate > 0 for rate in answer))
            for text in expressions():
                prometheus.query(filled_in(text))
            (target,) = prometheus.get("targets")["activeTargets"]
            assert (target["health"], target["lastError"]) == ("up", "")
        assert prometheus.stop() == 0
