"""What a broker can compute, as it tells at `$SYS/capabilities`: figure 1 of MQTT+, with the built-in operators too."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from moq.broker.operators.plan import CALENDAR_WINDOWS, Comparison, Operation

if TYPE_CHECKING:
    from moq.broker.operators.functions import Functions

_COMPARED = {
    Comparison.EQ: "equal",
    Comparison.NEQ: "differ from",
    Comparison.GT: "are greater than",
    Comparison.GTE: "are greater than or equal",
    Comparison.LT: "are less than",
    Comparison.LTE: "are less than or equal",
    Comparison.CONTAINS: "contain",
}
_AGGREGATED = {
    Operation.COUNT: "how many numbers",
    Operation.SUM: "the sum of the numbers",
    Operation.AVG: "the average of the numbers",
    Operation.MIN: "the least number",
    Operation.MAX: "the greatest number",
}
_OTHERS = (
    ("$WIN", "the same in a window of any length: $WIN;30s;AVG", "value"),
    ("$MRP", "at most one message per topic in N x 10 ms, the newest: $MRP;N", "data"),
    ("$RPT", "names the values of a spatial aggregate after the topics that take part", "value"),
)


def capabilities(functions: Functions) -> bytes:
    """The JSON document: one object per keyword, processing functions first."""
    rules = [_entry(f"${rule}", f"messages that {verb} a value", "data") for rule, verb in _COMPARED.items()]
    spatial = [_entry(f"${name}", f"{what} of all topics", "value") for name, what in _AGGREGATED.items()]
    temporal = [
        _entry(f"${window}{name}", f"{what} of each topic in {seconds} s", "value")
        for window, seconds in CALENDAR_WINDOWS.items()
        for name, what in _AGGREGATED.items()
    ]
    entries = [*functions.describe(), *rules, *spatial, *temporal, *(_entry(*other) for other in _OTHERS)]
    return json.dumps(entries, indent=1).encode()


def _entry(keyword: str, description: str, returns: str) -> dict[str, object]:
    return {"keyword": keyword, "desc": description, "returns": returns}
