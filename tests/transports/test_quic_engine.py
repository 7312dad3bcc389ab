"""Both engines against a network that loses, delays, duplicates and reorders."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from certs import authority
from tests.transports.quic_pair import Conditions, Pair
from transports.quic.options import QUICOptions

if TYPE_CHECKING:
    from certs.authority import CertificatePaths

ENGINES = ["aioquic"]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> CertificatePaths:
    return authority.ensure(Path(tmp_path_factory.mktemp("quic")))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_handshake_agrees_on_the_protocol(certificates: CertificatePaths, engine: str) -> None:
    pair = Pair(certificates, engine).connect()
    assert pair.client.handshake is not None
    assert pair.client.handshake.alpn == "mmqp"


HOSTILE = [
    Conditions(),
    Conditions(loss=0.05),
    Conditions(jitter_s=0.004),
    Conditions(duplication=0.3),
    Conditions(loss=0.1, jitter_s=0.01, duplication=0.1),
]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("conditions", HOSTILE, ids=repr)
def test_every_stream_arrives_byte_for_byte(
    certificates: CertificatePaths, engine: str, conditions: Conditions, seed: int
) -> None:
    pair = Pair(certificates, engine, conditions=conditions, seed=seed).connect()
    rng = random.Random(seed)
    expected: dict[int, bytes] = {0: rng.randbytes(20_000)}
    for _ in range(12):
        expected[pair.client.engine.open_stream(rng.randrange(256))] = rng.randbytes(rng.randrange(1, 60_000))
    answer = rng.randbytes(30_000)
    for stream_id, data in expected.items():
        cut = rng.randrange(len(data))
        pair.client.engine.send(stream_id, data[:cut])
        pair.client.engine.send(stream_id, data[cut:], fin=stream_id != 0)
    pair.run(lambda: pair.server.received[0])
    pair.server.engine.send(0, answer)
    pair.run(
        lambda: (
            len(pair.server.finished) == 12
            and len(pair.server.received[0]) == 20_000
            and len(pair.client.received[0]) == len(answer)
        )
    )
    assert {stream_id: bytes(data) for stream_id, data in pair.server.received.items()} == expected
    assert bytes(pair.client.received[0]) == answer
    pair.run(lambda: pair.client.engine.is_acknowledged(0) and pair.client.engine.stats().open_streams == 1)
    pair.run(lambda: pair.server.engine.stats().open_streams == 1)


def test_options() -> None:
    assert QUICOptions().alpn == ("mmqp",)
