"""The access file: rules in order, who they speak of, what their topics match, and complaints that name the rule."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moq.broker.access import Action, Identity
from moq.errors import ConfigError
from moq.security.access import (
    MAX_ANSWERS,
    RIGHTS,
    SHORTHANDS,
    AccessList,
    Rule,
    Rules,
    covers,
    load_rules,
    overlaps,
    to_pattern,
)
from moq.topics import filter_error, matches

ALICE = Identity("phone", "alice")
BOB = Identity("laptop", "bob")
STRANGER = Identity("phone", None)


@pytest.fixture
def read(tmp_path: Path) -> Reader:
    return Reader(tmp_path / "access.toml")


class Reader:
    """Rules from text."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, text: str) -> Rules:
        self.path.write_text(text)
        return load_rules(self.path)


def rule(verb: str, *rights: str, **lists: tuple[str, ...]) -> str:
    lines = [f"{verb} = {json.dumps(rights)}", *(f"{name} = {json.dumps(values)}" for name, values in lists.items())]
    return "[[rule]]\n" + "\n".join(lines) + "\n"


def allows(rules: Rules, actor: Identity, action: Action, topic: str) -> bool:
    return AccessList(rules).allows(actor, action, topic)


# --- order and default --------------------------------------------------------------------------------


def test_what_no_rule_speaks_of_is_denied(read: Reader) -> None:
    rules = read(rule("allow", "publish", topics=("a",)))
    assert allows(rules, ALICE, Action.PUBLISH, "a")
    assert not allows(rules, ALICE, Action.PUBLISH, "b")
    assert not allows(rules, ALICE, Action.SUBSCRIBE, "a")
    assert not allows(read(""), ALICE, Action.PUBLISH, "a")


def test_the_first_rule_that_applies_decides(read: Reader) -> None:
    denied_first = rule("deny", "publish", topics=("a/secret",)) + rule("allow", "publish", topics=("a/#",))
    assert not allows(read(denied_first), ALICE, Action.PUBLISH, "a/secret")
    assert allows(read(denied_first), ALICE, Action.PUBLISH, "a/b")
    allowed_first = rule("allow", "publish", topics=("a/#",)) + rule("deny", "publish", topics=("a/secret",))
    assert allows(read(allowed_first), ALICE, Action.PUBLISH, "a/secret")


# --- who ----------------------------------------------------------------------------------------------


def test_a_rule_speaks_of_users_and_of_members_of_groups(read: Reader) -> None:
    text = '[groups]\nstaff = ["alice"]\nnobody = []\n'
    rules = read(text + rule("allow", "publish", topics=("a",), groups=("staff",), users=("carol",)))
    assert allows(rules, ALICE, Action.PUBLISH, "a")
    assert allows(rules, Identity("x", "carol"), Action.PUBLISH, "a")
    assert not allows(rules, BOB, Action.PUBLISH, "a")
    assert not allows(rules, STRANGER, Action.PUBLISH, "a")


def test_a_group_without_members_is_nobody_and_not_everybody(read: Reader) -> None:
    rules = read("[groups]\nnobody = []\n" + rule("allow", "publish", topics=("a",), groups=("nobody",)))
    assert not allows(rules, ALICE, Action.PUBLISH, "a")
    assert not allows(rules, STRANGER, Action.PUBLISH, "a")


def test_a_star_is_every_user_that_logged_in(read: Reader) -> None:
    rules = read(rule("allow", "publish", topics=("a",), users=("*",)))
    assert allows(rules, BOB, Action.PUBLISH, "a")
    assert not allows(rules, STRANGER, Action.PUBLISH, "a")


def test_clients_narrow_a_rule_and_may_end_in_a_star(read: Reader) -> None:
    rules = read(rule("allow", "publish", topics=("a",), users=("alice",), clients=("phone", "tablet-*")))
    assert allows(rules, ALICE, Action.PUBLISH, "a")
    assert allows(rules, Identity("tablet-7", "alice"), Action.PUBLISH, "a")
    assert not allows(rules, Identity("tv", "alice"), Action.PUBLISH, "a")
    assert not allows(rules, STRANGER, Action.PUBLISH, "a")


