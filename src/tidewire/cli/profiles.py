"""Profiles: servers and logins saved by `tidewire login` for later commands.

They are one JSON file in the user's configuration directory (or TIDEWIRE_CONFIG_DIR), readable by its owner only.
Writes replace the file atomically, so that a killed command leaves the old file or the new one.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import click

from tidewire.errors import ConfigInvalid

USUAL_PROFILE = "default"
_FILE = "profiles.json"


@dataclass(frozen=True, slots=True)
class Profile:
    """One server and user. Without a password, an expired session cannot be renewed."""

    url: str
    username: str = ""
    password: str = field(default="", repr=False)
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    ca: str = ""
    endpoint: str = ""
    token: str = field(default="", repr=False)
    instance_url: str = ""
    org_id: str = ""
    user_id: str = ""


def config_directory() -> Path:
    """Return the directory of the user's settings."""
    return Path(os.environ.get("TIDEWIRE_CONFIG_DIR") or click.get_app_dir("tidewire"))


def load_profiles() -> dict[str, Profile]:
    """Load all profiles by name. Raises ConfigInvalid if the file is unreadable."""
    path = config_directory() / _FILE
    try:
        document = json.loads(path.read_text("utf-8"))
        return {str(name): _parse_profile(values) for name, values in document["profiles"].items()}
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
        raise ConfigInvalid(
            f"cannot read {path} ({error}). Delete it and sign in again with `tidewire login`.",
            setting="profile",
        ) from error


def save_profile(name: str, profile: Profile) -> Path:
    """Add or replace a profile; return the file's path. Raises ConfigInvalid."""
    return _write(load_profiles() | {name: profile})


def remove_profile(name: str) -> None:
    """Delete a profile. Idempotent."""
    profiles = load_profiles()
    if profiles.pop(name, None) is not None:
        _write(profiles)


def _parse_profile(values: Mapping[str, Any]) -> Profile:
    known = {f.name for f in fields(Profile)}
    return Profile(**{name: str(value) for name, value in values.items() if name in known})


def _write(profiles: Mapping[str, Profile]) -> Path:
    directory = config_directory()
    text = json.dumps({"profiles": {name: asdict(profile) for name, profile in profiles.items()}}, indent=2)
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        # mkstemp creates the file readable by its owner only, before any secret is written.
        handle, path = tempfile.mkstemp(dir=directory, prefix=_FILE)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text + "\n")
        os.replace(path, directory / _FILE)
    except OSError as error:
        raise ConfigInvalid(
            f"cannot write to {directory} ({error.strerror}). Set another directory with TIDEWIRE_CONFIG_DIR.",
            setting="profile",
        ) from error
    return directory / _FILE
