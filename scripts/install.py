"""Install the locked dependencies and the project itself into .venv; called by lib.sh when its stamp is stale.

    install.py LOCK INPUTS

INPUTS identifies the files the installation is made from; it goes into the stamp, which is written last. While an
installation runs a mark lies in .venv, from before its first file on; found at the start it means that the last one was
cut short, and .venv is made anew. An old .venv is moved away in one step, so there is never half of one.
A kernel lock keeps two commands started together from installing at once, and vanishes with its owner.
"""

from __future__ import annotations

import fcntl
import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
UNFINISHED = VENV / ".installing"
OLD = ROOT / ".venv.old"
LOCKS = {
    "requirements.lock": ["requirements.lock"],
    "requirements-dev.lock": ["requirements.lock", "requirements-dev.lock"],
}
"""What has been installed once a lock file has: the second lists all of the first, at the same versions."""


def main(lock: str, inputs: str) -> None:
    """Bring .venv up to date with one lock file."""
    with (ROOT / ".venv.lock").open("w") as file:
        _wait_for(file.fileno())
        if _is_fresh(lock, inputs):
            return
        print("installing MoQ's dependencies into .venv (later starts skip this)", file=sys.stderr)
        if not _works():
            _make_venv()
        _install(lock, inputs)


def _wait_for(descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("waiting for another command that is installing into .venv", file=sys.stderr)
        fcntl.flock(descriptor, fcntl.LOCK_EX)


def _stamp(lock: str) -> Path:
    return VENV / f".installed-{lock}"


def _is_fresh(lock: str, inputs: str) -> bool:
    stamp = _stamp(lock)
    return PYTHON.exists() and stamp.exists() and stamp.read_text() == f"{inputs} {PYTHON.resolve()}\n"


def _works() -> bool:
    """True if .venv has a Python of a supported version that can run its pip, and no half-done installation."""
    if UNFINISHED.exists() or not PYTHON.exists():
        return False
    probe = "import sys, pip; sys.exit(sys.version_info < (3, 11))"
    return subprocess.run([PYTHON, "-c", probe], capture_output=True, check=False).returncode == 0


def _make_venv() -> None:
    if importlib.util.find_spec("ensurepip") is None:
        package = f"python3.{sys.version_info.minor}-venv"
        sys.exit(f"{sys.executable} cannot make virtual environments; on Debian and Ubuntu: apt install {package}")
    shutil.rmtree(OLD, ignore_errors=True)
    if VENV.exists():
        VENV.rename(OLD)
    VENV.mkdir()
    UNFINISHED.touch()
    _run(sys.executable, "-m", "venv", str(VENV))
    shutil.rmtree(OLD, ignore_errors=True)


def _install(lock: str, inputs: str) -> None:
    UNFINISHED.touch()
    for name in LOCKS[lock]:
        _stamp(name).unlink(missing_ok=True)
    _pip("--require-hashes", "-r", str(ROOT / lock))
    _pip("--no-deps", "--no-build-isolation", "--editable", str(ROOT))
    for name in LOCKS[lock]:
        _stamp(name).write_text(f"{inputs} {PYTHON.resolve()}\n")
    UNFINISHED.unlink()


def _pip(*arguments: str) -> None:
    _run(str(PYTHON), "-m", "pip", "--disable-pip-version-check", "--quiet", "install", *arguments)


def _run(*command: str) -> None:
    status = subprocess.run(command, check=False).returncode
    if status:
        sys.exit(f"failed with status {status}: {' '.join(command)}")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit(130)
