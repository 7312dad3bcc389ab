"""Which test covers which statement of MQTT 5, found by the citations in the tests.

python -m tests.interop.conformance         writes the table into docs/reference/mqtt-conformance.md
"""

from __future__ import annotations

import re
from pathlib import Path

from tests.vectors.mqtt_malformed import MALFORMED_PACKETS
from tests.vectors.mqtt_statements import CLIENT, SERVER

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "reference" / "mqtt-conformance.md"
BEGIN, END = "<!-- statements: written by tests/interop/conformance.py -->\n", "<!-- end of statements -->\n"
CORPUS_TEST = "tests/interop/test_malformed.py::test_a_malformed_packet_ends_its_own_connection_and_no_other"
"""Sends every case of the corpus, so it covers what they cite."""

_CITATION = re.compile(r"\[MQTT-([\d.]+-\d+)\]")
_TEST = re.compile(r"(?:async )?def (test_\w+)")


def citations() -> dict[str, list[str]]:
    """The tests that cite each statement, as `path::name`, in order of path and line."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for statement, name in _cited_in(path.read_text()):
            found.setdefault(statement, []).append(f"{path.relative_to(ROOT)}::{name}")
    for case in MALFORMED_PACKETS:
        if case.version == 5:  # the statements of 3.1.1 have other numbers
            for statement in _CITATION.findall(case.clause):
                found.setdefault(statement, []).append(CORPUS_TEST)
    return found


def _cited_in(source: str) -> list[tuple[str, str]]:
    """Statements with the test that each is cited for: above it, among its decorators, or inside it."""
    pairs: list[tuple[str, str]] = []
    waiting: list[str] = []
    current: str | None = None
    for line in source.splitlines():
        if test := _TEST.match(line):
            current = test[1]
            pairs += [(statement, current) for statement in waiting]
            waiting = []
        elif line[:1] in ("@", "#"):
            current = None
        elif line[:1].isalpha():  # something else begins at the left margin
            current, waiting = None, []
        if current is None:
            waiting += _CITATION.findall(line)
        else:
            pairs += [(statement, current) for statement in _CITATION.findall(line)]
    return pairs


def table() -> str:
    """Both tables of the page."""
    tests = citations()
    lines = ["| statement | in our words | covered by |", "|---|---|---|"]
    for statement, words in SERVER.items():
        path, name = tests[statement][0].split("::")
        lines.append(f"| {statement} | {_cell(words)} | [`{name}`](../../{path}) |")
    lines += ["", f"The other {len(CLIENT)} bind clients alone:", "", "| statement | in our words |", "|---|---|"]
    lines += [f"| {statement} | {_cell(words)} |" for statement, words in CLIENT.items()]
    return "\n".join(lines) + "\n"


def _cell(words: str) -> str:
    return words.replace("|", "\\|")


def main() -> None:
    """Write the tables into the page."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{table()}\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()
