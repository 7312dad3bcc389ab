"""Plug-ins for tests: a directory that looks as if distributions had been installed into it."""

from __future__ import annotations

from textwrap import dedent
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def install(where: Path, distribution: str, module: str, code: str, **entries: str) -> None:
    """Write a module and the metadata that announces its functions: `NAME="attribute"` each."""
    where.mkdir(exist_ok=True)
    (where / f"{module}.py").write_text(dedent(code))
    metadata = where / f"{distribution.replace('-', '_')}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    lines = [f"{name} = {module}:{attribute}" for name, attribute in entries.items()]
    (metadata / "entry_points.txt").write_text("\n".join(["[moq.functions]", *lines, ""]))


FUNCTIONS = """
    import os, signal, sys, time
    from moq.functions import Cost, Function, OutputType

    def named(name, call, output_type=OutputType.TEXT):
        return Function(name, ("*/*",), Cost.LOW, f"what {name} does", output_type, call)

    def sometimes(payload):
        if payload == b"wait":
            time.sleep(600)
        return payload

    def once_there_is(path):
        while not os.path.exists(path):
            time.sleep(0.001)
        return path

    def count(payload):
        total = 0
        for _ in range(int(payload)):
            total += 1
        return total

    upper = named("UPPER", lambda payload: payload.decode().upper())
    length = named("LENGTH", len, OutputType.VALUE)
    fail = named("FAIL", lambda payload: 1 / 0)
    leave = named("LEAVE", lambda payload: sys.exit(payload.decode()))
    end = named("END", lambda payload: os._exit(3))
    fault = named("FAULT", lambda payload: os.kill(os.getpid(), signal.SIGSEGV))
    spin = named("SPIN", lambda payload: [None for _ in iter(int, 1)])
    hog = named("HOG", lambda payload: len(bytearray(1 << 40)))
    flood = named("FLOOD", lambda payload: bytes(int(payload)))
    words = named("WORDS", lambda payload: "many", OutputType.VALUE)
    nothing = named("NOTHING", lambda payload: None)
    talk = named("TALK", lambda payload: print("said aloud") or sys.stdin.read() or "done")
    who = named("WHO", lambda payload: os.getpid(), OutputType.VALUE)
    priority = named("PRIORITY", lambda payload: os.nice(0), OutputType.VALUE)
    sometimes = named("SOMETIMES", sometimes)
    meet = named("MEET", once_there_is)
    work = named("WORK", count, OutputType.VALUE)
"""
ENTRIES = {
    name: name.lower()
    for name in (
        *("UPPER", "LENGTH", "FAIL", "LEAVE", "END", "FAULT", "SPIN", "HOG", "FLOOD"),
        *("WORDS", "NOTHING", "TALK", "WHO", "PRIORITY", "SOMETIMES", "MEET", "WORK"),
    )
}
