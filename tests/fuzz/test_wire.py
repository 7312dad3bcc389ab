"""A short fuzz with every test run; MOQ_FUZZ_SECONDS makes it longer."""

import os

import pytest

from tests.fuzz.wire import run

SECONDS = float(os.environ.get("MOQ_FUZZ_SECONDS", "2"))


@pytest.mark.timeout(SECONDS + 60)
def test_no_bytes_break_the_reader() -> None:
    assert run(SECONDS, seed=1) > 0
