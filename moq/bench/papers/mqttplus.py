"""MQTT+'s two experiments: aggregates of many sensors, and people counted in pictures, computed by the broker.

Each is run three times or twice with the same sensors: subscribers that get everything, and subscribers that get what
the broker makes of it. What the subscribers receive is the downlink traffic of the paper.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from moq.bench.papers import picture, published, standin
from moq.bench.papers.clients import MQTTClient, published_bytes
from moq.bench.papers.equations import KEYWORD, Parameters
from moq.bench.papers.metered import SETTLE_S, running_broker
from moq.wire import mqtt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from moq.bench.papers.metered import Metered
    from moq.bench.papers.progress import Progress
    from moq.broker.link import Link

PLAIN, SKR, RPT, PROCESSED = "plain", "SKR", "RPT", "$CNTPPL"
MESSAGES_PER_RESULT: Final = round(published.MQTTPLUS_WINDOW_S * published.MQTTPLUS_RATE)
"""λ/λA: 45 messages of each sensor in a quarter of an hour."""
MEAN: Final = 21_345
"""In thousandths. Sensors differ by hundredths around it, each one constant, so that the average of any window is
written with as many digits as a single value: K, the length of a number, is the same for both as in the equations."""
STEP: Final = 10
BUSY_SHARE: Final = 0.6
"""The part of a window in which sensors publish, in its middle: neither clock nor generator is so exact that a message
near the boundary would surely be counted for the window it was meant for."""
RESULT_TIMEOUT_S: Final = 30.0
LEAD_S: Final = 0.3
"""Before a window begins everybody is connected and the publishers wait for it."""
START_ESTIMATE_S: Final = 3.0


@dataclass(frozen=True, slots=True)
class Plan:
    """How much of it, and how much faster than in the paper."""

    shapes: tuple[tuple[int, int], ...] = ((1, 1), (10, 1), (50, 1), (100, 1), (10, 10), (50, 10), (100, 10))
    """Sensors and subscribers; the first is the one others are normalised to."""
    window_s: int = 4
    """In the place of a quarter of an hour; sensors publish as much faster."""
    windows: int = 3
    image_shapes: tuple[tuple[int, int], ...] = ((1, 1), (2, 1), (4, 1), (1, 5), (4, 5))
    images: int = 10
    """Of each camera."""
    image_interval_s: float = 1.0
    settle_s: float = SETTLE_S

    @property
    def steps(self) -> int:
        """Every shape in every variant."""
        return 3 * len(self.shapes) + 2 * len(self.image_shapes)

    @property
    def estimate_s(self) -> float:
        """About how long it takes."""
        scalar_s = self.window_s * (self.windows + 0.5) + self.settle_s + START_ESTIMATE_S
        image_s = self.images * self.image_interval_s + self.settle_s + START_ESTIMATE_S
        return 3 * len(self.shapes) * scalar_s + 2 * len(self.image_shapes) * image_s


QUICK: Final = Plan(
    shapes=((3, 2),), window_s=2, windows=1, image_shapes=((2, 2),), images=2, image_interval_s=0.5, settle_s=0.0
)


@dataclass(slots=True)
class Run:
    """What one variant gave with so many sensors and subscribers."""

    variant: str
    sensors: int
    subscribers: int
    messages: int = 0
    downlink_bytes: int = 0
    wrong: int = 0
    """Messages that were not what was asked for: an error, or a value that is not the average."""
    seconds: float = 0.0
    cpu_s: float = 0.0
    rss_bytes: int = 0
    worker_rss_bytes: int = 0


class Receiver(MQTTClient):
    """A subscriber that counts messages, and those that are not as expected."""

    def __init__(self, link: Link) -> None:
        super().__init__(link)
        self.messages = 0
        self.wrong = 0
        self.is_expected: Callable[[mqtt.Publish], bool] = lambda packet: True
        self.arrived = asyncio.Event()

    def take(self, packet: mqtt.Packet) -> None:
        """Count messages; the rest answers requests."""
        if not isinstance(packet, mqtt.Publish):
            super().take(packet)
            return
        self.messages += 1
        self.wrong += not self.is_expected(packet)
        self.arrived.set()


@dataclass(frozen=True, slots=True)
class Task:
    """What sensors publish, what subscribers ask for and what they are to get."""

    topic_filter: str
    messages: list[bytes]
    """One for each sensor, sent again and again."""
    times: list[tuple[float, int]]
    """When, in seconds from the start, which sensor; in order."""
    results: int
    """That each subscriber gets."""
    is_expected: Callable[[mqtt.Publish], bool]
    window_s: int = 1
    """Begin when one of these does."""


async def run(plan: Plan, progress: Progress) -> tuple[list[Run], list[Run]]:
    """Both experiments: numbers, then pictures."""
    runs: list[Run] = []
    for sensors, subscribers in plan.shapes:
        for variant in (PLAIN, SKR, RPT):
            progress.begin(f"MQTT+, {sensors} sensors, {subscribers} subscribers, {variant}")
            async with running_broker() as broker:
                task = scalar_task(plan, variant, sensors)
                runs.append(await _measure(variant, task, sensors, subscribers, broker, plan.settle_s))
            progress.end(f"{runs[-1].downlink_bytes:,} bytes")
    pictures: list[Run] = []
    with detector() as python_path:
        for sensors, subscribers in plan.image_shapes:
            for variant in (PLAIN, PROCESSED):
                progress.begin(f"MQTT+, {sensors} cameras, {subscribers} subscribers, {variant}")
                async with running_broker(python_path=python_path) as broker:
                    task = image_task(plan, variant, sensors)
                    pictures.append(await _measure(variant, task, sensors, subscribers, broker, plan.settle_s))
                progress.end(f"{pictures[-1].downlink_bytes:,} bytes")
    return runs, pictures


async def _measure(variant: str, task: Task, sensors: int, subscribers: int, broker: Metered, settle_s: float) -> Run:
    run = Run(variant, sensors, subscribers)
    receivers: list[Receiver] = []
    publishers: list[MQTTClient] = []
    try:
        for number in range(subscribers):
            receivers.append(await Receiver.open(broker.target, f"subscriber-{number}"))
            receivers[-1].is_expected = task.is_expected
            await receivers[-1].subscribe(task.topic_filter)
        publishers += [await MQTTClient.open(broker.target, f"sensor-{number}") for number in range(sensors)]
        await asyncio.sleep(settle_s)
        await _wait_for_window(task.window_s)
        greeted = sum(receiver.received_bytes for receiver in receivers)
        before, started = broker.usage(), time.perf_counter()
        await _publish(task, publishers, started)
        for receiver in receivers:
            await _results(receiver, task.results)
        after = broker.usage()
        run.seconds = time.perf_counter() - started
        run.cpu_s = after.cpu_s - before.cpu_s
        run.rss_bytes, run.worker_rss_bytes = after.rss_bytes, after.worker_rss_bytes
        run.messages = sum(receiver.messages for receiver in receivers)
        run.wrong = sum(receiver.wrong for receiver in receivers)
        run.downlink_bytes = sum(receiver.received_bytes for receiver in receivers) - greeted
    finally:
        for client in (*receivers, *publishers):
            client.link.abort()
    return run


async def _wait_for_window(window_s: int) -> None:
    """Until a window begins by the clock, and not one that is nearly here."""
    now = time.time() + LEAD_S
    await asyncio.sleep(window_s - now % window_s + LEAD_S)


async def _publish(task: Task, publishers: list[MQTTClient], started: float) -> None:
    for due_s, sensor in task.times:
        if (left_s := started + due_s - time.perf_counter()) > 0:
            await asyncio.sleep(left_s)
        publishers[sensor].link.control.write(task.messages[sensor])


async def _results(receiver: Receiver, wanted: int) -> None:
    """Wait for as many messages as there should be; what is missing after a long time shows in the figures."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(RESULT_TIMEOUT_S):
            while receiver.messages < wanted:
                receiver.arrived.clear()
                await receiver.arrived.wait()