def test_another_way_of_typing_a_name_is_the_same_user(read: Reader) -> None:
    rules = read(rule("deny", "publish", topics=("a",), users=("al\u00adice",)) + rule("allow", "all", topics=("#",)))
    assert not allows(rules, ALICE, Action.PUBLISH, "a")


# --- what ---------------------------------------------------------------------------------------------


def test_each_right_is_one_of_its_own(read: Reader) -> None:
    for action in Action:
        word = "subscribe" if action is Action.RECEIVE else action.value
        rules = read(rule("allow", word, topics=("a",)))
        granted = {other for other in Action if allows(rules, ALICE, other, "a")}
        assert granted == ({Action.SUBSCRIBE, Action.RECEIVE} if word == "subscribe" else {action})


def test_read_write_and_all_stand_for_several(read: Reader) -> None:
    def granted(word: str) -> set[Action]:
        rules = read(rule("allow", word, topics=("#", "$SYS/#")))
        return {action for action in Action if allows(rules, ALICE, action, "a")}

    assert granted("read") == {Action.SUBSCRIBE, Action.RECEIVE, Action.TYPE}
    assert granted("write") == {Action.PUBLISH, Action.REGISTER}
    assert granted("all") == set(Action)


def test_the_figures_of_the_broker_need_a_rule_of_their_own(read: Reader) -> None:
    assert not allows(read(rule("allow", "all", topics=("#", "$SYS/#"))), ALICE, Action.RECEIVE, "$SYS/broker/version")
    rules = read(rule("allow", "sys", users=("alice",)))
    assert allows(rules, ALICE, Action.SUBSCRIBE, "$SYS/#")
    assert allows(rules, ALICE, Action.RECEIVE, "$SYS/broker/version")
    assert not allows(rules, BOB, Action.SUBSCRIBE, "$SYS/#")
    assert not allows(rules, ALICE, Action.SUBSCRIBE, "a")


@pytest.mark.parametrize("action", [Action.PUBLISH, Action.REGISTER, Action.REQUEST, Action.RESPOND])
def test_nobody_writes_to_the_topics_of_the_broker(read: Reader, action: Action) -> None:
    rules = read(rule("allow", "all", "sys", topics=("#", "$SYS/#", "$other/#")))
    assert not allows(rules, ALICE, action, "$SYS/broker/version")
    assert not allows(rules, ALICE, action, "$other/topic")


# --- placeholders -------------------------------------------------------------------------------------


def test_placeholders_are_the_user_and_the_client(read: Reader) -> None:
    rules = read(rule("allow", "publish", topics=("people/%u/#", "devices/dev-%c/state")))
    assert allows(rules, ALICE, Action.PUBLISH, "people/alice/x")
    assert not allows(rules, ALICE, Action.PUBLISH, "people/bob/x")
    assert allows(rules, ALICE, Action.PUBLISH, "devices/dev-phone/state")
    assert not allows(rules, ALICE, Action.PUBLISH, "devices/dev-laptop/state")


def test_the_user_placeholder_matches_nothing_without_a_login(read: Reader) -> None:
    rules = read(rule("allow", "publish", topics=("people/%u", "people/%u/#")))
    assert not any(allows(rules, STRANGER, Action.PUBLISH, topic) for topic in ("people/", "people/None", "people"))


@pytest.mark.parametrize("name", ["+", "#", "a/b", "bob/#", "$SYS", "%c", "%u"])
def test_a_name_is_never_more_than_one_plain_level(read: Reader, name: str) -> None:
    rules = read(rule("allow", "all", "sys", topics=("%u/#", "people/%u", "$SYS/%u", "%c/x")))
    for hostile in (Identity("phone", name), Identity(name, "eve")):
        for topic in ("bob/x", "people/bob", "people/a/b", "a/b/x", "$SYS/broker", "$SYS/broker/version"):
            assert not allows(rules, hostile, Action.RECEIVE, topic)
    assert not allows(rules, Identity("phone", "%c"), Action.PUBLISH, "people/phone")


