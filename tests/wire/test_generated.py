"""What is generated is what the declarations say today."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def test_the_generated_files_are_not_stale() -> None:
    script = [sys.executable, str(ROOT / "scripts/generate.py"), "--check"]
    result = subprocess.run(script, capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"{result.stdout}{result.stderr}; run python scripts/generate.py"
