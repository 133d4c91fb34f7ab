"""OAuth grants over time: expired and reused codes, device requests, refresh tokens and assertions."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import sys
import threading
from pathlib import Path

import pytest

from tests.orgs import TestOrg
from tidewire.access.apps import DEVICE, JWT_BEARER, WEB_SERVER, ConnectedApp, store_app
from tidewire.access.authorizations import is_verifier
from tidewire.access.device_flow import normalise_user_code
from tidewire.access.oauth import Issued
from tidewire.access.passwords import hash_token
from tidewire.access.scopes import granted_scopes, parse_scopes, still_allowed
from tidewire.access.signed_tokens import ensure_signing_key
from tidewire.errors import DefinitionInvalid, GrantInvalid

URL = "https://app.example.org/cb"
SCOPES = parse_scopes("api refresh_token")


@pytest.fixture
async def app(org: TestOrg) -> ConnectedApp:
    made = ConnectedApp("app-1", "App", hash_token("s"), (URL,), SCOPES, frozenset({WEB_SERVER, DEVICE}))
    await org.core.records.write_plain(lambda tx: store_app(tx, made))
    return made


async def refusal(attempt: object) -> str:
    with pytest.raises(GrantInvalid) as caught:
        await attempt  # type: ignore[misc]
    return str(caught.value.details["oauth_error"])


async def give_code(org: TestOrg, app: ConnectedApp) -> str:
    return await org.core.oauth.give_code(app, org.reader.user_id, SCOPES, URL, challenge="", nonce="")


async def test_code_is_good_for_ten_minutes(org: TestOrg, app: ConnectedApp) -> None:
    late, timely = await give_code(org, app), await give_code(org, app)
    org.clock.advance(599)
    await org.core.oauth.grant_for_code("app-1", "s", timely, URL, "", "")
    org.clock.advance(1)
    assert await refusal(org.core.oauth.grant_for_code("app-1", "s", late, URL, "", "")) == "invalid_grant"


async def test_code_used_twice_at_once_leaves_no_token(org: TestOrg, app: ConnectedApp) -> None:
    code = await give_code(org, app)
    oauth = org.core.oauth
    results = await asyncio.gather(
        *(oauth.grant_for_code("app-1", "s", code, URL, "", "") for _ in range(3)), return_exceptions=True
    )
    issued = [r for r in results if isinstance(r, Issued)]
    assert len(issued) == 1
    assert (
        await refusal(oauth.grant_for_refresh("app-1", "s", issued[0].refresh_token, "", ""))
        == "invalid_grant"
    )


async def test_rotating_refresh_token_used_twice_at_once_ends_the_grant(
    org: TestOrg, app: ConnectedApp
) -> None:
    oauth = org.core.oauth
    rotating = ConnectedApp(
        "app-2", "App", hash_token("s"), (URL,), SCOPES, frozenset({WEB_SERVER}), rotates_refresh=True
    )
    await org.core.records.write_plain(lambda tx: store_app(tx, rotating))
    code = await give_code(org, rotating)
    first = (await oauth.grant_for_code("app-2", "s", code, URL, "", "")).refresh_token
    results = await asyncio.gather(
        *(oauth.grant_for_refresh("app-2", "s", first, "", "") for _ in range(2)), return_exceptions=True
    )
    (winner,) = [r for r in results if isinstance(r, Issued)]
    again = oauth.grant_for_refresh("app-2", "s", winner.refresh_token, "", "")
    assert await refusal(again) == "invalid_grant"


async def test_device_polls_at_the_interval_for_at_most_ten_minutes(org: TestOrg, app: ConnectedApp) -> None:
    oauth = org.core.oauth
    device_code, user_code = await oauth.begin_device("app-1", "")
    poll = oauth.grant_for_device
    assert await refusal(poll("app-1", "", device_code, "")) == "authorization_pending"
    org.clock.advance(2)
    assert await refusal(poll("app-1", "", device_code, "")) == "slow_down"
    org.clock.advance(5)
    assert await refusal(poll("app-1", "", device_code, "")) == "authorization_pending"
    org.clock.advance(600)
    assert await oauth.try_find_device(user_code) is None
    assert not await oauth.answer_device(user_code, org.reader.user_id, allows=True)
    assert await refusal(poll("app-1", "", device_code, "")) == "invalid_grant"


async def test_device_answer_counts_once(org: TestOrg, app: ConnectedApp) -> None:
    oauth = org.core.oauth
    device_code, user_code = await oauth.begin_device("app-1", "api")
    assert await oauth.answer_device(user_code, org.reader.user_id, allows=True)
    assert not await oauth.answer_device(user_code, org.admin.user_id, allows=True)
    issued = await oauth.grant_for_device("app-1", "", device_code, "")
    assert issued.login.principal.user_id == org.reader.user_id
    assert await org.core.logins.sessions.authenticate(issued.login.token) == issued.login.principal


async def test_nothing_handed_out_is_stored_readably(org: TestOrg, app: ConnectedApp, tmp_path: Path) -> None:
    code = await give_code(org, app)
    issued = await org.core.oauth.grant_for_code("app-1", "s", code, URL, "", "")
    device_code, _ = await org.core.oauth.begin_device("app-1", "")
    for path in (tmp_path / "org").iterdir():
        content = path.read_bytes() if path.is_file() else b""
        for secret in (code, issued.refresh_token, issued.login.token, device_code):
            assert secret.encode() not in content


class Loading:
    """Stands before Python's own finders and notes which threads load a module anew."""

    def __init__(self, module: str) -> None:
        self._module = module
        self.threads: list[threading.Thread] = []

    def find_spec(self, name: str, *_: object) -> None:
        """Find nothing."""
        if name == self._module:
            self.threads.append(threading.current_thread())


