"""Connected apps, sessions and users' credentials: who may sign in.

Apps need the permission Customize Application, the others Manage Users. A secret is returned once, by the request that
created it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from tidewire.access.apps import ConnectedApp
from tidewire.access.logins import Logins
from tidewire.access.scopes import render_scopes
from tidewire.access.sessions import SessionEntry
from tidewire.errors import DefinitionInvalid, RequiredFieldMissing, ResourceUnknown
from tidewire.frontends.rest.calls import ApiCall, Route
from tidewire.frontends.rest.management.calls import (
    EMPTY,
    Services,
    check_keys,
    context_of,
    render_result,
)
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


async def list_apps(services: Services, call: ApiCall) -> HttpResponse:
    """List the connected apps."""
    apps = await services.apps.entries(context_of(call))
    names = await services.apps.usernames(apps)
    return render_result(call, {"apps": [_render_app(app, names) for app in apps]})


async def show_app(services: Services, call: ApiCall) -> HttpResponse:
    """Return one connected app."""
    app = await services.apps.find(context_of(call), call.arguments[0])
    return render_result(call, _render_app(app, await services.apps.usernames([app])))


async def create_app(services: Services, call: ApiCall) -> HttpResponse:
    """Create a connected app, and return its secret unless it is public."""
    given = parse_json_object(call.request)
    check_keys(given, _APP_KEYS)
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
    client_id, secret = await services.apps.create(
        context_of(call), app, run_as=_text(given, "run_as"), is_public=_flag(given, "public")
    )
    body = {"client_id": client_id} | ({"client_secret": secret} if secret else {})
    return render_result(call, body, 201)


async def delete_app(services: Services, call: ApiCall) -> HttpResponse:
    """Delete a connected app."""
    await services.apps.delete(context_of(call), call.arguments[0])
    return EMPTY


async def rotate_secret(services: Services, call: ApiCall) -> HttpResponse:
    """Replace the secret of a connected app."""
    (client_id,) = call.arguments
    secret = await services.apps.rotate_secret(context_of(call), client_id)
    return render_result(call, {"client_id": client_id, "client_secret": secret})


async def list_sessions(services: Services, call: ApiCall) -> HttpResponse:
    """List the sessions of all users, or of the one that `?username=` names."""
    logins = services.logins
    await logins.credentials.check_manager(context_of(call))
    username = call.request.query.get("username", "")
    user_id = await logins.try_find_user(username) if username else ""
    entries = [] if user_id is None else await logins.sessions.entries(user_id)
    return render_result(call, {"sessions": [_render_session(entry) for entry in entries]})


async def revoke_session(services: Services, call: ApiCall) -> HttpResponse:
    """End a session."""
    await services.logins.credentials.check_manager(context_of(call))
    if not await services.logins.sessions.revoke(call.arguments[0]):
        raise ResourceUnknown("The requested resource does not exist")
    return EMPTY


async def reset_password(services: Services, call: ApiCall) -> HttpResponse:
    """Give a user a random password."""
    password = await services.logins.credentials.reset_password(context_of(call), call.arguments[0])
    return render_result(call, {"password": password})


async def unlock_user(services: Services, call: ApiCall) -> HttpResponse:
    """Unlock a user who failed to sign in too often."""
    await services.logins.credentials.unlock(context_of(call), call.arguments[0])
    return EMPTY


async def reset_security_token(services: Services, call: ApiCall) -> HttpResponse:
    """Give a user a new security token."""
    token = await services.logins.credentials.reset_security_token(context_of(call), call.arguments[0])
    return render_result(call, {"security_token": token})


async def drop_security_token(services: Services, call: ApiCall) -> HttpResponse:
    """Remove a user's security token."""
    await services.logins.credentials.drop_security_token(context_of(call), call.arguments[0])
    return EMPTY


async def answer_password(logins: Logins, request: HttpRequest, user_id: str, call: Call) -> HttpResponse:
    """Answer `sobjects/User/{id}/password` of the data API: POST sets the password, DELETE resets it."""
    match request.method:
        case "GET":
            return render_json(request, 200, {"isExpired": False}, (NO_STORE,))
        case "POST":
            new = parse_json_object(request).get("NewPassword")
            if not isinstance(new, str):
                raise RequiredFieldMissing(
                    "Required fields are missing: [NewPassword]", fields=["NewPassword"]
                )
            await logins.credentials.set_password(call, user_id, new)
            return EMPTY
        case "DELETE":
            password = await logins.credentials.reset_password(call, user_id)
            return render_json(request, 200, {"NewPassword": password}, (NO_STORE,))
        case method:
            raise method_not_allowed(method, ("GET", "POST", "DELETE"))


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
        "started": _render_time(entry.started_ms),
        "used": _render_time(entry.used_ms),
    }


def _render_time(epoch_ms: int) -> str:
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


ROUTES: tuple[Route[Services], ...] = (
    Route(("apps",), {"GET": list_apps, "POST": create_app}),
    Route(("apps", "*"), {"GET": show_app, "DELETE": delete_app}),
    Route(("apps", "*", "secret"), {"POST": rotate_secret}),
    Route(("sessions",), {"GET": list_sessions}),
    Route(("sessions", "*"), {"DELETE": revoke_session}),
    Route(("users", "*", "password"), {"POST": reset_password}),
    Route(("users", "*", "unlock"), {"POST": unlock_user}),
    Route(("users", "*", "security-token"), {"POST": reset_security_token, "DELETE": drop_security_token}),
)
