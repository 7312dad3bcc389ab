"""Who publishes what to whom in a run: groups of six publishers and two subscribers, every dialect and transport.

group g    publishers    one of each kind, each on two topics: QoS 1 and QoS 2
           subscribers   two of different kinds, of everything in the group at QoS 2, with persistent sessions
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tests.crash.ledger import Flow

if TYPE_CHECKING:
    from typing import Self

KINDS: Final = ("mmqp-quic", "mqtt5-tcp", "mmqp-tcp", "mqtt5-quic", "mqtt3-tcp", "paho-tcp")
"""Dialect and transport, as the names of the clients begin."""
ONLY_QOS_1: Final = ("paho-tcp",)
"""paho-mqtt 2.2 forgets over a failed attempt to reconnect that it has released a message, and publishes it once more
(`_messages_reconnect_reset_out` knows no state `resend_pubrel`): at QoS 2 it doubles its own messages."""
OUT_OF_ORDER: Final = ("paho-tcp",)
"""It sends what is new as soon as there is a socket, and repeats what was not acknowledged after CONNACK."""
SUBSCRIBERS: Final = 2
"""Of every message."""
QOS_NAMES: Final = {1: "at-least-once", 2: "exactly-once"}


@dataclass(slots=True)
class Plan:
    """The clients of a run, and what flows between them."""

    publishers: dict[str, list[Flow]] = field(default_factory=dict)
    subscribers: dict[str, str] = field(default_factory=dict)
    """The filter of each."""

    @property
    def flows(self) -> list[Flow]:
        """All of them, by number."""
        return [flow for flows in self.publishers.values() for flow in flows]

    def share(self, index: int, of: int) -> Plan:
        """What one of several processes takes on."""
        return Plan(
            {name: flows for place, (name, flows) in enumerate(self.publishers.items()) if place % of == index},
            {name: filter_ for place, (name, filter_) in enumerate(self.subscribers.items()) if place % of == index},
        )

    @classmethod
    def of_groups(cls, groups: int) -> Self:
        """Make it; the same each time, so that every process knows it by the number of groups."""
        plan = cls()
        number = 0
        for group in range(groups):
            subscribers = tuple(f"{KINDS[(group + step) % len(KINDS)]}-sub-{group}" for step in (0, 3))
            plan.subscribers |= dict.fromkeys(subscribers, f"crash/{group}/#")
            for kind in KINDS:
                publisher = f"{kind}-pub-{group}"
                plan.publishers[publisher] = []
                for qos, name in QOS_NAMES.items():
                    if qos == 2 and kind in ONLY_QOS_1:
                        continue
                    topic = f"crash/{group}/{kind}/{name}"
                    is_ordered = kind not in OUT_OF_ORDER
                    plan.publishers[publisher].append(Flow(number, publisher, topic, qos, subscribers, is_ordered))
                    number += 1
        return plan
