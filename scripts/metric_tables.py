"""The tables of `docs/reference/metrics.md`, from the declarations of the metrics."""

from collections.abc import Iterator

from moq.server.metrics.families import SECTIONS, Family
from scripts.wire_tables import BLOCK


def with_metric_tables(document: str) -> str:
    """The document with a table for each section of metrics that it has a place for."""
    return BLOCK.sub(lambda match: f"{match[1]}\n{chr(10).join(table(SECTIONS[match[2]]))}\n\n{match[3]}", document)


def table(families: tuple[Family, ...]) -> Iterator[str]:
    """The metrics of one section."""
    yield "| metric | kind | labels | meaning |"
    yield "| --- | --- | --- | --- |"
    for family in families:
        labels = ", ".join(f"`{label}`" for label in family.labels)
        yield f"| `{family.name}` | {family.kind} | {labels} | {family.help} |"
