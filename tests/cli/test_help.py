"""`--help` and docs/reference/cli.md say the same of every command."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from moq.cli.exits import MEANINGS, Exit
from moq.cli.main import main, make_parser

REFERENCE = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "cli.md").read_text()


def parsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Every command of the tree by its full name."""
    found = {parser.prog: parser}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                found |= parsers(child)
    return found


PARSERS = parsers(make_parser())
COMMANDS = [name for name in PARSERS if name != "moq"]
WITH_EXAMPLES = [name for name in COMMANDS if name != "moq bench relay"]  # its examples stand in `moq bench --help`
IN_REFERENCE = [name for name in COMMANDS if not name.startswith("moq bench")]  # the page refers to its `--help`


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_every_help_has_examples(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*name.split()[1:], "--help"])
    assert ended.value.code == 0
    assert f"examples:\n  {name}" in capsys.readouterr().out


@pytest.mark.parametrize("name", IN_REFERENCE)
def test_the_reference_has_every_option(name: str) -> None:
    options = {option for action in PARSERS[name]._actions for option in action.option_strings} - {"-h", "--help"}
    assert f"`{name}" in REFERENCE
    assert not {option for option in options if option not in REFERENCE}


def test_the_reference_and_the_help_have_every_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    shown = capsys.readouterr().out
    for code in Exit:
        assert f"| {code.value} | {MEANINGS[code]} |" in REFERENCE
        assert f"  {code.value:<4} {MEANINGS[code]}\n" in shown
