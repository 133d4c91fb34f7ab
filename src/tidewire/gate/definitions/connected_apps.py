"""The section `connected_apps`: the programs that may ask for tokens.

A secret never stands in a document. It is drawn when the app is made and handed to the caller once; with
`public: true` the app has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from functools import partial
from typing import Any

from tidewire.access.apps import (
    PASSWORD,
    ConnectedApp,
    check_app,
    draw_secret,
    store_app,
    try_read_app,
)
from tidewire.access.passwords import hash_token
from tidewire.errors import DefinitionInvalid
from tidewire.gate.definitions.custom_fields import check_keys, mapping
from tidewire.gate.definitions.document import flag_of, refuse, text_list, text_of
from tidewire.gate.definitions.plan import Step
from tidewire.records.table import try_find_by_value
from tidewire.records.work import UnitOfWork

_FLAGS = {
    "preauthorized": "is_preauthorized",
    "rotate_refresh_tokens": "rotates_refresh",
    "require_pkce": "requires_pkce",
}
_LISTS = ("callback_urls", "scopes", "flows")
_KEYS = ("label", *_LISTS, "certificate", "run_as", "public", *_FLAGS)


def connected_app_steps(
    unit: UnitOfWork, document: Mapping[str, object], secrets: dict[str, str]
) -> list[Step]:
    """A step for each app that is missing or differs; the secrets of new ones are put into `secrets`."""
    steps: list[Step] = []
    planned = mapping(document.get("users"), "users")
    for client_id, value in mapping(document.get("connected_apps"), "connected_apps").items():
        path = f"connected_apps.{client_id}"
        spec = mapping(value, path)
        if "secret" in spec:
            refuse(f"{path}.secret", "a secret does not belong into a document; one is drawn and shown once")
        check_keys(spec, _KEYS, path)
        held = try_read_app(unit.tx, client_id)
        wanted = _wanted(unit, client_id, spec, held, planned, path)
        try:
            check_app(wanted)
        except DefinitionInvalid as error:
            raise DefinitionInvalid(f"{path}: {error.message}", path=path) from error
        if held is None:
            steps.append(
                Step(f"create connected app {client_id}", partial(_create, unit, wanted, spec, secrets))
            )
        elif held != wanted:
            names = [f.name for f in fields(wanted) if getattr(held, f.name) != getattr(wanted, f.name)]
            line = f"update connected app {client_id}: {', '.join(sorted(names))}"
            steps.append(Step(line, partial(_update, unit, wanted, spec)))
    return steps


def _wanted(
    unit: UnitOfWork,
    client_id: str,
    spec: Mapping[str, Any],
    held: ConnectedApp | None,
    planned: Mapping[str, object],
    path: str,
) -> ConnectedApp:
    """The app as it will be. A user who is only planned yet stands under the name that the document gives."""
    is_public = flag_of(spec, "public", held is not None and held.is_public, path)
    if held is None:
        # As one that is made for nothing but a program of one's own; whatever else must be asked for.
        flows = frozenset[str]() if is_public else frozenset({PASSWORD})
        held = ConnectedApp(client_id, client_id, "" if is_public else "drawn later", flows=flows)
    elif is_public != held.is_public:
        refuse(f"{path}.public", "an app keeps its secret, or its lack of one; make another app")
    values: dict[str, Any] = {"label": text_of(spec, "label", held.label, path)}
    values["certificate"] = text_of(spec, "certificate", held.certificate, path)
    for key in _LISTS:
        if key in spec:
            listed = text_list(spec[key], f"{path}.{key}")
            values[key] = tuple(dict.fromkeys(listed)) if key == "callback_urls" else frozenset(listed)
    for key, name in _FLAGS.items():
        values[name] = flag_of(spec, key, getattr(held, name), path)
    if "run_as" in spec:
        username = text_of(spec, "run_as", "", path)
        user_id = _try_user_id(unit, username)
        if username and user_id is None and username not in planned:
            refuse(f"{path}.run_as", f"there is no user {username}")
        values["run_as_user_id"] = user_id or username
    return replace(held, **values)


def _try_user_id(unit: UnitOfWork, username: str) -> str | None:
    users = unit.catalog.object("User")
    return try_find_by_value(unit.tx, users, users.by_name["username"], username) if username else None


def _resolved(unit: UnitOfWork, app: ConnectedApp, spec: Mapping[str, Any]) -> ConnectedApp:
    """The app with its user's id, now that every user of the document is there."""
    if not spec.get("run_as"):
        return app
    return replace(app, run_as_user_id=_try_user_id(unit, str(spec["run_as"])) or "")


def _create(unit: UnitOfWork, app: ConnectedApp, spec: Mapping[str, Any], secrets: dict[str, str]) -> None:
    app = _resolved(unit, app, spec)
    if not app.is_public:
        secrets[app.client_id] = draw_secret()
        app = replace(app, secret_hash=hash_token(secrets[app.client_id]))
    store_app(unit.tx, app)


def _update(unit: UnitOfWork, app: ConnectedApp, spec: Mapping[str, Any]) -> None:
    store_app(unit.tx, _resolved(unit, app, spec))
