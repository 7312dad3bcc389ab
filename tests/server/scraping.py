"""What a running server says at `/metrics`, parsed, for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.parser import text_string_to_metric_families

from tests.server.test_http import get

if TYPE_CHECKING:
    from moq.server import Server


class Scrape:
    """One scrape."""

    def __init__(self, text: str) -> None:
        self.families = {family.name: family for family in text_string_to_metric_families(text)}

    def value(self, name: str, **labels: str) -> float:
        """The sum of the samples of this name that have these labels, 0 if there is none."""
        samples = (sample for family in self.families.values() for sample in family.samples if sample.name == name)
        return sum(sample.value for sample in samples if labels.items() <= sample.labels.items())


async def scrape(server: Server) -> Scrape:
    status, body = await get(server, "/metrics")
    assert status == "HTTP/1.0 200 OK"
    return Scrape(body)
