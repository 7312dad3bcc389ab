"""What the lab wants from a network between its two ends, however that is built."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence


class Network(Protocol):
    """A path between two namespaces with a bridge in the middle, whose devices are those of `netem.DEVICES`.

    The lab has made the two namespaces before it builds the network, and removes them after `close`.
    """

    @property
    def name(self) -> str:
        """As records call it."""

    def build(self) -> None:
        """Connect the two ends.

        Raises:
            LabError: it cannot be done; whatever there is so far is removed by `close`.
        """

    def tc(self, commands: Sequence[Sequence[str]]) -> str:
        """Run commands of `tc` in the middle, one right after the other; returns what they printed, as JSON.

        Raises:
            LabError: one failed.
        """

    def describe(self) -> dict[str, str]:
        """Versions of what carries the packets, for the record."""

    def close(self) -> None:
        """Leave nothing behind, also if it was never built."""
