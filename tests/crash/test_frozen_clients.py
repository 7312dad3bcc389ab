"""A client that is frozen, or gone without a word: the broker gives its connection up, and keeps its messages.

To the broker a frozen process is a half-open connection: on QUIC nothing is acknowledged any more, on TCP the kernel
takes what fits its buffers and nobody reads it.
"""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING

import moq
from tests.crash.looking import figure, until
from tests.crash.sleeper import TOPIC
from tests.running import Broker, Running

if TYPE_CHECKING:
    from pathlib import Path

MESSAGES = 200


def sleeper(broker: Broker, scheme: str) -> Running:
    ca = broker.data_dir / "certs" / "ca.pem"
    return Running(sys.executable, "-m", "tests.crash.sleeper", broker.url(scheme), str(ca))


def check_what_it_heard(lines: list[str]) -> None:
    """Everything, in order; the odd ones, of QoS 2, once."""
    numbers = [int(line.split()[1]) for line in lines if line.startswith("message")]
    assert list(dict.fromkeys(numbers)) == list(range(MESSAGES))
    assert sorted(number for number in numbers if number % 2) == list(range(1, MESSAGES, 2))


async def test_frozen_subscribers_are_given_up_and_get_all_their_messages_when_they_thaw(tmp_path: Path) -> None:
    with Broker(tmp_path) as broker, sleeper(broker, "tcp") as on_tcp, sleeper(broker, "quic") as on_quic:
        sleepers = (on_tcp, on_quic)
        async with moq.connect(broker.url("tcp")) as publisher:
            for one in sleepers:
                one.wait_for("subscribed")
                one.process.send_signal(signal.SIGSTOP)
            for number in range(MESSAGES):
                await publisher.publish(TOPIC, f"message {number}", qos=1 + number % 2)

            async def are_given_up() -> bool:
                return await figure(broker, "moq_links_open") == 1

            await until("the links of the frozen clients to be given up", are_given_up)
            await publisher.publish(TOPIC, "last", qos=2)
        for one in sleepers:
            one.process.send_signal(signal.SIGCONT)
            one.wait_for("last")
            check_what_it_heard(one.stdout)