@pytest.fixture
def loading(monkeypatch: pytest.MonkeyPatch) -> Loading:
    watch = Loading("tidewire.access.signed_tokens")
    monkeypatch.delitem(sys.modules, "tidewire.access.signed_tokens")
    monkeypatch.setattr(sys, "meta_path", [watch, *sys.meta_path])
    return watch


async def test_first_signing_key_loads_cryptography_off_the_loop(org: TestOrg, loading: Loading) -> None:
    await org.core.oauth.signing_key()
    assert loading.threads
    assert threading.current_thread() not in loading.threads


async def test_first_assertion_loads_cryptography_off_the_loop(org: TestOrg, loading: Loading) -> None:
    app = ConnectedApp("app-3", "App", scopes=SCOPES, flows=frozenset({JWT_BEARER}), certificate="none")
    await org.core.records.write_plain(lambda tx: store_app(tx, app))
    parts = (b'{"alg": "RS256"}', b'{"iss": "app-3", "sub": "a", "exp": 1}', b"signed")
    text = ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)
    with pytest.raises(DefinitionInvalid):
        await org.core.oauth.grant_for_assertion(text, frozenset(), "", "")
    assert loading.threads
    assert threading.current_thread() not in loading.threads


def test_signing_key_is_kept_and_private(tmp_path: Path) -> None:
    path = tmp_path / "tls" / "token-key.pem"
    first = ensure_signing_key(path)
    assert ensure_signing_key(path).key_id == first.key_id
    assert path.stat().st_mode & 0o077 == 0


def test_full_covers_all_but_the_refresh_token() -> None:
    full = parse_scopes("full")
    assert granted_scopes("api id", full) == {"api", "id"}
    assert granted_scopes("", full) == full
    with pytest.raises(GrantInvalid):
        granted_scopes("refresh_token", full)
    assert still_allowed(parse_scopes("api offline_access"), full) == {"api"}
    assert parse_scopes("offline_access") == {"refresh_token"}


def test_verifier_fits_only_its_own_challenge() -> None:
    # RFC 7636, appendix B
    verifier, challenge = (
        "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk",
        "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM",
    )
    assert is_verifier(challenge, verifier)
    assert not is_verifier(challenge, verifier[:-1] + "l")
    assert not is_verifier(challenge, challenge)
    assert not is_verifier(verifier, verifier)


def test_verifier_may_be_as_long_as_jsforce_sends_it() -> None:
    verifier = "x" * 171
    made = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
    assert is_verifier(made, verifier)
    assert not is_verifier(made, "x" * 257)


def test_typed_user_code_is_read_leniently() -> None:
    assert normalise_user_code(" bcdf-ghjk ") == "BCDFGHJK"
