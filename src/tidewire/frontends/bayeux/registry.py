"""The living sessions, found by client id and by the login they came with."""

from __future__ import annotations

from tidewire.access.principal import Principal
from tidewire.frontends.bayeux.session import Session


class SessionRegistry:
    """Owns every session of one edge from handshake to removal."""

    __slots__ = ("_by_client", "_by_login")

    def __init__(self) -> None:
        self._by_client: dict[str, Session] = {}
        self._by_login: dict[str, set[Session]] = {}

    def __len__(self) -> int:
        return len(self._by_client)

    def add(self, session: Session) -> None:
        """List a new session."""
        self._by_client[session.client_id] = session
        self._by_login.setdefault(session.principal.session_id, set()).add(session)

    def try_find(self, client_id: str) -> Session | None:
        """The session of a client, if it lives."""
        return self._by_client.get(client_id)

    def all(self) -> list[Session]:
        """Every session."""
        return list(self._by_client.values())

    def of_login(self, login_id: str) -> list[Session]:
        """The sessions that came with one login."""
        return list(self._by_login.get(login_id, ()))

    def late(self, now_s: float) -> list[Session]:
        """The sessions whose hold or reconnect window is over."""
        return [session for session in self._by_client.values() if session.deadline_s <= now_s]

    def move(self, session: Session, principal: Principal) -> None:
        """The session's user goes on under another login."""
        self._unlist_login(session)
        session.principal = principal
        self._by_login.setdefault(principal.session_id, set()).add(session)

    def remove(self, session: Session) -> None:
        """Forget a session and end its subscriptions. Idempotent."""
        self._by_client.pop(session.client_id, None)
        self._unlist_login(session)
        session.close()

    def _unlist_login(self, session: Session) -> None:
        login_id = session.principal.session_id
        peers = self._by_login.get(login_id)
        if peers is not None:
            peers.discard(session)
            if not peers:
                del self._by_login[login_id]
