"""Settings of the Bayeux front end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from tidewire.frontends import setting


@dataclass(frozen=True, kw_only=True)
class BayeuxOptions:
    """The settings that an operator can change; `config.Settings` inherits them."""

    bayeux_hold_s: float = setting(110.0, "seconds a long poll is held open when there is no event")
    bayeux_reconnect_s: float = setting(40.0, "seconds without a request after which a Bayeux session ends")
    bayeux_require_cookie: bool = setting(
        False, "reject Bayeux messages that lack the cookie set by the handshake"
    )
    bayeux_session_s: float = setting(
        3600.0, "seconds after its last subscribe that a Bayeux session of API version 24.0 or below ends"
    )
    bayeux_clients: int = setting(
        100_000, "Bayeux sessions per org, over all edges; further handshakes are rejected"
    )
    bayeux_clients_per_user: int = setting(
        20_000,
        "Bayeux sessions per user, over all edges; a further handshake ends the oldest session of its process",
    )
    bayeux_websocket: bool = setting(
        False, "offer WebSocket to Bayeux clients, which the original service does not"
    )
    bayeux_durable_sessions: bool = setting(
        False, "keep Bayeux sessions and their subscriptions across server restarts"
    )


@dataclass(frozen=True, slots=True)
class BayeuxSettings:
    """Timeouts, limits and checks.

    `requires_cookie` rejects clients that do not return the BAYEUX_BROWSER cookie, as the original service does. It is
    off by default because some clients keep no cookies for bare addresses. Sessions of versions up to 24.0 end
    `old_session_s` after their last subscribe. A verified token is trusted for `verify_s` without asking the core
    again; a login that the core reports as ended is dropped at once all the same.
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
    has_durable_sessions: bool = False

    @classmethod
    def from_options(cls, options: BayeuxOptions) -> Self:
        """Apply the operator's settings."""
        return cls(
            hold_s=options.bayeux_hold_s,
            reconnect_window_s=options.bayeux_reconnect_s,
            requires_cookie=options.bayeux_require_cookie,
            has_websocket=options.bayeux_websocket,
            has_durable_sessions=options.bayeux_durable_sessions,
            old_session_s=options.bayeux_session_s,
            max_sessions=options.bayeux_clients,
            max_sessions_per_user=options.bayeux_clients_per_user,
        )
