"""The signed-in user that every permission check starts from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Principal:
    """A signed-in user. `session_id` names the login session (never its token)."""

    org_id: str
    user_id: str
    username: str
    session_id: str
