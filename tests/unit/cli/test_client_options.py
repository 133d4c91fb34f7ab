"""What flags, environment and profiles amount to."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from tidewire.cli.client_options import Connection, resolve
from tidewire.cli.profiles import Profile, load_profiles, remove_profile, save_profile
from tidewire.config import DEV_CLIENT_ID, DEV_PASSWORD, DEV_USERNAME
from tidewire.errors import ConfigInvalid

NAMES = ("url", "username", "password", "client_id", "client_secret", "token", "ca")
WORK = Profile(
    "https://work.example",
    "ann@work.example",
    "secret-1",
    "app",
    "app-secret",
    token="token-1",
    instance_url="https://na1.work.example",
    org_id="00D1",
)


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration directory of the test's own, not made yet."""
    for name in (*NAMES, "profile"):
        monkeypatch.delenv("TIDEWIRE_" + name.upper(), raising=False)
    monkeypatch.setenv("TIDEWIRE_CONFIG_DIR", str(tmp_path / "conf"))
    return tmp_path / "conf"


def connect(profile: str | None = None, **given: str) -> Connection:
    return resolve(profile, **{name: given.get(name) for name in NAMES})


def test_profile_file_and_directory_are_for_their_owner_only(directory: Path) -> None:
    path = save_profile("default", WORK)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    path.chmod(0o644)
    save_profile("other", WORK)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert load_profiles() == {"default": WORK, "other": WORK}
    remove_profile("other")
    remove_profile("other")
    assert list(load_profiles()) == ["default"]
    assert [each.name for each in directory.iterdir()] == ["profiles.json"]


def test_secrets_of_a_profile_are_not_in_its_repr() -> None:
    assert "secret" not in repr(WORK)
    assert "token-1" not in repr(WORK)


def test_profile_file_that_is_not_ours_is_refused(directory: Path) -> None:
    directory.mkdir()
    for text in ("{", "[]", '{"profiles": {"x": 3}}', json.dumps({"profiles": {"x": {}}})):
        (directory / "profiles.json").write_text(text)
        with pytest.raises(ConfigInvalid, match="tidewire login"):
            load_profiles()


def test_without_anything_the_development_login_is_used() -> None:
    found = connect()
    assert found.credentials.login_url == "http://localhost:8080"
    assert (found.credentials.username, found.credentials.password) == (DEV_USERNAME, DEV_PASSWORD)
    assert (found.credentials.client_id, found.can_use_soap, found.session) == (DEV_CLIENT_ID, True, None)
    assert found.endpoint() == ("localhost:7011", None)


def test_default_profile_is_used_with_its_session() -> None:
    save_profile("default", WORK)
    found = connect()
    assert (found.credentials.login_url, found.credentials.password) == (WORK.url, "secret-1")
    assert found.session is not None
    assert (found.session.token, found.session.instance_url) == ("token-1", "https://na1.work.example")
    assert found.endpoint() == ("work.example:7443", b"")


def test_flag_overrides_what_the_profile_has() -> None:
    save_profile("default", WORK)
    found = connect(password="secret-2")
    assert (found.credentials.username, found.credentials.password) == (WORK.username, "secret-2")
    assert found.session is None


def test_password_of_a_profile_never_goes_to_another_server_or_user() -> None:
    save_profile("default", WORK)
    elsewhere = connect(url="https://other.example")
    assert elsewhere.credentials.password == DEV_PASSWORD
    assert elsewhere.session is None
    with pytest.raises(ConfigInvalid, match=r"belongs to https://work\.example"):
        connect("default", url="https://other.example")
    with pytest.raises(ConfigInvalid, match="--password for bob"):
        connect(username="bob")
    bob = connect(username="bob", password="bobs")
    assert (bob.credentials.password, bob.session, bob.profile) == ("bobs", None, "")


def test_app_of_a_profile_keeps_its_secret_to_itself() -> None:
    save_profile("default", WORK)
    assert connect(client_id="other").credentials.client_secret == ""
    assert connect(client_id="app").credentials.client_secret == "app-secret"


def test_unknown_profile_is_refused_with_how_to_make_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigInvalid, match="tidewire login --profile nope"):
        connect("nope")
    monkeypatch.setenv("TIDEWIRE_PROFILE", "nope")
    with pytest.raises(ConfigInvalid, match="tidewire login --profile nope"):
        connect()


def test_token_is_used_as_it_is_without_a_password() -> None:
    found = connect(url="https://x.example/", token="abc")
    assert found.session is not None
    assert (found.session.token, found.session.instance_url) == ("abc", "https://x.example")
    assert found.credentials.password == ""


@pytest.mark.parametrize(
    "url, endpoint",
    [
        ("http://[::1]:8080", ("[::1]:7011", None)),
        ("https://localhost:8443", ("localhost:7443", b"")),
        ("https://login.salesforce.com", ("api.pubsub.salesforce.com:7443", b"")),
        ("https://salesforce.com.example", ("salesforce.com.example:7443", b"")),
    ],
)
def test_pubsub_endpoint_is_looked_for_at_the_usual_place(
    url: str, endpoint: tuple[str, bytes | None]
) -> None:
    assert connect(url=url).endpoint() == endpoint
    assert connect(url=url).endpoint("host:1")[0] == "host:1"