# --- filters ------------------------------------------------------------------------------------------


def test_a_wildcard_is_granted_for_its_parts_and_brings_no_more(read: Reader) -> None:
    rules = read(rule("deny", "read", topics=("a/secret/#",)) + rule("allow", "read", topics=("a/+/temperature",)))
    assert allows(rules, ALICE, Action.SUBSCRIBE, "a/#")
    assert allows(rules, ALICE, Action.SUBSCRIBE, "#")
    assert allows(rules, ALICE, Action.RECEIVE, "a/room/temperature")
    for topic in ("a", "a/room", "a/secret/temperature", "b/room/temperature", "$SYS/broker/version"):
        assert not allows(rules, ALICE, Action.RECEIVE, topic)
    assert not allows(rules, ALICE, Action.SUBSCRIBE, "a/secret/+")
    assert not allows(rules, ALICE, Action.SUBSCRIBE, "b/#")
    assert not allows(rules, ALICE, Action.SUBSCRIBE, "$SYS/#")


LEVELS = st.sampled_from(["", "a", "b", "$x", "%u", "%c"])
FILTERS = (
    st.lists(LEVELS | st.just("+"), min_size=1, max_size=3)
    .flatmap(lambda levels: st.sampled_from(["/".join(levels), "/".join([*levels, "#"]), "#"]))
    .filter(lambda text: filter_error(text) is None)
)
NAMES = ["/".join(levels) for size in (1, 2, 3, 4) for levels in itertools.product(["", "a", "b", "$x"], repeat=size)]
NAMES.remove("")


@given(topic=FILTERS, name=st.sampled_from(NAMES))
def test_a_rule_matches_the_names_that_its_topic_does_with_the_names_filled_in(topic: str, name: str) -> None:
    actor = Identity("b", "a")
    pattern = to_pattern(topic, actor)
    assert pattern is not None
    assert covers(pattern, name.split("/")) == matches(topic.replace("%u", "a").replace("%c", "b"), name)


@given(topic=FILTERS, filter_=FILTERS)
def test_a_rule_and_a_filter_have_in_common_what_trying_all_names_says(topic: str, filter_: str) -> None:
    actor = Identity("b", "a")
    pattern = to_pattern(topic, actor)
    assert pattern is not None
    plain = topic.replace("%u", "a").replace("%c", "b")
    wanted = filter_.replace("%u", "a").replace("%c", "b")
    asked = [name for name in NAMES if matches(wanted, name)]
    assert overlaps(pattern, wanted.split("/")) == any(matches(plain, name) for name in asked)
    if covers(pattern, wanted.split("/")):
        assert all(matches(plain, name) for name in asked)


@given(data=st.data())
def test_what_may_be_received_can_be_subscribed_to(data: st.DataObject) -> None:
    """A subscription is refused only if nothing of it would arrive."""
    lists = data.draw(st.lists(st.tuples(st.booleans(), st.lists(FILTERS, min_size=1, max_size=2)), max_size=4))
    rules = _made(lists)
    filter_ = data.draw(FILTERS)
    wanted = filter_.replace("%u", "a").replace("%c", "b")
    actor = Identity("b", "a")
    if any(matches(wanted, name) and allows(rules, actor, Action.RECEIVE, name) for name in NAMES):
        assert allows(rules, actor, Action.SUBSCRIBE, wanted)


def _made(lists: list[tuple[bool, list[str]]]) -> Rules:
    return Rules(
        Rule(number, None, is_allowing, frozenset({"subscribe"}), None, (), tuple(topics), "")
        for number, (is_allowing, topics) in enumerate(lists, 1)
    )


# --- reasons and complaints ---------------------------------------------------------------------------


