"""A short fuzz with every test run; MOQ_FUZZ_SECONDS makes it longer."""

import os

import pytest

from tests.fuzz.wire import DIALECTS, run

SECONDS = float(os.environ.get("MOQ_FUZZ_SECONDS", "2"))


@pytest.mark.timeout(SECONDS + 60)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_no_bytes_break_the_reader(dialect: str) -> None:
    assert run(SECONDS, seed=1, dialect=dialect) > 0
