"""The users file: what is written is read again, and what cannot be used is named."""

from __future__ import annotations

import stat
import threading
from typing import TYPE_CHECKING

import pytest

from moq.errors import ConfigError
from moq.security.scram import matches
from moq.security.users import changing_users, load_users, new_verifier, prepare_name, save_users

if TYPE_CHECKING:
    from pathlib import Path

KEY = "QUFB" * 10 + "QUE="
ALICE = {"salt": '"c2FsdA=="', "iterations": "4096", "stored_key": f'"{KEY}"', "server_key": f'"{KEY}"'}


def table(name: str = "alice", **fields: str) -> str:
    return f"[{name}]\n" + "".join(f"{field} = {value}\n" for field, value in (ALICE | fields).items())


@pytest.mark.parametrize("name", ["alice", "a b", "a.b", 'quo"te', "back\\slash", "jürgen", "𝄞", "[x]", "'", "#"])
def test_users_are_read_as_they_were_written(tmp_path: Path, name: str) -> None:
    users = {name: new_verifier("wonder"), "bob": new_verifier("builder")}
    save_users(tmp_path / "users.toml", users)
    assert load_users(tmp_path / "users.toml") == users


def test_a_file_without_users_can_be_used(tmp_path: Path) -> None:
    save_users(tmp_path / "users.toml", {})
    assert load_users(tmp_path / "users.toml") == {}


def test_a_verifier_has_a_salt_of_its_own() -> None:
    first, second = new_verifier("wonder"), new_verifier("wonder")
    assert first != second
    assert matches(first, b"wonder")
    assert matches(second, b"wonder")


def test_only_the_owner_may_read_the_file_even_if_others_could_before(tmp_path: Path) -> None:
    path = tmp_path / "new" / "users.toml"
    path.parent.mkdir()
    path.touch(0o644)
    save_users(path, {"alice": new_verifier("wonder")})
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(path.parent.iterdir()) == [path]


def test_the_file_stays_as_it_was_if_it_cannot_be_replaced(tmp_path: Path) -> None:
    path = tmp_path / "users.toml"
    (path / "in the way").mkdir(parents=True)
    with pytest.raises(ConfigError, match=rf"cannot write the users file {path}: Is a directory"):
        save_users(path, {})
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("alice = 1", "user 'alice' needs a table of salt, iterations, stored_key, server_key, and nothing else"),
        ("[alice]\nsalt = 'x'", "user 'alice' needs a table of salt, iterations, stored_key, server_key, and"),
        (table(password='"x"'), "user 'alice' needs a table of salt, iterations, stored_key, server_key, and"),
        (table(salt='"?"'), "user 'alice': salt is not base64"),
        (table(salt='"ü"'), "user 'alice': salt is not base64"),
        (table(salt="1"), "user 'alice': salt is not base64"),
        (table(salt='""'), "user 'alice': salt is empty"),
        (table(iterations="4095"), "user 'alice': iterations is 4095; expected 4096 to 1000000"),
        (table(iterations="1000001"), "user 'alice': iterations is 1000001; expected 4096 to 1000000"),
        (table(iterations="true"), "user 'alice': iterations is True; expected 4096 to 1000000"),
        (table(stored_key='"QUFB"'), "user 'alice': stored_key has 3 bytes; expected 32"),
        (table(server_key='"QUFB"'), "user 'alice': server_key has 3 bytes; expected 32"),
        (table('"ⅸ"'), "user 'ⅸ' is to be written 'ix' (RFC 4013)"),
        (table('""'), "the user name '' cannot be used: nothing is left of the text (RFC 4013)"),
    ],
)
def test_a_complaint_names_file_user_and_rule(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "users.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_users(path)
    assert str(caught.value).startswith(f"the users file {path}: {complaint}")


def test_the_complaints_above_are_about_what_differs_from_a_good_file(tmp_path: Path) -> None:
    (tmp_path / "users.toml").write_text(table())
    assert load_users(tmp_path / "users.toml").keys() == {"alice"}


@pytest.mark.parametrize("content", [b"[alice", b"\xff", b"[a]\n[a]"])
def test_a_file_that_is_not_toml_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "users.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=rf"the users file {path} is not TOML: "):
        load_users(path)


def test_a_missing_file_is_named_with_what_makes_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read the users file .*: No such file .*; `moq users add NAME`"):
        load_users(tmp_path / "users.toml")
    with pytest.raises(ConfigError, match=r"cannot read the users file .*: Is a directory$"):
        load_users(tmp_path)


@pytest.mark.parametrize("name", ["", "\u00ad", "bell\a", "x" * 256, "ü" * 128])
def test_a_name_that_no_client_could_bring_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="the user name"):
        prepare_name(name)


def test_a_name_has_one_form() -> None:
    assert prepare_name("al\u00adice") == "alice"
    assert prepare_name("x" * 255) == "x" * 255


@pytest.mark.parametrize("password", ["", "secret\a", "secret" * 50, "secret\udcff"])
def test_a_password_that_cannot_be_used_is_refused_without_repeating_it(password: str) -> None:
    with pytest.raises(ConfigError, match=r"^the password ") as caught:
        new_verifier(password)
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_two_who_change_the_file_at_once_both_succeed(tmp_path: Path) -> None:
    path = tmp_path / "users.toml"
    verifier = new_verifier("wonder")
    at_once = threading.Barrier(8)

    def add(number: int) -> None:
        at_once.wait()
        with changing_users(path, may_be_new=True) as users:
            users[f"user-{number}"] = verifier

    threads = [threading.Thread(target=add, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert load_users(path).keys() == {f"user-{number}" for number in range(8)}


def test_a_change_that_fails_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "users.toml"
    save_users(path, {"alice": new_verifier("wonder")})

    def fail() -> None:
        with changing_users(path) as users:
            users.clear()
            raise ConfigError("second thoughts")

    with pytest.raises(ConfigError, match="second thoughts"):
        fail()
    assert load_users(path).keys() == {"alice"}
    with changing_users(path) as users:  # the lock was given back
        users.clear()


def test_a_file_that_cannot_be_locked_is_named(tmp_path: Path) -> None:
    path = tmp_path / "users.toml"
    (tmp_path / ".users.toml.lock").mkdir()
    with (
        pytest.raises(ConfigError, match=rf"cannot lock the users file {path}: .*Is a directory"),
        changing_users(path),
    ):
        pass
