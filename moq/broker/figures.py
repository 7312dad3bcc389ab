"""Counters of the core: plain integers, read by `$SYS`, metrics and tests, never reset."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from moq.broker.traffic import Traffics


@dataclass(slots=True)
class Figures:
    """What the broker has done since it started; each drop and each refusal is counted under its reason."""

    traffic: Traffics = field(default_factory=Traffics)
    """Messages, payloads and connections by kind; the totals below are made of it."""
    dropped_congested: int = 0
    """Best-effort messages to a lane whose reader does not keep up."""
    dropped_queue_full: int = 0
    """Messages pushed out of a session's full queue by newer ones."""
    dropped_expired: int = 0
    """Messages whose time was over before they could be sent."""
    dropped_undeliverable: int = 0
    """Messages larger than their subscriber accepts, or that its protocol cannot express."""
    dropped_not_authorized: int = 0
    """Messages of publishers that may not publish on their topic, where no refusal can be told."""
    dropped_no_room_to_retain: int = 0
    """Messages delivered but not retained: too many topics, or too many bytes."""
    dropped_memory: int = 0
    """Messages of QoS 0 not taken because the broker holds too much."""
    superseded: int = 0
    """Messages that a newer one replaced before a subscriber's reception period was over."""
    superseded_bytes: int = 0
    """Their payloads: what need not be sent."""
    unreadable_encrypted: int = 0
    """Messages that operators were to read and cannot, because they are encrypted."""
    left_out_of_aggregates: int = 0
    """Values of topics past `max_topics_per_computation`."""
    functions_failed: int = 0
    """Messages of which a processing function made nothing."""
    unpaced: int = 0
    """Messages sent without regard to a period, because too many periods of their subscriber run."""
    refused_connections: int = 0
    """Connections past `max_connections`."""
    refused_connections_per_address: int = 0
    refused_memory: int = 0
    """Connections while the broker holds too much."""
    refused_sessions: int = 0
    refused_subscriptions: int = 0
    """Past what one session or all together may have."""
    refused_registrations: int = 0
    """Past what one session may have, or for want of room for the topic."""
    refused_inflight: int = 0
    """Connections ended whose client had more messages unacknowledged than it was allowed."""
    refused_publish_rate: int = 0
    """Connections ended whose client published faster than `max_publish_rate`."""
    refused_queue_full: int = 0
    """Messages not taken because a subscriber's queue is full and `queue_policy` is `refuse`."""
    refused_store: int = 0
    """Messages and subscriptions not taken because nothing can be made safe at present."""
    refused_confirmations: int = 0
    """Past what one session may wait for."""
    requests_opened: int = 0
    requests_failed: int = 0
    confirmations_opened: int = 0
    """Messages whose publisher waits for confirmations."""
    confirmations_failed: int = 0
    """Those that did not get as many, in time or at all."""
    protocol_errors: int = 0
    traced_messages: int = 0
    """Deliveries recorded in the trace."""
    traced_messages_lost: int = 0
    """Deliveries that were to be recorded and could not be: the disk is too slow, or full."""

    @property
    def connections(self) -> int:
        """Clients let in."""
        return sum(traffic.accepted for traffic in self.traffic)

    @property
    def messages_received(self) -> int:
        """Messages that clients published."""
        return sum(sum(traffic.messages_in) for traffic in self.traffic)

    @property
    def bytes_received(self) -> int:
        """Their payloads."""
        return sum(sum(traffic.bytes_in) for traffic in self.traffic)

    @property
    def messages_sent(self) -> int:
        """Messages handed to lanes."""
        return self.traffic.sent()

    @property
    def bytes_sent(self) -> int:
        """Their payloads."""
        return sum(sum(traffic.bytes_out) for traffic in self.traffic)

    def counters(self) -> dict[str, int]:
        """Every number here that is not split up further, by name."""
        return {item.name: getattr(self, item.name) for item in fields(self) if item.name != "traffic"}

    def totals(self) -> dict[str, int]:
        """The same, and the totals."""
        return {name: getattr(self, name) for name in TOTALS} | self.counters()


TOTALS = ("connections", "messages_received", "bytes_received", "messages_sent", "bytes_sent")