def test_a_decision_names_its_rule_and_the_line_it_begins_on(read: Reader) -> None:
    text = (
        "# who may what\n\n" + rule("deny", "publish", topics=("x",)) + "\n" + rule("allow", "write", topics=("a/#",))
    )
    rules = read(text)
    assert rules.decide(ALICE, Action.PUBLISH, "a/b").reason == ("rule 2 (line 7): allow everybody to write on a/#")
    assert rules.decide(ALICE, Action.REGISTER, "+/b").reason == (
        "rule 2 (line 7), for a part of it: allow everybody to write on a/#"
    )
    assert rules.decide(ALICE, Action.PUBLISH, "b").reason == "no rule allows it to publish"


def test_lines_are_left_out_where_the_text_does_not_tell_them(read: Reader) -> None:
    rules = read('rule = [{ allow = ["publish"], topics = ["a"] }]')
    assert rules.decide(ALICE, Action.PUBLISH, "a").reason.startswith("rule 1: ")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("rules = 1", "rules is not a setting; did you mean rule?"),
        ("[rule]", "rule is not a list of tables; write each one under [[rule]]"),
        ("groups = 1", "groups is 1; expected a table of groups, each a list of user names"),
        ("[groups]\na = 'b'", "groups.a is 'b'; expected a list of texts, at least one"),
        ("[groups]\na = ['\\u0007']".replace("'", '"'), "the user name '\\x07' cannot be used: "),
        ("[[rule]]", "rule 1: has neither of allow and deny; it needs one"),
        ("[[rule]]\nallow = ['read']\ndeny = ['read']", "rule 1: has both of allow and deny; it needs one"),
        ("[[rule]]\nallow = ['fly']", "rule 1: allow has 'fly'; known are publish, subscribe, "),
        ("[[rule]]\nallow = []", "rule 1: allow is []; expected a list of texts, at least one"),
        ("[[rule]]\nallow = ['read']", "rule 1: has no topics; `topics = ['#']` is all of them"),
        (rule("allow", "read", topics=("a/#/b",)), "rule 1: topics: topic filter 'a/#/b' has levels after '#'"),
        (rule("deny", "sys") + rule("allow", "sys", user=("a",)), "rule 2: user is not a setting; did you mean users?"),
        (rule("deny", "sys", users=()), "rule 1: users is []; expected a list of texts, at least one"),
        (rule("deny", "sys", groups=("x",)), "rule 1: groups has 'x'; known are none"),
    ],
)
def test_a_complaint_names_file_rule_and_value(read: Reader, text: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(text)
    assert str(caught.value).startswith(f"the access file {read.path}: {complaint}")


@pytest.mark.parametrize("content", [b"[[rule", b"\xff"])
def test_a_file_that_is_not_toml_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "access.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=rf"the access file {path} is not TOML: "):
        load_rules(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read the access file .*access.toml: No such file"):
        load_rules(tmp_path / "access.toml")


def test_the_reference_has_every_right_and_an_example_that_can_be_used(read: Reader) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "access.md").read_text()
    example = page.partition("```toml\n")[2].partition("```")[0]
    rules = read(example)
    assert len(rules.rules) == 4
    assert allows(rules, ALICE, Action.PUBLISH, "home/alarm")
    assert not allows(rules, BOB, Action.PUBLISH, "home/alarm")
    for word in (*RIGHTS, *SHORTHANDS):
        assert f"| `{word}` | " in page


def test_answers_are_forgotten_with_the_rules_that_gave_them_and_when_they_are_too_many(read: Reader) -> None:
    access = AccessList(read(rule("allow", "publish", topics=("a/#",))))
    for number in range(MAX_ANSWERS + 10):
        assert access.allows(ALICE, Action.PUBLISH, f"a/{number}")
    assert len(access._answers) <= MAX_ANSWERS
    access.rules = read("")
    assert not access.allows(ALICE, Action.PUBLISH, "a/1")
