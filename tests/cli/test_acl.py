"""`moq acl`: decisions with their reasons, and the rules in their order."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.running import moq

if TYPE_CHECKING:
    from pathlib import Path

RULES = """\
[groups]
staff = ["alice", "bob"]

[[rule]]
users = ["bob"]
deny = ["publish"]
topics = ["home/alarm"]

[[rule]]
groups = ["staff"]
allow = ["read", "write"]
topics = ["home/#", "people/%u/#", "devices/%c"]

[[rule]]
users = ["alice"]
allow = ["sys"]
"""
STAFF = "rule 2 (line 9): allow groups staff to read, write on home/#, people/%u/#, devices/%c"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "access.toml"
    path.write_text(RULES)
    return path


@pytest.mark.parametrize(
    ("question", "code", "answer"),
    [
        (("alice", "publish", "home/alarm"), 0, f"allowed: {STAFF}"),
        (("bob", "publish", "home/alarm"), 4, "denied: rule 1 (line 4): deny users bob to publish on home/alarm"),
        (("bob", "subscribe", "home/alarm"), 0, f"allowed: {STAFF}"),
        (("bob", "receive", "people/bob/x"), 0, f"allowed: {STAFF}"),
        (("bob", "receive", "people/alice/x"), 4, "denied: no rule allows it to subscribe"),
        (("bob", "subscribe", "#"), 0, f"allowed: {STAFF.replace(':', ', for a part of it:')}"),
        (("bob", "publish", "devices/x"), 4, "denied: no rule allows it to publish"),
        (("bob", "publish", "devices/x", "--client-id", "x"), 0, f"allowed: {STAFF}"),
        (("-", "publish", "home/hall"), 4, "denied: no rule allows it to publish"),
        (("alice", "sys", "$SYS/#"), 0, "allowed: rule 3 (line 14): allow users alice to sys on $SYS/#"),
        (("bob", "subscribe", "$SYS/#"), 4, "denied: no rule allows it to sys"),
        (
            ("alice", "publish", "$SYS/x"),
            4,
            "denied: topics that begin with $ are the broker's own; nobody may publish",
        ),
    ],
)
def test_a_decision_is_explained(file: Path, question: tuple[str, ...], code: int, answer: str) -> None:
    done = moq("acl", "check", *question, "--access-file", str(file))
    assert (done.returncode, done.stderr) == (code, b"")
    assert done.stdout.decode().startswith(answer)


def test_a_decision_for_machines(file: Path) -> None:
    done = moq("acl", "check", "alice", "publish", "home/x", "--json", "--data-dir", str(file.parent))
    assert json.loads(done.stdout) == {"allowed": True, "rule": 2, "line": 9, "reason": STAFF}
    done = moq("acl", "check", "eve", "publish", "home/x", "--json", MOQ_DATA_DIR=str(file.parent))
    reason = "no rule allows it to publish"
    assert json.loads(done.stdout) == {"allowed": False, "rule": None, "line": None, "reason": reason}


def test_the_rules_are_listed_in_their_order(file: Path) -> None:
    done = moq("acl", "list", "--access-file", str(file))
    lines = done.stdout.decode().splitlines()
    assert [line.partition(":")[0] for line in lines] == ["rule 1 (line 4)", "rule 2 (line 9)", "rule 3 (line 14)"]
    assert lines[1] == STAFF
    done = moq("acl", "list", "--json", "--access-file", str(file))
    assert json.loads(done.stdout.splitlines()[0]) == {
        "rule": 1,
        "line": 4,
        "allows": False,
        "rights": ["publish"],
        "users": ["bob"],
        "clients": [],
        "topics": ["home/alarm"],
    }


@pytest.mark.parametrize(
    ("question", "complaint"),
    [
        (("alice", "fly", "a"), "moq acl check: argument ACTION: invalid choice: 'fly'"),
        (("alice", "publish", "a#"), "moq: topic filter 'a#' has a wildcard inside level 'a#'"),
        (("alice", "sys", "a"), "moq: topic is 'a'; sys is about $SYS and what is below"),
        (
            ("alice", "publish", "a", "--access-file", "/missing.toml"),
            "moq: cannot read the access file /missing.toml: ",
        ),
    ],
)
def test_a_question_that_makes_no_sense_is_exit_code_2(file: Path, question: tuple[str, ...], complaint: str) -> None:
    done = moq("acl", "check", "--data-dir", str(file.parent), *question)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.decode().startswith(complaint)
