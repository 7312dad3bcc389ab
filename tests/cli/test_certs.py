"""`moq certs`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import certs
from tests.running import moq

if TYPE_CHECKING:
    from pathlib import Path


def test_show_prints_both_certificates(tmp_path: Path) -> None:
    certs.ensure(tmp_path)
    done = moq("certs", "show", "--data-dir", str(tmp_path))
    text = done.stdout.decode()
    assert done.returncode == 0
    assert str(tmp_path / "certs" / "ca.pem") in text
    assert "localhost, 127.0.0.1, ::1" in text
    assert "29 days left" in text


def test_show_without_certificates_is_exit_code_2(tmp_path: Path) -> None:
    done = moq("certs", "show", MOQ_DATA_DIR=str(tmp_path))
    assert done.returncode == 2
    assert b"`moq broker` makes one" in done.stderr


def test_renew_replaces_the_server_certificate_and_on_request_the_authority(tmp_path: Path) -> None:
    certs.ensure(tmp_path)
    prints = [[info.sha256 for info in certs.describe(tmp_path)]]
    for options in ((), ("--authority",)):
        done = moq("certs", "renew", "--json", "--data-dir", str(tmp_path), *options)
        assert done.returncode == 0
        prints.append([json.loads(line)["sha256"] for line in done.stdout.splitlines()])
    first, renewed, replaced = prints
    assert renewed[0] == first[0]
    assert renewed[1] != first[1]
    assert not set(replaced) & set(renewed)
