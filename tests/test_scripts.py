"""The set-up before every command in scripts/: done when needed, skipped when not, clear when it cannot be done."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
COPIED = ("requirements.lock", "requirements-dev.lock", "pyproject.toml", "scripts/lib.sh", "scripts/moq")

# In place of scripts/install.py: makes an environment whose `moq` prints its arguments, and says that it was called.
INSTALLER = """
import sys
from pathlib import Path
venv = Path(__file__).resolve().parent.parent / ".venv"
(venv / "bin").mkdir(parents=True, exist_ok=True)
python = venv / "bin" / "python"
python.unlink(missing_ok=True)
python.symlink_to(sys.executable)
(venv / "bin" / "moq").write_text('#!/bin/sh\\necho "moq $*"\\n')
(venv / "bin" / "moq").chmod(0o755)
(venv / (".installed-" + sys.argv[1])).write_text(f"{sys.argv[2]} {python.resolve()}\\n")
print("installed", sys.argv[1])
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout in a directory whose name needs quoting."""
    root = tmp_path / "a clone"
    (root / "scripts").mkdir(parents=True)
    for name in COPIED:
        shutil.copy(ROOT / name, root / name)
    (root / "scripts" / "install.py").write_text(INSTALLER)
    return root


def start(checkout: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [checkout / "scripts" / "moq", *arguments],
        env={**os.environ, "PYTHON": sys.executable, **environment},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_the_first_start_installs_and_goes_on(checkout: Path) -> None:
    assert start(checkout, "pub", "a b").stdout == "installed requirements.lock\nmoq pub a b\n"


def test_a_second_start_does_not_install(checkout: Path) -> None:
    start(checkout)
    assert start(checkout, "sub").stdout == "moq sub\n"


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-dev.lock", "pyproject.toml", "scripts/install.py"])
def test_a_change_of_what_is_installed_installs_again(checkout: Path, name: str) -> None:
    start(checkout)
    with (checkout / name).open("a") as file:
        file.write("\n")
    assert start(checkout).stdout.startswith("installed")


def test_an_environment_whose_python_is_gone_is_made_again(checkout: Path) -> None:
    start(checkout)
    python = checkout / ".venv" / "bin" / "python"
    python.unlink()
    python.symlink_to("/nonexistent/python")
    assert start(checkout).stdout.startswith("installed")


def test_an_installation_that_fails_stops_the_command(checkout: Path) -> None:
    (checkout / "scripts" / "install.py").write_text("import sys; sys.exit('no network')")
    done = start(checkout)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "no network\n")


def test_without_a_python_the_message_says_which_is_needed(checkout: Path, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("sh", "cat", "cksum", "dirname", "basename", "readlink"):
        found = shutil.which(name)
        assert found is not None
        (tools / name).symlink_to(found)
    done = start(checkout, PATH=str(tools), PYTHON="python3.11")
    assert done.returncode == 1
    assert done.stderr.startswith("moq: MoQ needs Python 3.11 or newer and found none")
