"""Groups: each message goes to one member, shared evenly, and a dead member's share moves on."""

from __future__ import annotations

from collections import Counter

import pytest

from moq.broker.message import Kind, Message, Subscription
from moq.broker.subscriptions import Group
from moq.reasons import Reason
from moq.wire import ConEnd
from tests.broker.desk import LONG, PERSISTENT, Client, Desk


def group_of(desk: Desk, *names: str, qos: int = 1) -> tuple[Client, list[Client]]:
    publisher = desk.connect("publisher")
    publisher.register("a", alias=1)
    members = [desk.connect(name, settings=LONG) for name in names]
    for member in members:
        member.subscribe("a", alias=1, qos=qos, group="g")
    return publisher, members


def send(publisher: Client, count: int, qos: int = 1) -> None:
    for number in range(count):
        publisher.publish(1, b"%d" % number, qos=qos, id=number + 1 if qos else 0)


def test_each_message_goes_to_one_member_in_turn(desk: Desk) -> None:
    publisher, members = group_of(desk, "x", "y", "z")
    send(publisher, 9)
    shares = [member.payloads() for member in members]
    assert [len(share) for share in shares] == [3, 3, 3]
    assert sorted(payload for share in shares for payload in share) == [b"%d" % number for number in range(9)]


def test_best_effort_messages_are_shared_in_turn_too(desk: Desk) -> None:
    publisher, members = group_of(desk, "x", "y", qos=0)
    send(publisher, 8, qos=0)
    assert [len(member.payloads()) for member in members] == [4, 4]


def test_the_least_loaded_member_is_chosen(desk: Desk) -> None:
    publisher, (busy, idle) = group_of(desk, "busy", "idle")
    busy.subscribe("b", alias=2, qos=1)
    publisher.register("b", alias=2)
    for number in range(4):
        publisher.publish(2, qos=1, id=number + 1)
    send(publisher, 4)
    assert len([message for message in busy.messages() if message.topic == "a"]) == 0
    assert len(idle.payloads()) == 4


def test_each_group_and_each_plain_subscriber_gets_every_message(desk: Desk) -> None:
    publisher, (member,) = group_of(desk, "x")
    other, plain = desk.connect("other"), desk.connect("plain")
    other.subscribe("a", alias=1, group="h")
    plain.subscribe("a", alias=1)
    send(publisher, 2)
    assert [len(client.payloads()) for client in (member, other, plain)] == [2, 2, 2]


def test_absent_members_come_last(desk: Desk) -> None:
    publisher, (absent, present) = group_of(desk, "absent", "present")
    absent.lost()
    send(publisher, 3)
    assert len(present.payloads()) == 3
    present.lost()
    publisher.publish(1, b"nobody is there", qos=1, id=9)
    waiting = Counter(session.client_id for session in desk.broker.sessions if session.outbound.waiting)
    assert sum(waiting.values()) == 2
    assert sum(session.outbound.waiting for session in desk.broker.sessions) == 4


def test_a_dead_members_share_moves_on(desk: Desk) -> None:
    publisher, (dying, living) = group_of(desk, "dying", "living")
    send(publisher, 4)
    assert (len(dying.payloads()), len(living.payloads())) == (2, 2)
    dying.lost()
    assert len(living.payloads()) == 2
    assert desk.connect("dying", resume=True, settings=LONG).payloads() == []


def test_with_nobody_else_there_it_waits_for_its_member(desk: Desk) -> None:
    publisher, (only,) = group_of(desk, "only")
    send(publisher, 2)
    only.lost()
    back = desk.connect("only", resume=True, settings=LONG)
    assert back.payloads() == [b"0", b"1"]


def test_a_qos_2_message_that_may_have_arrived_stays_with_its_member(desk: Desk) -> None:
    """Its receiver may have counted it already: given to another one it would arrive twice."""
    publisher, (first, second) = group_of(desk, "first", "second", qos=2)
    publisher.publish(1, b"x", qos=2, id=1)
    assert first.payloads() == [b"x"]
    first.lost()
    assert second.payloads() == []
    (again,) = desk.connect("first", resume=True, settings=LONG).messages()
    assert again.packet.dup


@pytest.mark.parametrize("goodbye", [True, False])
def test_what_a_member_leaves_behind_moves_on_when_its_session_ends(desk: Desk, goodbye: bool) -> None:
    publisher, (leaving, staying) = group_of(desk, "leaving", "staying")
    send(publisher, 4)
    staying.payloads()
    if goodbye:
        leaving.send(ConEnd(Reason.SUCCESS))
        assert len(staying.payloads()) == 2
    else:
        staying.lost()  # its share moves to the other
        leaving.lost()
        desk.advance(3000)
        staying = desk.connect("staying", resume=True, settings=LONG)
        assert len(staying.payloads()) == 0
        desk.advance(600)
        assert len(staying.payloads()) == 4


def test_what_the_last_member_leaves_behind_is_gone(desk: Desk) -> None:
    publisher, (only,) = group_of(desk, "only")
    send(publisher, 2)
    only.send(ConEnd(Reason.SUCCESS))
    assert desk.broker.subscriptions.count == 0
    assert desk.connect("only", resume=True).connack is not None


def test_subscribing_again_replaces_a_members_subscription(desk: Desk) -> None:
    publisher, (x, y) = group_of(desk, "x", "y")
    x.subscribe("a", alias=1, qos=0, group="g")
    assert desk.broker.subscriptions.count == 2
    send(publisher, 4)
    assert len(x.payloads()) + len(y.payloads()) == 4


def test_leaving_a_group_leaves_the_others(desk: Desk) -> None:
    publisher, (x, y) = group_of(desk, "x", "y")
    x.unsubscribe("a")
    send(publisher, 3)
    assert (len(x.payloads()), len(y.payloads())) == (0, 3)


def test_a_member_that_wants_no_messages_of_its_own_gets_none(desk: Desk) -> None:
    desk.connect("x")
    session = desk.broker.sessions.get("x")
    assert session is not None
    subscription = Subscription(session, "a", group="g", no_local=True)
    desk.broker.subscriptions.add(subscription)
    (group,) = desk.broker.subscriptions.route("a").groups
    assert isinstance(group, Group)
    assert group.choose(Message("a", b"", publisher="x")) is None
    assert group.choose(Message("a", b"", publisher="x", kind=Kind.REQUEST)) is None
    assert group.choose(Message("a", b"", publisher="y")) is not None


def test_groups_survive_a_restart(desk: Desk) -> None:
    for name in ("x", "y"):
        desk.connect(name, settings=PERSISTENT).subscribe("a", alias=1, qos=1, group="g")
    after = desk.restarted()
    members = [after.connect(name, resume=True, settings=PERSISTENT) for name in ("x", "y")]
    publisher = after.connect("publisher")
    publisher.register("a", alias=1)
    send(publisher, 4)
    assert [len(member.payloads()) for member in members] == [2, 2]
