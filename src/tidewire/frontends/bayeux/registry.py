"""The open sessions of an edge, by client id, login and user."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import islice

from tidewire.access.principal import Principal
from tidewire.delivery.link_values import StreamState
from tidewire.frontends.bayeux.session import Session

_SHOWN = 200
_SHOWN_OF_ID = 8  # the whole id would let its reader impersonate the client


class SessionRegistry:
    """Owns every session of one edge from handshake to removal."""

    __slots__ = ("_by_client", "_by_login", "_by_user", "removed")

    def __init__(self) -> None:
        self.removed: Callable[[Session], None] = _ignore  # called for each removed session
        self._by_client: dict[str, Session] = {}
        self._by_login: dict[str, set[Session]] = {}
        self._by_user: dict[tuple[str, str], dict[Session, None]] = {}  # in order of their handshakes

    def __len__(self) -> int:
        return len(self._by_client)

    def add(self, session: Session) -> None:
        """Add a new session."""
        self._by_client[session.client_id] = session
        self._by_login.setdefault(session.principal.session_id, set()).add(session)
        self._by_user.setdefault(_user_of(session.principal), {})[session] = None

    def try_find(self, client_id: str) -> Session | None:
        """Return the open session of a client, or None."""
        return self._by_client.get(client_id)

    def all(self) -> list[Session]:
        """Return every session."""
        return list(self._by_client.values())

    def of_login(self, login_id: str) -> list[Session]:
        """Return the sessions of one login."""
        return list(self._by_login.get(login_id, ()))

    def overdue(self, now_s: float) -> list[Session]:
        """Return the sessions whose hold, reconnect window or lifetime is over."""
        return [s for s in self._by_client.values() if s.deadline_s <= now_s or s.ends_s <= now_s]

    def most_lagging(self) -> tuple[StreamState, ...]:
        """Return the positions of the subscriptions that lag most, at most 200."""
        found = heapq.nsmallest(
            _SHOWN,
            ((s, channel) for s in self._by_client.values() for channel in s.sources),
            key=lambda each: each[0].sources[each[1]].position,
        )
        return tuple(
            StreamState(
                session.client_id[:_SHOWN_OF_ID],
                session.principal.username,
                channel,
                "",
                session.sources[channel].reached(),
                0,
                "bayeux",
            )
            for session, channel in found
        )

    def count_of(self, principal: Principal) -> int:
        """Return how many sessions a user has."""
        return len(self._by_user.get(_user_of(principal), ()))

    def to_evict(self, principal: Principal, surplus: int) -> list[Session]:
        """Return up to `surplus` sessions of a user to evict: the oldest first, those with a held connect last."""
        if surplus <= 0:
            return []
        own = self._by_user.get(_user_of(principal), {})
        away = list(islice((session for session in own if session.exchange is None), surplus))
        return away + list(islice((s for s in own if s.exchange is not None), surplus - len(away)))

    def move(self, session: Session, principal: Principal) -> None:
        """Move a session to another login of its user."""
        self._unlist_login(session)
        session.principal = principal
        self._by_login.setdefault(principal.session_id, set()).add(session)

    def remove(self, session: Session) -> None:
        """Forget a session and end its subscriptions. Idempotent."""
        was_listed = self._by_client.pop(session.client_id, None) is not None
        self._unlist_login(session)
        user = _user_of(session.principal)
        own = self._by_user.get(user)
        if own is not None:
            own.pop(session, None)
            if not own:
                del self._by_user[user]
        session.close()
        if was_listed:
            self.removed(session)

    def _unlist_login(self, session: Session) -> None:
        login_id = session.principal.session_id
        peers = self._by_login.get(login_id)
        if peers is not None:
            peers.discard(session)
            if not peers:
                del self._by_login[login_id]


def _user_of(principal: Principal) -> tuple[str, str]:
    return principal.org_id, principal.user_id


def _ignore(session: Session) -> None:
    return None
