"""The short routes of PUBLISH: most packets are QoS 0 without flags or properties, and their topics repeat.

Each route does what the generated codec does, or nothing: it stops, or says None, at whatever is not of this form.
"""

from collections.abc import Callable
from typing import Final

from moq.wire.codec import MAX_LONG, decode_text
from moq.wire.mqtt.packets import Publish

PLAIN: Final = 0x30
"""The control byte of PUBLISH with QoS 0, neither DUP nor RETAIN."""

MAX_PLAIN_BYTES: Final = 0x3FFF
"""The most a remaining length of two bytes holds."""

MAX_TOPICS: Final = 512
MAX_TOPIC_BYTES: Final = 128
"""Bounds on what a reader remembers: 64 KiB of keys, whatever a peer publishes on."""


def cut_publishes(
    buf: bytes, pos: int, append: Callable[[Publish], None], topics: dict[bytes, str], limit: int, properties_bytes: int
) -> int:
    """Read plain PUBLISH packets as long as there are, fixed headers included; return where they end.

    `limit` bounds the remaining length, `properties_bytes` is 1 in MQTT 5, where an empty list of properties is a zero
    byte. Finding the text of a topic among those seen takes two thirds of the time of decoding it, and gives a string
    whose hash is known already.
    """
    size = len(buf)
    last = size - 5
    while pos <= last and buf[pos] == PLAIN:
        remaining = buf[pos + 1]
        start = pos + 2
        if remaining > 0x7F:
            high = buf[start]
            if not 0 < high < 0x80:
                break
            remaining += (high - 1) << 7
            start += 1
        end = start + remaining
        topic_end = start + 2 + (buf[start] << 8 | buf[start + 1])
        payload = topic_end + properties_bytes
        if end > size or payload > end or remaining > limit or (properties_bytes and buf[topic_end]):
            break
        key = buf[start + 2 : topic_end]
        topic = topics.get(key)
        if topic is None:
            if not key:
                break
            topic = remembered(topics, key)
        append(Publish(False, 0, False, topic, 0, None, buf[payload:end]))
        pos = end
    return pos


def remembered(topics: dict[bytes, str], key: bytes) -> str:
    """The text of a topic, kept for the next time if it is short."""
    topic = decode_text(key, "Publish.topic")
    if len(key) <= MAX_TOPIC_BYTES:
        if len(topics) >= MAX_TOPICS:
            topics.clear()
        topics[key] = topic
    return topic


def encode_plain(packet: Publish, properties: bytes) -> bytes | None:
    """The bytes of a plain PUBLISH with a remaining length of up to two bytes; `properties` is their empty list."""
    if packet.qos or packet.retain or packet.dup or packet.packet_id or packet.properties is not None:
        return None
    topic = packet.topic
    try:
        name = topic.encode()
    except UnicodeEncodeError:
        return None
    payload = packet.payload
    size = len(name)
    remaining = 2 + size + len(properties) + len(payload)
    if not 0 < size <= MAX_LONG or remaining > MAX_PLAIN_BYTES or "\0" in topic:
        return None
    if remaining < 0x80:
        return b"".join((bytes((PLAIN, remaining, size >> 8, size & 0xFF)), name, properties, payload))
    header = bytes((PLAIN, remaining & 0x7F | 0x80, remaining >> 7, size >> 8, size & 0xFF))
    return b"".join((header, name, properties, payload))
