"""The set-up before every command in scripts/: done when needed, skipped when not, clear when it cannot be done."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import install

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


@pytest.fixture
def venv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The real installer, in a directory of its own, with nothing run."""
    venv = tmp_path / ".venv"
    for name, path in {
        "ROOT": tmp_path,
        "VENV": venv,
        "OLD": tmp_path / ".venv.old",
        "PYTHON": venv / "bin" / "python",
        "UNFINISHED": venv / ".installing",
    }.items():
        monkeypatch.setattr(install, name, path)
    monkeypatch.setattr(install, "_run", lambda *_: make_python(venv))
    return venv


def make_python(venv: Path) -> None:
    (venv / "bin").mkdir(parents=True, exist_ok=True)
    (venv / "bin" / "python").touch()


@pytest.mark.parametrize("step", ["_make_venv", "_install"])
def test_an_installation_cut_short_is_begun_anew(venv: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    def cut_short(*command: str) -> None:
        make_python(venv)
        if (step == "_make_venv") == ("venv" in command):
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(install, "_run", cut_short)
        with pytest.raises(KeyboardInterrupt):
            install.main("requirements.lock", "inputs")
    (venv / "left over").touch()
    assert not install._is_fresh("requirements.lock", "inputs")
    install.main("requirements.lock", "inputs")
    assert install._is_fresh("requirements.lock", "inputs")
    assert sorted(path.name for path in venv.iterdir()) == [".installed-requirements.lock", "bin"]
    assert not (venv.parent / ".venv.old").exists()


def test_installing_for_tests_serves_the_broker_too(venv: Path) -> None:
    install.main("requirements-dev.lock", "inputs")
    assert install._is_fresh("requirements.lock", "inputs")
    assert install._is_fresh("requirements-dev.lock", "inputs")


@pytest.mark.usefixtures("venv")
def test_a_python_without_venv_is_told_which_package_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(SystemExit, match=r"on Debian and Ubuntu: apt install python3\.\d+-venv"):
        install.main("requirements.lock", "inputs")
