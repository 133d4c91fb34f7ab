"""The resources of `/services/tidewire/v1` about who may sign in: apps, sessions and users' credentials.

The command line uses them, and so may anybody with the permissions: Customize Application for apps, Manage Users for
the rest. A secret is in the one answer that made it and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from tidewire.access.apps import AppAdmin, ConnectedApp
from tidewire.access.logins import Logins
from tidewire.access.scopes import render_scopes
from tidewire.access.sessions import SessionEntry
from tidewire.errors import DefinitionInvalid, MethodNotAllowed, RequiredFieldMissing, ResourceUnknown
from tidewire.frontends.rest.wire import NO_STORE, method_not_allowed, parse_json_object, render_json
from tidewire.gate.requests import Call
from tidewire.transport.http import HttpRequest, HttpResponse

_APP_KEYS = frozenset(
    {
        "client_id",
        "label",
        "callback_urls",
        "scopes",
        "flows",
        "certificate",
        "run_as",
        "public",
        "preauthorized",
        "rotates_refresh",
        "requires_pkce",
    }
)
_EMPTY = HttpResponse(204, b"", "", (NO_STORE,))


class AdminApi:
    """Answers `/services/tidewire/v1/apps`, `/sessions` and `/users`, and the password of a User record."""

    def __init__(self, logins: Logins, apps: AppAdmin) -> None:
        self._logins = logins
        self._apps = apps

    async def answer(self, request: HttpRequest, segments: tuple[str, ...], call: Call) -> HttpResponse:
        """Answer what follows `/services/tidewire/v1/`."""
        match (request.method, *segments):
            case ("GET", "apps"):
                return await self._list_apps(request, call)
            case ("POST", "apps"):
                return await self._create_app(request, call)
            case ("GET", "apps", client_id):
                return await self._show_app(request, call, client_id)
            case ("DELETE", "apps", client_id):
                await self._apps.delete(call, client_id)
                return _EMPTY
            case ("POST", "apps", client_id, "secret"):
                secret = await self._apps.rotate_secret(call, client_id)
                return _render(request, {"client_id": client_id, "client_secret": secret})
            case ("GET", "sessions"):
                return await self._list_sessions(request, call)
            case ("DELETE", "sessions", session_id):
                return await self._revoke_session(call, session_id)
            case ("POST", "users", user_id, "password"):
                password = await self._logins.reset_password(call, user_id)
                return _render(request, {"password": password})
            case ("POST", "users", user_id, "unlock"):
                await self._logins.credentials.unlock(call, user_id)
                return _EMPTY
            case ("POST", "users", user_id, "security-token"):
                token = await self._logins.credentials.reset_security_token(call, user_id)
                return _render(request, {"security_token": token})
            case ("DELETE", "users", user_id, "security-token"):
                await self._logins.credentials.drop_security_token(call, user_id)
                return _EMPTY
            case (_, "apps" | "sessions" | "users", *_):
                raise MethodNotAllowed(
                    f"HTTP Method '{request.method[:16]}' not allowed", allowed=("GET", "POST", "DELETE")
                )
            case _:
                raise ResourceUnknown("The requested resource does not exist")

    async def answer_password(self, request: HttpRequest, user_id: str, call: Call) -> HttpResponse:
        """`sobjects/User/{id}/password`: POST sets it, DELETE draws another."""
        match request.method:
            case "GET":
                return _render(request, {"isExpired": False})
            case "POST":
                new = parse_json_object(request).get("NewPassword")
                if not isinstance(new, str):
                    raise RequiredFieldMissing(
                        "Required fields are missing: [NewPassword]", fields=["NewPassword"]
                    )
                await self._logins.set_password(call, user_id, new)
                return _EMPTY
            case "DELETE":
                password = await self._logins.reset_password(call, user_id)
                return _render(request, {"NewPassword": password})
            case method:
                raise method_not_allowed(method, ("GET", "POST", "DELETE"))

    async def _list_apps(self, request: HttpRequest, call: Call) -> HttpResponse:
        apps = await self._apps.entries(call)
        names = await self._apps.usernames(apps)
        return _render(request, {"apps": [_render_app(app, names) for app in apps]})

    async def _show_app(self, request: HttpRequest, call: Call, client_id: str) -> HttpResponse:
        app = await self._apps.find(call, client_id)
        return _render(request, _render_app(app, await self._apps.usernames([app])))

    async def _create_app(self, request: HttpRequest, call: Call) -> HttpResponse:
        given = parse_json_object(request)
        unknown = sorted(set(given) - _APP_KEYS)
        if unknown:
            raise DefinitionInvalid(f"unknown keys: {', '.join(unknown)[:200]}", path=unknown[0][:80])
        app = ConnectedApp(
            client_id=_text(given, "client_id"),
            label=_text(given, "label"),
            callback_urls=_list(given, "callback_urls"),
            scopes=frozenset(_list(given, "scopes") or ("api", "refresh_token")),
            flows=frozenset(_list(given, "flows")),
            certificate=_text(given, "certificate"),
            is_preauthorized=_flag(given, "preauthorized"),
            rotates_refresh=_flag(given, "rotates_refresh"),
            requires_pkce=_flag(given, "requires_pkce"),
        )
        client_id, secret = await self._apps.create(
            call, app, run_as=_text(given, "run_as"), is_public=_flag(given, "public")
        )
        body = {"client_id": client_id} | ({"client_secret": secret} if secret else {})
        return render_json(request, 201, body, (NO_STORE,))

    async def _list_sessions(self, request: HttpRequest, call: Call) -> HttpResponse:
        await self._logins.credentials.check_manager(call)
        username = request.query.get("username", "")
        user_id = await self._logins.try_find_user(username) if username else ""
        entries = [] if user_id is None else await self._logins.sessions.entries(user_id)
        return _render(request, {"sessions": [_render_session(entry) for entry in entries]})

    async def _revoke_session(self, call: Call, session_id: str) -> HttpResponse:
        await self._logins.credentials.check_manager(call)
        if not await self._logins.sessions.revoke(session_id):
            raise ResourceUnknown("The requested resource does not exist")
        return _EMPTY


def _render(request: HttpRequest, body: object) -> HttpResponse:
    return render_json(request, 200, body, (NO_STORE,))


def _render_app(app: ConnectedApp, usernames: Mapping[str, str]) -> dict[str, object]:
    return {
        "client_id": app.client_id,
        "label": app.label,
        "callback_urls": list(app.callback_urls),
        "scopes": sorted(app.scopes),
        "flows": sorted(app.flows),
        "certificate": bool(app.certificate),
        "run_as": usernames.get(app.run_as_user_id),
        "public": app.is_public,
        "preauthorized": app.is_preauthorized,
        "rotates_refresh": app.rotates_refresh,
        "requires_pkce": app.requires_pkce,
    }


def _render_session(entry: SessionEntry) -> dict[str, object]:
    return {
        "id": entry.session_id,
        "user_id": entry.user_id,
        "username": entry.username,
        "kind": entry.origin.kind,
        "app": entry.origin.client_id or None,
        "scopes": render_scopes(entry.origin.scopes),
        "peer": entry.origin.peer,
        "started": _moment(entry.started_ms),
        "used": _moment(entry.used_ms),
    }


def _moment(epoch_ms: int) -> str:
    return datetime.fromtimestamp(epoch_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _text(given: Mapping[str, object], name: str) -> str:
    value = given.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise DefinitionInvalid(f"{name}: must be text", path=name)
    return value


def _list(given: Mapping[str, object], name: str) -> tuple[str, ...]:
    value = given.get(name)
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise DefinitionInvalid(f"{name}: must be a list of texts", path=name)
    return tuple(value)


def _flag(given: Mapping[str, object], name: str) -> bool:
    value = given.get(name, False)
    if not isinstance(value, bool):
        raise DefinitionInvalid(f"{name}: must be true or false", path=name)
    return value
