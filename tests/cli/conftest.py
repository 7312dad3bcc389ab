"""A broker for the tests of the command line; they keep apart by topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.running import Broker

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker
