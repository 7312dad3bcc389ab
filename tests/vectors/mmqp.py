"""Bytes derived by hand from the figures of the MMQP paper, with the packets they stand for.

Where a figure leaves a field open (packet identifiers, aliases, payloads) the value is ours; where a figure has values
they are the figure's. `Vector.figure` names the figure each comes from.
"""

from dataclasses import dataclass

from moq.wire import (
    Authen,
    Authentication,
    ConAck,
    ConEnd,
    Confirmation,
    ConfirmSyn,
    ConReq,
    ConSyn,
    Packet,
    PubAck,
    PublishExtension,
    PubReq,
    PubSyn,
    PubType,
    Query,
    QueryAck,
    Register,
    Settings,
    Subscribe,
    SubscribeExtension,
    TopAck,
    TopReq,
    TypeReq,
    Unsubscribe,
    Will,
)


@dataclass(frozen=True)
class Vector:
    figure: str
    says: str
    data: bytes
    packets: tuple[Packet, ...]

    def __str__(self) -> str:
        return f"figure {self.figure}: {self.says}"


def _vector(figure: str, says: str, *parts: str | bytes, packet: Packet) -> Vector:
    """Text parts are hexadecimal, byte parts are as they are."""
    return Vector(figure, says, b"".join(p if isinstance(p, bytes) else bytes.fromhex(p) for p in parts), (packet,))


def _publish(payload: bytes) -> PubReq:
    return PubReq(0, False, False, 0, 0, 1, None, None, None, payload)


FIXED_HEADER = (
    _vector(
        "12", "a length of 120 has one byte, RLF 00", "70 78", "00 0000 0001", b"p" * 115,
        packet=_publish(b"p" * 115),
    ),
    _vector(
        "12", "a length of 255 has one byte, RLF 00", "70 ff", "00 0000 0001", b"p" * 250,
        packet=_publish(b"p" * 250),
    ),
    _vector(
        "12", "a length of 256 has two, RLF 01", "74 0100", "00 0000 0001", b"p" * 251,
        packet=_publish(b"p" * 251),
    ),
    _vector(
        "12", "a length of 65535 has two, RLF 01", "74 ffff", "00 0000 0001", b"p" * 65530,
        packet=_publish(b"p" * 65530),
    ),
    _vector(
        "12", "a length of 65536 has three, RLF 10", "78 010000", "00 0000 0001", b"p" * 65531,
        packet=_publish(b"p" * 65531),
    ),
)  # fmt: skip

CONNECTION = (
    _vector("13", "nothing but name, version and flags", "10 07", "04", b"MMQP", "ff", "00", packet=ConReq()),
    _vector("13", "RES is bit 1 of the control byte", "12 07", "04", b"MMQP", "ff", "00", packet=ConReq(resume=True)),
    _vector(
        "13", "CID is bit 2 of byte 9", "10 0c", "04", b"MMQP", "ff", "04", "04", b"dev1",
        packet=ConReq(client_id="dev1"),
    ),
    _vector(
        "14", "user name and password; the section begins at byte 10",
        "10 1a", "04", b"MMQP", "ff", "80", "c0", "08", b"username", "08", b"password",
        packet=ConReq(authentication=Authentication("username", b"password")),
    ),
    _vector(
        "14", "method and data follow",
        "10 23", "04", b"MMQP", "ff", "80", "f0", "08", b"username", "08", b"password",
        "05", b"SCRAM", "02", b"\x01\x02",
        packet=ConReq(authentication=Authentication("username", b"password", "SCRAM", b"\x01\x02")),
    ),
    _vector(
        "15", "persistent, keep alive 60, expiry 60", "10 0c", "04", b"MMQP", "ff", "40", "e0", "003c", "003c",
        packet=ConReq(settings=Settings(True, 60, 60)),
    ),
    _vector(
        "15", "expiry alone", "10 0a", "04", b"MMQP", "ff", "40", "20", "003c",
        packet=ConReq(settings=Settings(expiry_s=60)),
    ),
    _vector(
        "16", "an initial will with expiry 60 and delay 10, QoS 1, retained",
        "10 22", "04", b"MMQP", "ff", "20", "d8", "0e", b"client1/status", "06", b"online", "003c", "000a",
        packet=ConReq(initial_will=Will(1, True, "client1/status", b"online", 60, 10)),
    ),
    _vector(
        "16", "a last will with a delay alone",
        "10 21", "04", b"MMQP", "ff", "10", "40", "0e", b"client1/status", "07", b"offline", "000a",
        packet=ConReq(last_will=Will(0, False, "client1/status", b"offline", None, 10)),
    ),
    _vector(
        "13", "all sections, in the order of their flags",
        "12 3c", "04", b"MMQP", "ff", "fc", "80", "01", b"u", "40", "003c",
        "00", "01", b"s", "01", b"1", "00", "01", b"s", "01", b"0",
        "02", "08 0001", "0b", b"room1/light", "48 0002", "0c", b"room1/switch", "04", b"dev1",
        packet=ConReq(
            True, 255, Authentication("u"), Settings(False, 60), Will(0, False, "s", b"1"), Will(0, False, "s", b"0"),
            [Subscribe(0, False, 1, "room1/light"), Register(0, False, 2, "room1/switch")], "dev1",
        ),
    ),
    _vector("17", "accepted: byte 3 is zero, byte 4 the reason", "20 02 00 00", packet=ConAck(False, 0)),
    _vector("17", "refused", "20 02 00 87", packet=ConAck(False, 0x87)),
    _vector("17", "byte 3 says session present", "20 02 80 00", packet=ConAck(True, 0)),
    _vector("17", "byte 3 announces an identifier", "20 07 40 00 04", b"auto", packet=ConAck(False, 0, "auto")),
    _vector("18", "a remaining length of 0", "30 00", packet=ConSyn()),
    _vector("19", "a remaining length of 1 and a reason", "40 01 8d", packet=ConEnd(0x8D)),
)  # fmt: skip

TOPICS = (
    _vector(
        "20", "packet identifier MSB first, then requests", "50 08 0102", "00 0001", "80 0001",
        packet=TopReq(0x0102, [Subscribe(0, False, 1), Unsubscribe(False, 1)]),
    ),
    _vector("21", "packet identifier and reason", "60 03 0102 00", packet=TopAck(0x0102, b"\0")),
    _vector("21", "one reason for each request", "60 05 0102 00 8f 00", packet=TopAck(0x0102, b"\0\x8f\0")),
    _vector(
        "22", "subscribe with topic, REQ and group, QoS 2",
        "50 1b 0001", "2e 0005", "0b", b"room1/light", "09", b"groupName",
        packet=TopReq(1, [Subscribe(2, True, 5, "room1/light", "groupName")]),
    ),
    _vector(
        "22", "subscribe by alias alone, QoS 1", "50 05 0001", "10 0005",
        packet=TopReq(1, [Subscribe(1, False, 5)]),
    ),
    _vector(
        "22", "EXT is the free bit 0: period 100 ms, RPT, priority 3, deadline 1 s",
        "50 11 0001", "09 0005", "05", b"a/b/c", "f0", "000a", "03", "0064",
        packet=TopReq(1, [Subscribe(0, False, 5, "a/b/c", None, SubscribeExtension(10, True, 3, 100))]),
    ),
    _vector(
        "23", "register LIFO with topic, REQ and an expiry of 60",
        "50 13 0001", "6e 0006", "0b", b"room1/light", "003c",
        packet=TopReq(1, [Register(2, True, 6, "room1/light", 60)]),
    ),
    _vector("23", "register FIFO by alias", "50 05 0001", "50 0006", packet=TopReq(1, [Register(1, False, 6)])),
    _vector(
        "24", "unsubscribe from a wildcard, alias zero", "50 0d 0001", "88 0000", "07", b"room1/#",
        packet=TopReq(1, [Unsubscribe(False, 0, "room1/#")]),
    ),
    _vector(
        "24", "REG, bit 2, drops a registration", "50 05 0001", "84 0006",
        packet=TopReq(1, [Unsubscribe(True, 6)]),
    ),
    _vector("20", "type 3 is QUERY", "50 09 0001", "c8 0000", "03", b"a/b", packet=TopReq(1, [Query(0, "a/b")])),
    _vector(
        "21", "control flag LST answers QUERY", "61 07 0001 00", "01", b"x", "01", b"y",
        packet=QueryAck(1, 0, ["x", "y"]),
    ),
)  # fmt: skip

MESSAGES = (
    _vector(
        "25", "retained, repeated, QoS 1, with its topic", "70 13", "d8", "0007", "0001", "0b", b"room1/light", b"on",
        packet=PubReq(0, True, True, 1, 7, 1, "room1/light", None, None, b"on"),
    ),
    _vector("25", "QoS 0 by alias", "70 07", "00", "0000", "0001", b"on", packet=_publish(b"on")),
    _vector("25", "no payload", "70 05", "00", "0000", "0001", packet=_publish(b"")),
    _vector(
        "25", "TYPE 01 is REQUEST", "71 07", "00", "0009", "0001", b"on",
        packet=PubReq(1, False, False, 0, 9, 1, None, None, None, b"on"),
    ),
    _vector(
        "25", "TYPE 10 is RESPONSE", "72 07", "10", "0009", "0001", b"on",
        packet=PubReq(2, False, False, 1, 9, 1, None, None, None, b"on"),
    ),
    _vector(
        "25", "QoS 3 has waited_packet_num after the topic", "70 0c", "38", "0007", "0001", "01", b"t", "0002", b"on!",
        packet=PubReq(0, False, False, 3, 7, 1, "t", 2, None, b"on!"),
    ),
    _vector(
        "25", "EXT is bit 2: TTL, timestamp, group start and type", "70 16",
        "04", "0000", "0001", "d4", "000003e8", "0000000000000001", "0005", b"on",
        packet=PubReq(
            0, False, False, 0, 0, 1, None, None, PublishExtension(1000, 1, None, True, False, 5), b"on"
        ),
    ),
    _vector("26", "packet identifier and reason", "90 03 0007 00", packet=PubAck(0, 7, 0)),
    _vector("26", "the TYPE bits of what it answers", "91 03 0007 c1", packet=PubAck(1, 7, 0xC1)),
    _vector("27", "packet identifier and reason: received", "80 03 0007 00", packet=PubSyn(0, 7, 0)),
    _vector("27", "released", "80 03 0007 01", packet=PubSyn(0, 7, 1)),
    _vector(
        "27", "TYPE 3 from a subscriber, with a reply", "83 09 0007 00", "20", "04", b"done",
        packet=ConfirmSyn(7, 0, [Confirmation(reply=b"done")]),
    ),
    _vector(
        "27", "TYPE 3 to a publisher: who, when, with a reply and without", "83 14 0007 00",
        "e0", "01", b"x", "0000000c", "02", b"ok", "c0", "01", b"y", "00000010",
        packet=ConfirmSyn(7, 0, [Confirmation("x", 12, b"ok"), Confirmation("y", 16)]),
    ),
    Vector(
        "28", "the four packets of QoS 2",
        bytes.fromhex("70 06 20 0007 0001 21" "80 03 0007 00" "80 03 0007 01" "90 03 0007 00"),
        (PubReq(0, False, False, 2, 7, 1, None, None, None, b"!"), PubSyn(0, 7, 0), PubSyn(0, 7, 1), PubAck(0, 7, 0)),
    ),
)  # fmt: skip

OURS = (
    _vector("11", "type 10 is AUTHEN", "a0 09 18 05", b"SCRAM", "0102", packet=Authen(0x18, "SCRAM", b"\x01\x02")),
    _vector("11", "type 11 is free: TYPEREQ", "b0 06 0003 03", b"a/#", packet=TypeReq(3, "a/#")),
    _vector(
        "11", "type 12 is free: PUBTYPE", "c0 10", "40", "0003", "00", "01", "0005", "03", b"a/b", "02", b"aa", b"{}",
        packet=PubType(False, True, 3, 0, 1, 5, "a/b", "aa", b"{}"),
    ),
)  # fmt: skip

VECTORS = FIXED_HEADER + CONNECTION + TOPICS + MESSAGES + OURS
