"""A store whose commits are events of the test, so that a crash can come before any of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from moq.broker.store import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from moq.broker.store import DeliveryRecord


class CommitStore(MemoryStore):
    """Facts in memory, durable only up to the last `commit`; `safe` is what a crash would leave."""

    def __init__(self, safe: MemoryStore | None = None, *, commits_itself: bool = False) -> None:
        super().__init__()
        self.commits_itself = commits_itself
        self._safe = safe or MemoryStore()
        self._durable = 0
        self._answers: list[Callable[[], None]] = []
        self.crash()

    @property
    def durable(self) -> int:
        return self.last if self.commits_itself else self._durable

    @property
    def safe(self) -> MemoryStore:
        return self.copy() if self.commits_itself else self._safe

    def commit(self) -> None:
        """Make safe what there is now, and answer the reads that waited for it."""
        self._safe = self.copy()
        self._durable = self.last
        answers, self._answers = self._answers, []
        for answer in answers:
            answer()

    def crash(self) -> None:
        """Forget everything since the last commit."""
        self.take(self._safe)
        self._answers.clear()
        self.last = self._durable

    def trim(self, owner: str, after: int, messages: int, size: int, then: Callable[[int, int], None]) -> None:
        super().trim(owner, after, messages, size, lambda count, bytes_: self._answer(lambda: then(count, bytes_)))

    def sweep(self, before: float, skip: Collection[str], then: Callable[[list[tuple[str, int]]], None]) -> None:
        super().sweep(before, skip, lambda gone: self._answer(lambda: then(gone)))

    def read(
        self, owner: str, after: int, messages: int, size: int, then: Callable[[list[DeliveryRecord], bool], None]
    ) -> None:
        super().read(owner, after, messages, size, lambda page, is_last: self._answer(lambda: then(page, is_last)))

    def _answer(self, answer: Callable[[], None]) -> None:
        if self.durable == self.last and not self._answers:
            answer()
        else:
            self._answers.append(answer)
