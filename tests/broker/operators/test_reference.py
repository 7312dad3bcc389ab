"""docs/reference/operators.md: every example gives what it says, every refusal the reason."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from moq.broker.operators import Computation, Operation, OperatorError, compute, parse
from moq.topics import matches

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "operators.md").read_text()
FUNCTIONS = ("CNTPPL",)
NEVER = float("inf")

EXAMPLES = [
    example.splitlines()
    for block in re.findall(r"```operators\n(.*?)```", PAGE, re.DOTALL)
    for example in block.strip().split("\n\n")
]
REFUSALS = re.findall(r"^\| `(\$.*?)` \| (.*?) \| ([0-9]+) \|$", PAGE, re.MULTILINE)


class Example:
    """One subscription, and a clock that moves when the example waits."""

    def __init__(self, subscription: str) -> None:
        plan = parse(subscription, FUNCTIONS)
        assert plan is not None
        self._plan = plan
        self._computed: Computation = compute(plan)
        self._now = 0.0

    def step(self, text: str) -> list[str]:
        if (waiting := re.fullmatch(r"wait ([0-9]+)", text)) is not None:
            self._now += float(waiting[1])
            outputs = self._computed.on_timeout(self._now)
        else:
            topic, payload = text.split(" ", 1)
            payload, _, ttl = payload.partition(" for ")
            if not any(matches(source, topic) for source in self._plan.sources):
                return []
            expires_at = self._now + float(ttl) if ttl else NEVER
            outputs = self._computed.on_message(topic, payload.encode(), expires_at, self._now)
        return [f"{output.topic} {output.payload.decode()}" for output in outputs]


@pytest.mark.parametrize("lines", EXAMPLES, ids=lambda lines: lines[0])
def test_an_example_of_the_page_gives_what_it_says(lines: list[str]) -> None:
    example = Example(lines[0].removeprefix("subscribe "))
    for line in lines[1:]:
        step, _, expected = line.strip().partition("=>")
        assert example.step(step.strip()) == [text for text in expected.strip().split("  ") if text], line


@pytest.mark.parametrize(("subscription", "reason", "position"), REFUSALS)
def test_a_refusal_of_the_page_has_its_reason(subscription: str, reason: str, position: str) -> None:
    with pytest.raises(OperatorError) as caught:
        parse(subscription, FUNCTIONS)
    assert (caught.value.problem, caught.value.position) == (reason, int(position))


def test_the_page_has_an_example_of_every_operation_and_enough_of_everything() -> None:
    subscribed = " ".join(lines[0] for lines in EXAMPLES)
    assert all(operation in subscribed for operation in Operation)
    assert len(EXAMPLES) >= 20
    assert len(REFUSALS) >= 20
