"""Profiles: where `tidewire login` keeps how to reach a server and as whom, for the commands that follow.

One JSON file in the user's configuration directory (`TIDEWIRE_CONFIG_DIR` names another), readable by its owner only.
It is replaced as a whole, so that a command that is killed leaves the old one or the new one.
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
    """One server and user. Without a password there is only the session, and no way to renew it."""

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
    """Where the user's settings are kept."""
    return Path(os.environ.get("TIDEWIRE_CONFIG_DIR") or click.get_app_dir("tidewire"))


def load_profiles() -> dict[str, Profile]:
    """All profiles by name. Raises ConfigInvalid if the file is not what `save_profile` writes."""
    path = config_directory() / _FILE
    try:
        document = json.loads(path.read_text("utf-8"))
        return {str(name): _parse_profile(values) for name, values in document["profiles"].items()}
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
        raise ConfigInvalid(
            f"{path} cannot be read ({error}). Remove it and sign in again with `tidewire login`.",
            setting="profile",
        ) from error


def save_profile(name: str, profile: Profile) -> Path:
    """Add or replace a profile; where it is kept. Raises ConfigInvalid."""
    return _write(load_profiles() | {name: profile})


def remove_profile(name: str) -> None:
    """Forget a profile. Idempotent."""
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
        # mkstemp makes the file readable by its owner only, before anything is in it.
        handle, made = tempfile.mkstemp(dir=directory, prefix=_FILE)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text + "\n")
        os.replace(made, directory / _FILE)
    except OSError as error:
        raise ConfigInvalid(
            f"{directory} cannot be written to ({error.strerror}). Name another directory with "
            "TIDEWIRE_CONFIG_DIR.",
            setting="profile",
        ) from error
    return directory / _FILE
