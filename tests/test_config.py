"""Settings: what cannot be used is refused by name, wherever it was written."""

from __future__ import annotations

from pathlib import Path

import pytest

from moq.config import BrokerConfig, Limits, load_config
from moq.errors import ConfigError


def load(tmp_path: Path, text: str, **overrides: object) -> BrokerConfig:
    path = tmp_path / "moq.toml"
    path.write_text(text)
    return load_config(path, overrides, {})


def test_without_a_file_the_defaults_hold() -> None:
    assert load_config(None, {}, {}) == BrokerConfig()


def test_a_file_sets_settings_and_limits(tmp_path: Path) -> None:
    config = load(tmp_path, 'tcp_port = 2883\ndata_dir = "/srv/moq"\nsys_interval_s = 5\n[limits]\nmax_inflight = 7\n')
    assert config == BrokerConfig(
        tcp_port=2883, data_dir=Path("/srv/moq"), sys_interval_s=5.0, limits=Limits(max_inflight=7)
    )


def test_a_websocket_port_may_be_set_or_left_to_chance(tmp_path: Path) -> None:
    assert BrokerConfig().websocket_port is None
    assert load(tmp_path, "websocket_port = 0").websocket_port == 0


def test_overrides_win_over_the_file_and_the_file_over_defaults(tmp_path: Path) -> None:
    path = tmp_path / "moq.toml"
    path.write_text("tcp_port = 1\ntls_port = 2\n[limits]\nmax_topics = 3\nmax_inflight = 4\n")
    overrides = {"tcp_port": 10, "limits": {"max_topics": 30}}
    config = load_config(path, overrides, {"tls_port": 20, "quic_port": 200})
    assert (config.tcp_port, config.tls_port, config.quic_port) == (10, 2, 200)
    assert (config.limits.max_topics, config.limits.max_inflight) == (30, 4)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("tcp_port = 99999", "tcp_port is 99999; a port is 0 (any free one) to 65535"),
        ("tcp_port = true", "tcp_port is True; expected an integer"),
        ('tcp_port = "1883"', "tcp_port is '1883'; expected an integer"),
        ("websocket_port = 65536", "websocket_port is 65536; a port is 0 (any free one) to 65535"),
        ('wss_port = "8084"', "wss_port is '8084'; expected an integer"),
        ("tcp_prt = 1", "tcp_prt is not a setting; did you mean tcp_port?"),
        ("zzz = 1", "zzz is not a setting"),
        ("sys_interval_s = nan", "sys_interval_s is nan; expected a number"),
        ("drain_timeout_s = -1", "drain_timeout_s is -1.0; it must not be negative"),
        ('quic_engine = "other"', "quic_engine is 'other'; known are aioquic, qh3"),
        ('quic_streams = "many"', "quic_streams is 'many'; known are topic, single"),
        ("data_dir = 1", "data_dir is 1; expected a path"),
        ("users_file = true", "users_file is True; expected a path"),
        ("limits = 3", "limits is 3; expected a table of settings"),
        ("[limits]\nmax_inflight = 0", "limits.max_inflight is 0; it must be greater than 0"),
        ("[limits]\nmax_infligt = 1", "limits.max_infligt is not a setting; did you mean limits.max_inflight?"),
    ],
)
def test_a_complaint_names_file_setting_value_and_rule(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    assert str(caught.value) == f"{tmp_path / 'moq.toml'}: {complaint}"


def test_a_complaint_about_an_override_does_not_blame_the_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, "tcp_port = 1", tcp_port=-1)
    assert str(caught.value).startswith("tcp_port is -1;")


def test_a_file_that_is_missing_or_not_toml_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read the configuration .*absent\.toml: No such file"):
        load_config(tmp_path / "absent.toml", {}, {})
    with pytest.raises(ConfigError, match=r"moq\.toml is not TOML: .*line 1"):
        load(tmp_path, "tcp_port = = 1")


def test_a_reachable_host_needs_logins_or_consent(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"host is '0\.0\.0\.0', which others can reach"):
        load(tmp_path, 'host = "0.0.0.0"')
    assert load(tmp_path, 'host = "0.0.0.0"\nallow_anonymous = true').host == "0.0.0.0"
    assert load(tmp_path, 'host = "0.0.0.0"\nusers_file = "users.toml"').users_file == Path("users.toml")
