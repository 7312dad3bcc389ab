"""The tutorial and the README do what they say: their commands and programs run against a broker on free ports.

A fenced block is a step. Its info string says in which terminal it happens and how: left running (`stays`), failing
(`fails`), or only showing what a command left running has printed since (`shows`). `...` stands for any text.
"""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.running import FREE_PORTS, MOQ, PATIENCE_S, Broker, Running

ROOT = Path(__file__).resolve().parent.parent
TUTORIAL = ROOT / "docs" / "tutorial" / "first-ten-minutes.md"
README = ROOT / "README.md"

DEFAULT_PORTS = {"1883": "tcp", "8883": "tls", "14567": "quic", "9090": "http", "8083": "ws", "8084": "wss"}
_FENCE = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)


@dataclass
class Step:
    language: str
    words: list[str]
    text: str


def steps(page: Path) -> list[Step]:
    return [Step(language, info.split(), text) for language, info, text in _FENCE.findall(page.read_text())]


def with_ports(text: str, ports: dict[str, int]) -> str:
    return re.sub(rf"\b({'|'.join(DEFAULT_PORTS)})\b", lambda match: str(ports[DEFAULT_PORTS[match[0]]]), text)


def fits(expected: str, shown: str) -> bool:
    pattern = ".*".join(re.escape(part) for part in expected.strip().split("..."))
    return re.fullmatch(pattern, shown.strip(), re.DOTALL) is not None


class Desk:
    """A directory with the scripts of a checkout, and terminals to use them in."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self._directory = directory
        self._stack = stack
        self._ports: dict[str, int] = {}
        self.terminals: dict[str, Running] = {}
        self._install("scripts/moq", *MOQ)
        self._install("scripts/broker", *MOQ, "broker", *FREE_PORTS)
        self._install(".venv/bin/python", sys.executable)

    def _install(self, path: str, *command: str) -> None:
        """A script of the checkout without its set-up: what runs the tests is already set up."""
        script = self._directory / path
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(f'#!/bin/sh\nPYTHONPATH={shlex.quote(str(ROOT))} exec {shlex.join(command)} "$@"\n')
        script.chmod(0o755)

    def do(self, step: Step) -> None:
        if step.language == "python":
            (self._directory / step.words[0]).write_text(with_ports(step.text, self._ports))
            return
        terminal, *how = step.words
        if how == ["shows"]:
            self._await(self.terminals[terminal], step.text)
            return
        for command, expected in _COMMAND.findall(step.text):
            running = self._start(terminal, command)
            if how == ["stays"]:
                self._await(running, expected)
            else:
                self._finish(running, command, expected, fails=how == ["fails"])

    def _start(self, terminal: str, command: str) -> Running:
        before = self.terminals.get(terminal)
        if before is not None and before.process.poll() is None:
            before.stop(signal.SIGINT)
        if command != "scripts/broker":
            command = with_ports(command, self._ports)
        # A terminal shows both outputs.
        running = Running("sh", "-c", f"exec {command} 2>&1", cwd=self._directory, MOQ_DATA_DIR=".moq")
        self.terminals[terminal] = self._stack.enter_context(running)
        return running

    def _await(self, running: Running, expected: str) -> None:
        for line in expected.splitlines():
            if '"ready"' in line:
                shown = running.wait_for('"ready"')
                self._ports = json.loads(shown)
                assert fits(with_ports(line, self._ports), shown)
            elif line != "...":
                line = with_ports(line, self._ports)
                assert fits(line, running.wait_for(line.partition("...")[0]))

    def _finish(self, running: Running, command: str, expected: str, *, fails: bool) -> None:
        code = running.wait()
        shown = "\n".join(running.stdout)
        assert (code != 0) == fails, f"{command!r} ended with {code}: {shown}"
        assert fits(with_ports(expected, self._ports), shown), f"{command!r} shows: {shown}"


@pytest.mark.timeout(180)
def test_the_tutorial_does_what_it_says(tmp_path: Path) -> None:
    with ExitStack() as stack:
        desk = Desk(tmp_path, stack)
        for step in steps(TUTORIAL):
            desk.do(step)
        assert desk.terminals["terminal-1"].stop(signal.SIGINT) == 0


def test_the_readme_is_a_program_that_works(tmp_path: Path) -> None:
    (program,) = (step.text for step in steps(README) if step.language == "python")
    with Broker(tmp_path) as broker:
        done = subprocess.run(
            [sys.executable, "-c", with_ports(program, broker.ports)],
            env={"MOQ_DATA_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)},
            capture_output=True,
            timeout=PATIENCE_S,
            check=False,
        )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"room/light on\n", b"")


def test_the_readme_names_the_commands_that_exist() -> None:
    for script in re.findall(r"^    (scripts/\w+)", README.read_text(), re.MULTILINE):
        assert (ROOT / script).stat().st_mode & 0o111, f"{script} is not executable"


def test_every_link_between_pages_leads_somewhere() -> None:
    pages = [README, ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    for page in pages:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}"
