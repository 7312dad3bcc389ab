"""Rivals that are no Debian package, each in a directory of its own in the cache, so that none becomes a dependency.

$XDG_CACHE_HOME/moq/rivals/NAME     a virtual environment, or the root of `cargo install`
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from moq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PACKAGES: Final = {"amqtt": "amqtt==0.12.1", "zenoh": "eclipse-zenoh==1.10.2"}
"""What is installed from the package index, in the version measured."""

CRATES: Final = {"mqttv5": "mqttv5-cli"}
"""What `cargo install` builds; this takes minutes."""

INSTALL: Final = "moq bench rivals install"


def rivals_directory() -> Path:
    """Where they are."""
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "moq" / "rivals"


def python_of(name: str) -> Path:
    """The interpreter of a rival's virtual environment."""
    return rivals_directory() / name / "bin" / "python"


def installed_version(name: str, distribution: str) -> str | None:
    """The version in a rival's environment, found without starting its interpreter."""
    normal = distribution.replace("-", "_")
    found = sorted((rivals_directory() / name).glob(f"lib/python*/site-packages/{normal}-*.dist-info"))
    return found[-1].name.removesuffix(".dist-info").rpartition("-")[2] if found else None


def site_packages(name: str) -> Path | None:
    """Where a rival's environment has its modules."""
    return next((rivals_directory() / name).glob("lib/python*/site-packages"), None)


def install(names: Sequence[str], say: Callable[[str], None]) -> None:
    """Install these, or all that are not there.

    Raises:
        ConfigError: One is unknown, or its installation failed; the message has the last line of what was said.
    """
    known = {**PACKAGES, **CRATES}
    if unknown := set(names) - known.keys():
        raise ConfigError(f"rival {unknown.pop()!r} is unknown; known are {', '.join(known)}")
    for name in names or known:
        directory = rivals_directory() / name
        if name in CRATES:
            _install_crate(name, directory, say)
        else:
            _install_package(name, directory, say)


def _install_package(name: str, directory: Path, say: Callable[[str], None]) -> None:
    say(f"{name}: {PACKAGES[name]} into {directory}")
    _run(name, [sys.executable, "-m", "venv", "--clear", str(directory)])
    _run(name, [str(python_of(name)), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", PACKAGES[name]])


def _install_crate(name: str, directory: Path, say: Callable[[str], None]) -> None:
    cargo = shutil.which("cargo")
    if cargo is None:
        say(f"{name}: left out, for cargo is not installed (apt install cargo, or rustup)")
        return
    say(f"{name}: cargo install {CRATES[name]} into {directory}; it builds for some minutes")
    _run(name, [cargo, "install", "--quiet", "--root", str(directory), CRATES[name]])


def _run(name: str, command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise ConfigError(f"rival {name!r} cannot be installed: {error}") from error
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip()).rpartition("\n")[2]
        raise ConfigError(f"rival {name!r} cannot be installed, {command[0]} ended with {done.returncode}: {said}")
