"""Flags that every command shares that signs in to a server."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from tidewire.client.login import Credentials
from tidewire.config import DEV_CLIENT_ID, DEV_CLIENT_SECRET, DEV_PASSWORD, DEV_USERNAME

_OPTIONS = (
    ("url", "http://localhost:8080", "where the server answers HTTP"),
    ("username", DEV_USERNAME, "who to sign in as"),
    ("password", DEV_PASSWORD, "the user's password"),
    ("client-id", DEV_CLIENT_ID, "the connected app; empty signs in by SOAP"),
    ("client-secret", DEV_CLIENT_SECRET, "the connected app's secret"),
)


def credentials_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the sign-in flags and hands them over as one `credentials` argument."""

    @wraps(command)
    def with_credentials(
        url: str, username: str, password: str, client_id: str, client_secret: str, **others: Any
    ) -> Any:
        return command(credentials=Credentials(url, username, password, client_id, client_secret), **others)

    wrapped: Callable[..., Any] = with_credentials
    for name, default, help_text in reversed(_OPTIONS):
        variable = "TIDEWIRE_" + name.upper().replace("-", "_")
        wrapped = click.option("--" + name, default=default, envvar=variable, help=help_text)(wrapped)
    return wrapped
