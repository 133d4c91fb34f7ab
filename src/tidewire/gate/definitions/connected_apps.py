"""The section `connected_apps`: the programs that may request tokens.

A document never contains a secret. It is generated when the app is created and returned to the caller once; an app
with `public: true` has none.
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
from tidewire.gate.definitions.document import flag_of, iter_entries, mapping, reject, text_list, text_of
from tidewire.gate.definitions.plan import Step, try_find
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
    """Return a step for each app that is missing or differs; its run adds the secret of a new app to `secrets`."""
    steps: list[Step] = []
    planned = mapping(document.get("users"), "users")
    for client_id, path, spec in iter_entries(document, "connected_apps", (*_KEYS, "secret")):
        if "secret" in spec:
            reject(f"{path}.secret", "remove it: the server generates the secret and shows it once")
        stored = try_read_app(unit.tx, client_id)
        wanted = _wanted(unit, client_id, spec, stored, planned, path)
        try:
            check_app(wanted)
        except DefinitionInvalid as error:
            raise DefinitionInvalid(f"{path}: {error.message}", path=path) from error
        if stored is None:
            steps.append(
                Step(f"create connected app {client_id}", partial(_create, unit, wanted, spec, secrets))
            )
        elif stored != wanted:
            names = [f.name for f in fields(wanted) if getattr(stored, f.name) != getattr(wanted, f.name)]
            line = f"update connected app {client_id}: {', '.join(sorted(names))}"
            steps.append(Step(line, partial(_update, unit, wanted, spec)))
    return steps


def _wanted(
    unit: UnitOfWork,
    client_id: str,
    spec: Mapping[str, Any],
    stored: ConnectedApp | None,
    planned: Mapping[str, object],
    path: str,
) -> ConnectedApp:
    """Return the app after the change; a user that the document creates is still given by username."""
    is_public = flag_of(spec, "public", stored is not None and stored.is_public, path)
    if stored is None:
        # The narrowest default: the password flow of a confidential app. Other flows must be listed.
        flows = frozenset[str]() if is_public else frozenset({PASSWORD})
        stored = ConnectedApp(client_id, client_id, "" if is_public else "generated later", flows=flows)
    elif is_public != stored.is_public:
        reject(f"{path}.public", "cannot be changed; create another app")
    values: dict[str, Any] = {"label": text_of(spec, "label", stored.label, path)}
    values["certificate"] = text_of(spec, "certificate", stored.certificate, path)
    for key in _LISTS:
        if key in spec:
            listed = text_list(spec[key], f"{path}.{key}")
            values[key] = tuple(dict.fromkeys(listed)) if key == "callback_urls" else frozenset(listed)
    for key, name in _FLAGS.items():
        values[name] = flag_of(spec, key, getattr(stored, name), path)
    if "run_as" in spec:
        username = text_of(spec, "run_as", "", path)
        user_id = try_find(unit, "User", "Username", username)
        if username and user_id is None and username not in planned:
            reject(f"{path}.run_as", f"there is no user {username}")
        values["run_as_user_id"] = user_id or username
    return replace(stored, **values)


def _resolved(unit: UnitOfWork, app: ConnectedApp, spec: Mapping[str, Any]) -> ConnectedApp:
    """Return the app with the id of its user; the users of the document exist when steps run."""
    if not spec.get("run_as"):
        return app
    return replace(app, run_as_user_id=try_find(unit, "User", "Username", spec["run_as"]) or "")


def _create(unit: UnitOfWork, app: ConnectedApp, spec: Mapping[str, Any], secrets: dict[str, str]) -> None:
    app = _resolved(unit, app, spec)
    if not app.is_public:
        secrets[app.client_id] = draw_secret()
        app = replace(app, secret_hash=hash_token(secrets[app.client_id]))
    store_app(unit.tx, app)


def _update(unit: UnitOfWork, app: ConnectedApp, spec: Mapping[str, Any]) -> None:
    store_app(unit.tx, _resolved(unit, app, spec))
