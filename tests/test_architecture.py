"""Who may import whom: the layers of docs/explanation/design.md, read from the source of every module.

Arrows point inward only. Each rule below names the modules it speaks of by the longest prefix that fits, so a
new file is under a rule from the day it is added.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("moq", "transports", "certs")

IMPURE = frozenset(
    {"aioquic", "asyncio", "certs", "logging", "os", "qh3", "random", "secrets", "socket", "sqlite3", "ssl"}
    | {"subprocess", "threading", "time", "transports", "uuid", "uvloop", "prometheus_client", "websockets"}
)
"""I/O, clocks, randomness and threads: what a pure module takes as arguments instead."""

NETWORK_LIBRARIES = frozenset({"aioquic", "qh3", "websockets"})


@dataclass(frozen=True)
class Layer:
    """What the modules under one prefix may import: which of our own modules, and whether the outside world."""

    ours: tuple[str, ...]
    is_pure: bool = True


GROUND = ("moq.errors", "moq.reasons", "moq.topics", "moq.config", "moq.version", "moq.histogram")
CLIENT = ("moq.client", "moq.wire", "moq.broker.link", *GROUND)
ANYTHING = PACKAGES

LAYERS = {
    "moq": Layer(ours=("moq.client", *GROUND), is_pure=False),
    "moq.version": Layer(ours=()),
    "moq.histogram": Layer(ours=()),
    "moq.reasons": Layer(ours=()),
    "moq.errors": Layer(ours=("moq.reasons",)),
    "moq.topics": Layer(ours=("moq.errors", "moq.reasons")),
    "moq.config": Layer(ours=("moq.errors",)),
    "moq.wire": Layer(ours=("moq.wire", "moq.errors", "moq.reasons", "moq.topics")),
    "moq.broker": Layer(ours=("moq.broker", "moq.security.scram", *GROUND)),
    "moq.broker.operators": Layer(ours=("moq.broker.operators", "moq.errors", "moq.reasons", "moq.topics")),
    "moq.broker.dialects": Layer(ours=("moq.broker", "moq.wire", *GROUND)),
    "moq.security": Layer(ours=("moq.security", *GROUND)),
    "moq.security.users": Layer(ours=("moq.security.scram", *GROUND), is_pure=False),
    "moq.security.access": Layer(ours=("moq.security.scram", "moq.broker.access", *GROUND)),
    "moq.client": Layer(ours=CLIENT),
    "moq.client.subscription": Layer(ours=CLIENT, is_pure=False),
    "moq.client.connection": Layer(ours=CLIENT, is_pure=False),
    "moq.client.client": Layer(ours=CLIENT, is_pure=False),
    "moq.client.connect": Layer(ours=(*CLIENT, "transports", "moq.trace"), is_pure=False),
    "moq.store": Layer(ours=("moq.store", "moq.broker.store", "moq.broker.message", *GROUND), is_pure=False),
    "moq.server": Layer(
        ours=(
            *("moq.server", "moq.broker", "moq.functions", "moq.security", "moq.store", "moq.trace"),
            *("transports", "certs", *GROUND),
        ),
        is_pure=False,
    ),
    "moq.functions": Layer(ours=("moq.functions", "moq.broker.operators", *GROUND), is_pure=False),
    "moq.functions.function": Layer(ours=("moq.broker.operators", *GROUND)),
    "moq.functions.images": Layer(ours=()),
    "moq.trace": Layer(ours=("moq.trace", "moq.broker.link", "moq.broker.message", *GROUND), is_pure=False),
    "moq.trace.schema": Layer(ours=()),
    "moq.trace.sampling": Layer(ours=()),
    "moq.trace.offsets": Layer(ours=()),
    "moq.bench": Layer(ours=ANYTHING, is_pure=False),
    "moq.lab": Layer(ours=("moq.lab", "moq.cli", *GROUND), is_pure=False),
    "moq.lab.profiles": Layer(ours=GROUND),
    "moq.lab.netem": Layer(ours=("moq.lab.profiles", *GROUND)),
    "moq.lab.estimates": Layer(ours=()),
    "moq.cli": Layer(ours=ANYTHING, is_pure=False),
    "transports": Layer(ours=("transports", "moq.broker.link", "moq.errors", "moq.reasons"), is_pure=False),
    "certs": Layer(ours=("certs", "moq.errors", "moq.reasons"), is_pure=False),
}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))}


def is_under(name: str, prefixes: tuple[str, ...]) -> bool:
    return any(name == prefix or name.startswith(f"{prefix}.") for prefix in prefixes)


def layer_of(module: str) -> Layer:
    prefix = max((prefix for prefix in LAYERS if is_under(module, (prefix,))), key=len)
    if prefix == "moq" and module != "moq":
        pytest.fail(f"{module} is in no layer: say in LAYERS what it may import")
    return LAYERS[prefix]


def imported_by(module: str, path: Path) -> set[str]:
    """Every module named in an import statement, wherever it stands, as an absolute name."""
    names: set[str] = set()
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.update(_from_names(node, package))
    return names


def _from_names(node: ast.ImportFrom, package: str) -> set[str]:
    base = node.module or ""
    if node.level:
        parent = package.split(".")[: len(package.split(".")) - node.level + 1]
        base = ".".join([*parent, base] if base else parent)
    # `from moq import topics` imports moq.topics; `from moq.topics import matches` imports moq.topics.
    members = {f"{base}.{alias.name}" for alias in node.names}
    return members & MODULES.keys() or {base}


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_only_what_its_layer_may(module: str) -> None:
    layer = layer_of(module)
    ours = {name for name in imported_by(module, MODULES[module]) if is_under(name, PACKAGES)}
    outward = {name for name in ours if not is_under(name, layer.ours)}
    assert not outward, f"{module} imports {sorted(outward)}; its layer may import {layer.ours}"


@pytest.mark.parametrize("module", [module for module in MODULES if layer_of(module).is_pure])
def test_a_pure_module_reaches_for_no_clock_socket_or_randomness(module: str) -> None:
    roots = {name.partition(".")[0] for name in imported_by(module, MODULES[module])}
    assert not roots & IMPURE, f"{module} is pure; hand it what it wants from {sorted(roots & IMPURE)}"


@pytest.mark.parametrize("module", [module for module in MODULES if not is_under(module, ("transports", "moq.bench"))])
def test_only_transports_know_a_network_library(module: str) -> None:
    roots = {name.partition(".")[0] for name in imported_by(module, MODULES[module])}
    assert not roots & NETWORK_LIBRARIES


@pytest.mark.parametrize("module", MODULES)
def test_a_module_says_what_it_is_for(module: str) -> None:
    docstring = ast.get_docstring(ast.parse(MODULES[module].read_text()))
    assert docstring, f"{MODULES[module].relative_to(ROOT)} has no docstring"


def test_relative_and_absolute_imports_are_seen_alike(tmp_path: Path) -> None:
    path = tmp_path / "__init__.py"
    path.write_text("from . import topics\nfrom .wire import mmqp\nfrom moq import errors\nimport asyncio.events\n")
    assert imported_by("moq", path) == {"moq.topics", "moq.wire.mmqp", "moq.errors", "asyncio.events"}
