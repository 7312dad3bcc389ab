"""`moq broker` with the commit-before-acknowledge rule broken on purpose: it says "safe" first and writes later.

For the test that the kill harness sees what it is there to see.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Final

from moq.cli.main import main
from moq.store.sqlite import SQLiteStore
from moq.store.writer import Writer

if TYPE_CHECKING:
    from moq.store.batch import Batch

DELAY_S: Final = 0.3
"""Between the claim and the commit: what a broker without the rule risks on a slow disk."""

_commit = Writer._commit


def _commit_later(writer: Writer, batch: Batch) -> None:
    time.sleep(DELAY_S)
    _commit(writer, batch)


def break_the_rule() -> None:
    """Whatever the store was told last counts as safe; what it really knows of its commits is not asked for."""
    claim = property(lambda store: store.last, lambda store, number: None)
    SQLiteStore.durable = claim  # type: ignore[assignment]
    Writer._commit = _commit_later  # type: ignore[method-assign,assignment]


if __name__ == "__main__":
    break_the_rule()
    sys.exit(main())
