"""simple-salesforce as a writer of records: the unmodified library over TLS, with its errors in the crash
tests' words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import requests
from simple_salesforce.api import Salesforce
from simple_salesforce.exceptions import SalesforceError

from tests.running import InDoubt, Refused

T = TypeVar("T")
API_VERSION = "62.0"


def connect_force(https_url: str, token: str, ca_path: Path) -> Salesforce:
    """The library's own object, trusting the server's private CA."""
    session = requests.Session()
    session.verify = str(ca_path)
    # Otherwise a CA bundle named in the environment silently takes the place of ours.
    session.trust_env = False
    return Salesforce(session_id=token, instance_url=https_url, session=session, version=API_VERSION)


class ForceRecords:
    """Changes records through simple-salesforce. For one thread."""

    def __init__(self, force: Salesforce) -> None:
        self._force = force

    def create(self, entity: str, fields: dict[str, Any]) -> str:
        """Create one record; its id."""
        return str(self._answer(lambda: self._object(entity).create(fields))["id"])

    def update(self, entity: str, record_id: str, fields: dict[str, Any]) -> None:
        """Change fields of one record."""
        self._answer(lambda: self._object(entity).update(record_id, fields))

    def delete(self, entity: str, record_id: str) -> None:
        """Delete one record."""
        self._answer(lambda: self._object(entity).delete(record_id))

    def close(self) -> None:
        """Drop kept connections; the next call makes new ones."""
        self._force.session.close()

    def _object(self, entity: str) -> Any:
        return getattr(self._force, entity)

    @staticmethod
    def _answer(call: Callable[[], T]) -> T:
        try:
            return call()
        except SalesforceError as error:
            raise Refused(error.status, str(error.content).encode()) from error
        except requests.RequestException as error:
            raise InDoubt(repr(error)) from error
