"""The paper's figures, byte for byte: whole, byte by byte, and with another packet behind."""

import re

import pytest

from moq.wire import FrameReader, Item, PubAck, encode
from tests.vectors.mmqp import VECTORS, Vector

NEXT = PubAck(0, 1, 0)
NEXT_BYTES = bytes.fromhex("90 03 0001 00")

each_vector = pytest.mark.parametrize("vector", VECTORS, ids=str)


def reader() -> FrameReader:
    return FrameReader(max_packet_bytes=1 << 20)


@each_vector
def test_the_packets_encode_to_the_bytes_of_the_figure(vector: Vector) -> None:
    assert b"".join(encode(packet) for packet in vector.packets) == vector.data


@each_vector
def test_the_bytes_of_the_figure_decode_whole(vector: Vector) -> None:
    frames = reader()
    assert list(frames.feed(vector.data)) == list(vector.packets)
    assert not frames.mid_packet


@each_vector
def test_the_bytes_of_the_figure_decode_byte_by_byte(vector: Vector) -> None:
    frames = reader()
    items: list[Item] = []
    for position in range(len(vector.data)):
        items += frames.feed(vector.data[position : position + 1])
    assert items == list(vector.packets)
    assert not frames.mid_packet


@each_vector
def test_the_bytes_of_the_figure_decode_with_another_packet_behind(vector: Vector) -> None:
    frames = reader()
    assert list(frames.feed(vector.data + NEXT_BYTES)) == [*vector.packets, NEXT]
    assert list(frames.feed(vector.data + NEXT_BYTES[:2])) == list(vector.packets)
    assert frames.mid_packet
    assert list(frames.feed(NEXT_BYTES[2:])) == [NEXT]


def test_every_figure_that_shows_a_layout_has_a_vector() -> None:
    figures = {int(figure) for vector in VECTORS for figure in re.findall(r"\d+", vector.figure)}
    assert figures >= {12, *range(14, 29)}
