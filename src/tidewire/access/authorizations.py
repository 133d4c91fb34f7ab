"""OAuth authorizations: stores authorization codes, refresh tokens, users' approvals and used assertions.

Codes and tokens are stored as hashes. A code is valid once and for ten minutes. A code that is used a second time
revokes everything that the first use returned, because one of its two holders stole it. All functions run in their
caller's transaction.
"""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
from dataclasses import dataclass

from tidewire.access.passwords import hash_token, is_same_hash
from tidewire.access.scopes import parse_scopes, render_scopes
from tidewire.access.sessions import end_sessions
from tidewire.ids import short_id
from tidewire.storage.store import Reader, Transaction

CODE_LIFE_MS = 600_000
# RFC 7636 allows 128 characters at most; jsforce sends 171, and the original service accepts them.
_VERIFIER = re.compile(r"[A-Za-z0-9._~-]{43,256}")
_CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}")


@dataclass(frozen=True, slots=True)
class Authorization:
    """What a user allowed an app to do. All tokens issued for it share its `grant_id`."""

    client_id: str
    user_id: str
    scopes: frozenset[str]
    grant_id: str
    redirect_uri: str = ""
    challenge: str = ""
    nonce: str = ""


@dataclass(frozen=True, slots=True)
class StoredCode:
    """A stored authorization code."""

    authorization: Authorization
    expires_ms: int
    is_used: bool


def draw_code(org_id: str) -> str:
    """Generate a random code or token of URL-safe characters.

    It starts with the org's 15-character id, so that a server with several orgs can route it.
    """
    return f"{short_id(org_id)}.{secrets.token_urlsafe(48)}"


def is_challenge(text: str) -> bool:
    """Whether the text has the form of an S256 code challenge."""
    return _CHALLENGE.fullmatch(text) is not None


def is_verifier(challenge: str, verifier: str) -> bool:
    """Whether the challenge was made from this verifier."""
    if _VERIFIER.fullmatch(verifier) is None:
        return False
    made = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
    return is_same_hash(challenge, made)


def store_code(tx: Transaction, code: str, authorization: Authorization, now_ms: int) -> None:
    """Store a code, and delete those that expired more than a day ago."""
    tx.execute("DELETE FROM authorization_codes WHERE expires_ms < ?", (now_ms - 24 * 3_600_000,))
    tx.execute(
        "INSERT INTO authorization_codes (code_hash, client_id, user_id, redirect_uri, scopes, challenge, nonce,"
        " grant_id, expires_ms, used_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 0)",
        (
            hash_token(code),
            authorization.client_id,
            authorization.user_id,
            authorization.redirect_uri,
            render_scopes(authorization.scopes),
            authorization.challenge,
            authorization.nonce,
            authorization.grant_id,
            now_ms + CODE_LIFE_MS,
        ),
    )


def try_read_code(reader: Reader | Transaction, code: str) -> StoredCode | None:
    """Read a code."""
    rows = reader.execute(
        "SELECT client_id, user_id, scopes, grant_id, redirect_uri, challenge, nonce, expires_ms, used_ms"
        " FROM authorization_codes WHERE code_hash = ?",
        (hash_token(code),),
    )
    if not rows:
        return None
    client_id, user_id, scopes, grant_id, redirect_uri, challenge, nonce, expires_ms, used_ms = rows[0]
    authorization = Authorization(
        client_id, user_id, parse_scopes(scopes), grant_id, redirect_uri, challenge, nonce
    )
    return StoredCode(authorization, expires_ms, bool(used_ms))


def use_code(tx: Transaction, code: str, now_ms: int) -> bool:
    """Mark a code as used; return whether it was unused. A second use revokes what the first one returned."""
    found = try_read_code(tx, code)
    if found is None or found.is_used:
        if found is not None:
            revoke_grant(tx, found.authorization.grant_id)
        return False
    tx.execute("UPDATE authorization_codes SET used_ms = ? WHERE code_hash = ?", (now_ms, hash_token(code)))
    return True


def store_refresh(tx: Transaction, token: str, authorization: Authorization, now_ms: int) -> None:
    """Store a refresh token."""
    tx.execute(
        "INSERT INTO refresh_tokens (token_hash, grant_id, client_id, user_id, scopes, issued_ms, replaced_ms)"
        " VALUES (?, ?, ?, ?, ?, ?, 0)",
        (
            hash_token(token),
            authorization.grant_id,
            authorization.client_id,
            authorization.user_id,
            render_scopes(authorization.scopes),
            now_ms,
        ),
    )


def try_read_refresh(reader: Reader | Transaction, token: str) -> tuple[Authorization, bool] | None:
    """Read a refresh token's authorization, and whether the token was replaced by another."""
    rows = reader.execute(
        "SELECT client_id, user_id, scopes, grant_id, replaced_ms FROM refresh_tokens WHERE token_hash = ?",
        (hash_token(token),),
    )
    if not rows:
        return None
    client_id, user_id, scopes, grant_id, replaced_ms = rows[0]
    return Authorization(client_id, user_id, parse_scopes(scopes), grant_id), bool(replaced_ms)


def use_refresh(tx: Transaction, token: str, successor: str, now_ms: int) -> bool:
    """Use a refresh token, and replace it by `successor` unless that is empty; return whether it was valid.

    A token that was already replaced revokes the whole authorization.
    """
    found = try_read_refresh(tx, token)
    if found is None:
        return False
    authorization, is_replaced = found
    if is_replaced:
        revoke_grant(tx, authorization.grant_id)
        return False
    if successor:
        tx.execute(
            "UPDATE refresh_tokens SET replaced_ms = ? WHERE token_hash = ?", (now_ms, hash_token(token))
        )
        store_refresh(tx, successor, authorization, now_ms)
    return True


def revoke_grant(tx: Transaction, grant_id: str) -> None:
    """Delete the refresh tokens of an authorization and end its sessions."""
    tx.execute("DELETE FROM refresh_tokens WHERE grant_id = ?", (grant_id,))
    end_sessions(tx, "grant_id", grant_id)


def approve(tx: Transaction, client_id: str, user_id: str, scopes: frozenset[str], now_ms: int) -> None:
    """Add scopes to those that a user has approved for an app."""
    known = read_approved(tx, client_id, user_id)
    tx.execute(
        "INSERT INTO app_approvals (client_id, user_id, scopes, approved_ms) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (client_id, user_id) DO UPDATE SET scopes = excluded.scopes,"
        " approved_ms = excluded.approved_ms",
        (client_id, user_id, render_scopes(scopes | (known or frozenset())), now_ms),
    )


def read_approved(reader: Reader | Transaction, client_id: str, user_id: str) -> frozenset[str] | None:
    """Read the scopes that a user has approved for an app; None if there is no approval."""
    rows = reader.execute(
        "SELECT scopes FROM app_approvals WHERE client_id = ? AND user_id = ?", (client_id, user_id)
    )
    return parse_scopes(rows[0][0]) if rows else None


def use_assertion(tx: Transaction, digest: str, expires_ms: int, now_ms: int) -> bool:
    """Record the use of a signed assertion; return False if it was used before."""
    tx.execute("DELETE FROM used_assertions WHERE expires_ms < ?", (now_ms,))
    if tx.execute("SELECT 1 FROM used_assertions WHERE digest = ?", (digest,)):
        return False
    tx.execute("INSERT INTO used_assertions (digest, expires_ms) VALUES (?, ?)", (digest, expires_ms))
    return True