# --- the two tasks ---


def operator(plan: Plan) -> str:
    """The paper's aggregate with a shorter window: average over sensors of averages over time."""
    return f"$AVG$WIN;{plan.window_s}s;AVG"


def sensor_name(number: int) -> str:
    """Eight bytes."""
    return f"sens{number:04d}"


def sensor_value(number: int, sensors: int) -> str:
    """Six bytes, 21.345 on average over all sensors."""
    thousandths = MEAN + STEP * (2 * number - sensors + 1) // 2
    return f"{thousandths / 1000:.3f}"


def parameters(plan: Plan) -> Parameters:
    """P, O and W as our packets have them."""
    message = published_bytes(published.MQTTPLUS_TOPIC + sensor_name(0), sensor_value(0, 1).encode())
    return Parameters(len(message), len(operator(plan)), published.MQTTPLUS_SENSOR_BYTES)


def scalar_task(plan: Plan, variant: str, sensors: int) -> Task:
    """Numbers of all sensors, as they are or as one average per window."""
    topic = published.MQTTPLUS_TOPIC
    messages = [
        published_bytes(topic + sensor_name(number), sensor_value(number, sensors).encode())
        for number in range(sensors)
    ]
    step_s = plan.window_s * BUSY_SHARE / (MESSAGES_PER_RESULT * sensors)
    times = [
        (plan.window_s * (window + (1 - BUSY_SHARE) / 2) + number * step_s, number % sensors)
        for window in range(plan.windows)
        for number in range(MESSAGES_PER_RESULT * sensors)
    ]
    if variant == PLAIN:
        return Task(f"{topic}+", messages, times, len(times), lambda packet: True, plan.window_s)
    prefix = "$RPT" if variant == RPT else ""
    names = ";".join(sensor_name(number) for number in range(sensors)) if variant == RPT else KEYWORD
    expected = f"{operator(plan)}/{topic}{names}", f"{MEAN / 1000:.3f}".encode()
    return Task(
        f"{prefix}{operator(plan)}/{topic}+",
        messages,
        times,
        plan.windows,
        lambda packet: (packet.topic, packet.payload) == expected,
        plan.window_s,
    )


def image_task(plan: Plan, variant: str, cameras: int) -> Task:
    """Pictures of all cameras, as they are or as the number of people in them."""
    topic = published.MQTTPLUS_IMAGE_TOPIC
    result = published_bytes(f"$CNTPPL/{topic}{sensor_name(0)}", b"1")
    image = picture.draw(round(published.MQTTPLUS_IMAGE_RATIO * len(result)))
    messages = [published_bytes(topic + sensor_name(number), image) for number in range(cameras)]
    times = [
        ((count + number / cameras) * plan.image_interval_s, number)
        for count in range(plan.images)
        for number in range(cameras)
    ]
    if variant == PLAIN:
        return Task(f"{topic}+", messages, times, len(times), lambda packet: packet.payload == image)
    return Task(
        f"{PROCESSED}/{topic}+",
        messages,
        times,
        len(times),
        lambda packet: packet.topic.startswith(f"{PROCESSED}/{topic}") and packet.payload.isdigit(),
    )


def is_stand_in() -> bool:
    """True without OpenCV."""
    return find_spec("cv2") is None


@contextlib.contextmanager
def detector() -> Iterator[Path | None]:
    """Where Python finds a stand-in for the detector, if that is not installed."""
    if not is_stand_in():
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="moq-papers-") as name:
        standin.install(Path(name))
        yield Path(name)
