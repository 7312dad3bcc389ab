"""The scenarios of `moq bench run`, as data: what is published, how often, how large, and to how many.

    Scenario ── Case ── FlowPlan     one topic of one publisher: a rate, a size (or several, in turn), a QoS

A case fixes everything about a load before it runs, the time of every message included: message number n of a flow is
due `(n + offset) / rate` seconds after the start, whatever the broker does meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from moq.bench.dialects import check_payload_bytes
from moq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

VIDEO_FRAMES_PER_S: Final = 25
VIDEO_GROUP: Final = 25
VIDEO_BIT_S: Final = 2_000_000
KEYFRAME_RATIO: Final = 8
"""How many times larger than the other frames the first one of a group is."""
VIDEO_FRAME_BYTES: Final = VIDEO_BIT_S // 8 * VIDEO_GROUP // VIDEO_FRAMES_PER_S // (VIDEO_GROUP - 1 + KEYFRAME_RATIO)
VIDEO_SIZES: Final = (KEYFRAME_RATIO * VIDEO_FRAME_BYTES, *[VIDEO_FRAME_BYTES] * (VIDEO_GROUP - 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowPlan:
    """One topic of one publisher."""

    index: int
    publisher: int
    rate: float
    offset: float
    """When the first message is due, as a part of the interval between two: flows take turns, as far as they can."""
    sizes: tuple[int, ...]
    """Of payloads, one after the other and then again."""
    qos: int = 0
    is_request: bool = False
    """Somebody answers each message; what is measured is the way there and back."""
    is_video: bool = False
    """Measured apart from the others."""

    @property
    def interval_ns(self) -> float:
        """Between two messages."""
        return 1e9 / self.rate

    def due_ns(self, seq: int) -> int:
        """When this message is due, counted from the start."""
        return round((seq + self.offset) * self.interval_ns)

    def size(self, seq: int) -> int:
        """Of this message's payload."""
        return self.sizes[seq % len(self.sizes)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One load."""

    rate: float
    """Messages per second of all flows together; the video has its own rate."""
    publishers: int = 1
    subscribers: int = 1
    topics: int = 1
    """For each publisher."""
    payload_bytes: int = 100
    qos: int = 0
    is_request: bool = False
    has_video: bool = False

    def __post_init__(self) -> None:
        """Refuse what makes no run."""
        check_payload_bytes(self.payload_bytes)
        for name in ("rate", "publishers", "subscribers", "topics"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be greater than 0")
        if self.qos not in (0, 1, 2, 3):
            raise ConfigError(f"qos is {self.qos}; it must be 0, 1, 2 or 3")

    def flows(self) -> list[FlowPlan]:
        """Every topic, the video's last."""
        count = self.publishers * self.topics
        flows = [
            FlowPlan(
                index=index,
                publisher=index // self.topics,
                rate=self.rate / count,
                offset=index / count,
                sizes=(self.payload_bytes,),
                qos=self.qos,
                is_request=self.is_request,
            )
            for index in range(count)
        ]
        if self.has_video:
            video = FlowPlan(
                index=count, publisher=0, rate=VIDEO_FRAMES_PER_S, offset=0.5, sizes=VIDEO_SIZES, is_video=True
            )
            flows.append(video)
        return flows

    def parameters(self) -> Mapping[str, float | int | str]:
        """For the results."""
        facts: dict[str, float | int | str] = {
            name: getattr(self, name)
            for name in ("publishers", "subscribers", "topics", "payload_bytes", "qos", "rate")
        }
        return {**facts, "video_bit_s": VIDEO_BIT_S} if self.has_video else facts

    def __str__(self) -> str:
        text = f"{self.publishers}→{self.subscribers}, {self.payload_bytes} B, QoS {self.qos}, {self.rate:g}/s"
        if self.topics > 1:
            text += f", {self.topics} topics"
        return text + (" and video" if self.has_video else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Cases under one name."""

    meaning: str
    cases: tuple[Case, ...]
    is_ladder: bool = False
    """Cases of growing load: once one is too much for a contender, it is spared the rest."""


SIZES_AND_RATES: Final = ((16, 1000), (100, 1000), (1024, 1000), (16 * 1024, 200), (128 * 1024, 40), (1024 * 1024, 5))
"""At most some megabytes in a second, which every contender takes: it is latency that is compared."""

LADDER: Final = (1_000, 2_000, 5_000, 10_000, 20_000, 40_000, 80_000)
"""Messages per second; the generator itself comes to its end somewhat above."""

SCENARIOS: Final[Mapping[str, Scenario]] = {
    "1-1": Scenario(meaning="one publisher, one subscriber", cases=(Case(rate=1000),)),
    "fan-in": Scenario(meaning="ten publishers, one subscriber", cases=(Case(rate=1000, publishers=10),)),
    "fan-out": Scenario(
        meaning="one publisher, ten and a hundred subscribers",
        cases=(Case(rate=500, subscribers=10), Case(rate=100, subscribers=100)),
    ),
    "request": Scenario(meaning="request and response, there and back", cases=(Case(rate=500, is_request=True),)),
    "qos": Scenario(
        meaning="QoS 0 to 3; 3, confirmed by the subscriber, where there is one",
        cases=tuple(Case(rate=500, qos=qos) for qos in (0, 1, 2, 3)),
    ),
    "sizes": Scenario(
        meaning="payloads of 16 B to 1 MiB",
        cases=tuple(Case(rate=rate, payload_bytes=size) for size, rate in SIZES_AND_RATES),
    ),
    "telemetry": Scenario(
        meaning="8 topics of 50 messages/s, one connection on either side", cases=(Case(rate=400, topics=8),)
    ),
    "mixed": Scenario(
        meaning="telemetry beside a video of 2 Mbit/s", cases=(Case(rate=400, topics=8, has_video=True),)
    ),
    "rates": Scenario(
        meaning="latency against load, up to saturation",
        cases=tuple(Case(rate=rate, topics=4) for rate in LADDER),
        is_ladder=True,
    ),
}
