"""Settings: defaults < file < environment < flags."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidewire.config import Settings, load_settings, parse_address
from tidewire.errors import ConfigInvalid


def test_later_sources_win(tmp_path: Path) -> None:
    (tmp_path / "tidewire.toml").write_text(
        'http = "127.0.0.1:1"\nhttps = "127.0.0.1:2"\ngrpc = "127.0.0.1:3"\n'
    )
    environment = {"TIDEWIRE_HTTPS": "127.0.0.1:22", "TIDEWIRE_GRPC": "127.0.0.1:33", "OTHER": "x"}
    settings = load_settings({"grpc": "127.0.0.1:333", "data": None}, environment, tmp_path)
    assert (settings.http, settings.https, settings.grpc) == ("127.0.0.1:1", "127.0.0.1:22", "127.0.0.1:333")
    assert settings.data == Settings().data


def test_values_are_converted() -> None:
    environment = {
        "TIDEWIRE_DEV": "true",
        "TIDEWIRE_BAYEUX_HOLD_S": "2.5",
        "TIDEWIRE_SESSION_TIMEOUT_S": "60",
    }
    settings = load_settings({}, environment, Path("/nonexistent"))
    assert (settings.dev, settings.bayeux_hold_s, settings.session_timeout_s) == (True, 2.5, 60)


@pytest.mark.parametrize(
    "environment",
    [{"TIDEWIRE_DEV": "perhaps"}, {"TIDEWIRE_BAYEUX_HOLD_S": "long"}, {"TIDEWIRE_FIRST_REPLAY_ID": "x"}],
)
def test_value_that_does_not_fit_is_named(environment: dict[str, str]) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        load_settings({}, environment, Path("/nonexistent"))
    assert "TIDEWIRE_" + str(caught.value.details["setting"]).upper() in environment


@pytest.mark.parametrize("text", ["nonsense = 1\n", "http = \n"])
def test_bad_file_is_rejected(tmp_path: Path, text: str) -> None:
    (tmp_path / "tidewire.toml").write_text(text)
    with pytest.raises(ConfigInvalid):
        load_settings({}, {}, tmp_path)


def test_addresses() -> None:
    assert parse_address("127.0.0.1:0", "http") == ("127.0.0.1", 0)
    assert parse_address("[::1]:8080", "http") == ("::1", 8080)
    for text in ("8080", "host:", ":80", "host:x", "host:70000"):
        with pytest.raises(ConfigInvalid):
            parse_address(text, "http")
