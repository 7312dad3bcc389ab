"""Numbers about the store: plain integers the writer adds to and whoever is interested reads."""

from __future__ import annotations

from moq.histogram import SIZES, Histogram


class StoreFigures:
    """What the store has done since it was opened."""

    __slots__ = (
        "batch_changes",
        "batches",
        "changes",
        "commit_seconds",
        "failures",
        "last_batch",
        "rows",
        "spooled_bytes",
    )

    def __init__(self) -> None:
        self.batches = 0
        """Transactions committed."""
        self.changes = 0
        """Changes in them, those that cancelled each other included."""
        self.rows = 0
        """Rows written, altered or removed for them."""
        self.batch_changes = Histogram(SIZES)
        """How many changes each of them had."""
        self.commit_seconds = Histogram()
        """How long each of them took."""
        self.failures = 0
        """Transactions that failed and were tried again."""
        self.spooled_bytes = 0
        self.last_batch = 0
        """Changes in the latest transaction."""
