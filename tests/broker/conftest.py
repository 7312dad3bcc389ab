"""What every test of the broker starts from."""

from __future__ import annotations

import pytest

from tests.broker.desk import Desk


@pytest.fixture
def desk() -> Desk:
    return Desk()
