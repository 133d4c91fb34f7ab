"""Suggest similar names when a server does not know an object or a field."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tidewire.client.rest import RestClient
from tidewire.errors import PlatformError, RequestRefused

_NO_FIELD = re.compile(r"No such column '([^']*)' on (?:entity|sobject of type) '?(\w+)'?")
_NO_OBJECT = re.compile(r"sObject type '([^']*)' is not supported")


def suggest(message: str, client: RestClient, entity: str = "") -> str:
    """Return `Did you mean ...?` if the unknown name in an error is similar to a known one, else an empty text.

    `entity` is the object of a request path: for an unknown one, servers answer only "not found".
    """
    known: list[str] = []
    meant = ""
    with suppress(PlatformError):
        if found := _NO_FIELD.search(message):
            meant = found[1]
            known = [field["name"] for field in client.describe(found[2])["fields"]]
        elif (found := _NO_OBJECT.search(message)) or entity:
            meant = found[1] if found else entity
            known = [each["name"] for each in client.describe()["sobjects"]]
    by_lower = {name.lower(): name for name in known}
    if meant.lower() in by_lower:
        return ""
    near = difflib.get_close_matches(meant.lower(), by_lower, n=3, cutoff=0.7)
    return "Did you mean " + " or ".join(by_lower[name] for name in near) + "?" if near else ""


@contextmanager
def suggesting(client: RestClient, entity: str) -> Iterator[None]:
    """Add similar names to the error of a rejected request."""
    try:
        yield
    except RequestRefused as error:
        is_missing = error.details.get("status") == 404
        meant = suggest(error.message, client, entity if is_missing else "")
        if not meant:
            raise
        raise RequestRefused(f"{error.message.rstrip('.')}. {meant}", **error.details) from error
