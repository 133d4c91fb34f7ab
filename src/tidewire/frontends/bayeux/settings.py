"""What an operator may choose about the Bayeux front end."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BayeuxSettings:
    """Times, caps and checks.

    `requires_cookie` refuses clients that do not return the BAYEUX_BROWSER cookie, as the original service
    does; off by default because some clients keep no cookies for bare addresses. Sessions of versions up to 24.0 end
    `old_session_s` after their last subscribe, whatever else they do. `verify_s` is how long a
    checked token is trusted without asking core again; a login that core reports as ended is dropped at once
    all the same.
    """

    hold_s: float = 110.0
    reconnect_window_s: float = 40.0
    max_reply_events: int = 1000
    max_reply_bytes: int = 512 * 1024
    old_session_s: float = 3600.0
    max_sessions: int = 100_000
    max_sessions_per_user: int = 20_000
    max_subscriptions: int = 500
    requires_cookie: bool = False
    verify_s: float = 5.0
    sweep_s: float = 0.5
    has_websocket: bool = False
    keeps_sessions: bool = False
