"""Two orgs with much the same in them on one live server, and how to look for traces of one in the other."""

from __future__ import annotations

import asyncio
import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.sax.saxutils import escape

import requests

from tidewire.clock import SystemClock
from tidewire.config import DEV_USERNAME, Settings
from tidewire.schema.standard.streaming import USAGE_METRIC
from tidewire.server.org_admin import create_additional_org
from tidewire.testing import ServerProcess

API = "/services/data/v62.0"
PARTNER = "urn:partner.soap.sforce.com"
SECRET_NAME = "Zephyr Confidential"  # in everything of org B that has a name
B_ADMIN = "admin@beta.example"
B_CLIENT = "beta-app"
_USAGE_METRICS = USAGE_METRIC.table
# What moves with the time: metrics take ids with every new hour, and a session's last use is noted every few minutes.
_READS = {
    "numbers": f"SELECT * FROM numbers WHERE name <> 'id:{USAGE_METRIC.key_prefix}'",
    "login_sessions": (
        "SELECT token_hash, session_id, user_id, kind, client_id, scopes, peer, grant_id, started_ms"
        " FROM login_sessions"
    ),
}
_FORGETTING_S = 60.0
_ROWS = {True: 205, False: 3}  # more than a page in org B, so that it has a locator and ids that A has not
# Ids, keys, times and counts that differ between any two calls.
_VARIES = (
    (re.compile(r"\b[0-9a-zA-Z]{3}TW0[0-9A-Za-z]{9}(?:[0-9A-Za-z]{3})?\b"), "<id>"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "<uuid>"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}(?:Z|\+0000)"), "<time>"),
    (re.compile(r"<current>\d+</current>"), "<current/>"),
    (re.compile(r'"Remaining":\d+'), '"Remaining":0'),
)


@dataclass(frozen=True, slots=True)
class Org:
    """One org as its administrator sees it."""

    server: ServerProcess
    org_id: str
    username: str
    password: str
    token: str

    def call(self, method: str, path: str, body: object = None, **headers: str) -> requests.Response:
        return requests.request(
            method,
            self.server.http + path,
            json=body,
            headers={"Authorization": f"Bearer {self.token}", **headers},
            timeout=120,
            allow_redirects=False,
        )

    def done(self, method: str, path: str, body: object = None) -> Any:
        answer = self.call(method, path, body)
        assert answer.status_code < 300, answer.text
        return answer.json() if answer.content else None

    def soap(
        self, operation: str, inner: str = "", token: str | None = None, path: str = ""
    ) -> requests.Response:
        return soap(self.server, operation, inner, self.token if token is None else token, path)


@dataclass(frozen=True, slots=True)
class Pair:
    """Org A calls; org B must not be seen."""

    a: Org
    b: Org
    b_secret: str  # of org B's connected app
    foreign: dict[str, str]  # what org B has, by kind
    unknown: dict[str, str]  # the same kinds, of nobody


def soap(
    server: ServerProcess, operation: str, inner: str = "", token: str = "", path: str = ""
) -> requests.Response:
    header = (
        f'<SessionHeader xmlns="{PARTNER}"><sessionId>{escape(token)}</sessionId></SessionHeader>'
        if token
        else ""
    )
    body = (
        '<env:Envelope xmlns:env="http://schemas.xmlsoap.org/soap/envelope/"'
        ' xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance">'
        f'<env:Header>{header}</env:Header><env:Body><{operation} xmlns="{PARTNER}">{inner}</{operation}>'
        "</env:Body></env:Envelope>"
    )
    headers = {"Content-Type": "text/xml", "SOAPAction": '""'}
    url = server.http + (path or "/services/Soap/u/62.0")
    return requests.post(url, data=body.encode(), headers=headers, timeout=120)


def soap_login(server: ServerProcess, username: str, password: str) -> str:
    inner = f"<username>{escape(username)}</username><password>{escape(password)}</password>"
    answer = soap(server, "login", inner)
    found = re.search(r"<sessionId>([^<]+)</sessionId>", answer.text)
    assert found is not None, answer.text
    return found[1]


@contextmanager
def running_pair(data: Path) -> Iterator[Pair]:
    """A server with a development org and a second one, both filled alike, the second fuller."""
    with ServerProcess(data) as server:
        a = Org(server, server.org_id, DEV_USERNAME, "tidewire", server.login())
        settings = Settings(data=str(data))
        b_id, password = asyncio.run(create_additional_org(settings, SystemClock(), SECRET_NAME, B_ADMIN))
        b = Org(server, b_id, B_ADMIN, password, soap_login(server, B_ADMIN, password))
        _fill(a)
        b_secret = _fill(b)[B_CLIENT]
        yield Pair(a, b, b_secret, _foreign(b), _unknown(b_id))


def _fill(org: Org) -> dict[str, str]:
    """Define and create; returns the secrets of the apps that were made."""
    is_b = org.username == B_ADMIN
    name = SECRET_NAME if is_b else "Acme"
    document: dict[str, object] = {
        "capture": ["Account", "Contact"],
        "events": {"Shared__e": {"label": "Shared", "fields": {"Text__c": {"type": "Text", "length": 80}}}},
        "push_topics": {"Accounts": {"Query": "SELECT Id, Name FROM Account", "ApiVersion": 62.0}},
    }
    if is_b:
        document["events"] = {
            **dict(document["events"]),  # type: ignore[call-overload]
            "Only_Beta__e": {"label": SECRET_NAME, "fields": {"Text__c": {"type": "Text", "length": 80}}},
        }
        document["objects"] = {
            "Hidden__c": {"label": SECRET_NAME, "fields": {"Text__c": {"type": "Text", "length": 80}}}
        }
        document["users"] = {
            f"{name}@beta.example": {"password": "correct horse", "last_name": SECRET_NAME}
            for name in ("second", "third", "fourth")
        }
        document["connected_apps"] = {
            B_CLIENT: {
                "label": SECRET_NAME,
                "flows": ["password", "client_credentials", "device", "web_server"],
                "callback_urls": ["https://app.example.org/callback?kind=web"],
                "scopes": ["api", "refresh_token", "id"],
                "run_as": B_ADMIN,
            }
        }
    applied = org.done("POST", "/services/tidewire/v1/apply", document)
    for entity, field in (("Account", "Name"), ("Contact", "LastName")):
        rows = [{"attributes": {"type": entity}, field: f"{name} {number}"} for number in range(_ROWS[is_b])]
        for start in range(0, len(rows), 200):
            org.done("POST", f"{API}/composite/sobjects", {"records": rows[start : start + 200]})
    secrets: dict[str, str] = applied["secrets"]
    return secrets


def _foreign(b: Org) -> dict[str, str]:
    """Of each kind something that only org B has."""

    def newest(entity: str) -> str:
        soql = f"SELECT Id FROM {entity} ORDER BY Id DESC LIMIT 1"  # SOQL
        return str(b.done("GET", f"{API}/query?q={quote(soql)}")["records"][0]["Id"])

    many = b.call(
        "GET",
        f"{API}/query?q=SELECT+Id+FROM+Contact+ORDER+BY+Id",
        **{"Sforce-Query-Options": "batchSize=200"},
    )
    asked = {"operation": "query", "query": "SELECT Id FROM Account"}
    *_, job = [b.done("POST", f"{API}/jobs/query", asked) for _ in range(20)]  # more than org A will have
    while b.done("GET", f"{API}/jobs/query/{job['id']}")["state"] != "JobComplete":
        continue  # its end is a change of org B's own
    with closing(sqlite3.connect(database(b))) as db:
        ((schema,),) = db.execute("SELECT schema_id FROM event_schemas WHERE topic = 'Only_Beta__e'")
    sessions = b.done("GET", "/services/tidewire/v1/sessions")["sessions"]
    assert many.status_code == 200
    return {
        "account": newest("Account"),
        "contact": newest("Contact"),
        "user": newest("User"),
        "locator": str(many.json()["nextRecordsUrl"]).rpartition("/")[2],
        "job": str(job["id"]),
        "schema": str(schema),
        "session": str(sessions[0]["id"]),
        "client": B_CLIENT,
        "entity": "Hidden__c",
        "event": "Only_Beta__e",
        "org": b.org_id,
        "token": b.token,
        "username": B_ADMIN,
    }


def _unknown(b_id: str) -> dict[str, str]:
    return {
        "account": "001TW0000zzzzzz",
        "contact": "003TW0000zzzzzz",
        "user": "005TW0000zzzzzz",
        "locator": "01gTW0000zzzzzz-200",
        "job": "750TW0000zzzzzz",
        "schema": "AAAAAAAAAAAAAAAAAAAAAA",
        "session": "00000000-0000-4000-8000-000000000000",
        "client": "nobodys-app",
        "entity": "Nobodys__c",
        "event": "Nobodys__e",
        "org": "00DTW0000zzzzzz",
        "token": b_id[:15] + "!" + "x" * 96,
        "username": "nobody@beta.example",
    }


def assert_same(pair: Pair, foreign: requests.Response, unknown: requests.Response, what: str) -> None:
    """Whatever is org B's is answered as what is nobody's, and shows nothing."""
    assert_no_trace(pair, foreign, what)
    assert (foreign.status_code, _plain(pair, foreign)) == (unknown.status_code, _plain(pair, unknown)), what


def assert_no_trace(pair: Pair, answer: requests.Response, what: str) -> None:
    assert answer.status_code not in (500, 503) or "faultcode" in answer.text, f"{what}: {answer.text}"
    assert SECRET_NAME not in answer.text, what
    assert "second@beta.example" not in answer.text, what


def _plain(pair: Pair, answer: requests.Response) -> str:
    text = answer.text
    for kind in sorted(pair.foreign, key=lambda kind: -len(pair.foreign[kind])):
        for value in (pair.foreign[kind], pair.unknown[kind]):
            # Some answers repeat what they were given in lower case, or without its checksum.
            for form in (value, value[:15]) if len(value) == 18 else (value,):
                text = re.sub(re.escape(form), f"<{kind}>", text, flags=re.IGNORECASE)
    for pattern, word in _VARIES:
        text = pattern.sub(word, text)
    return text


def database(b: Org) -> Path:
    """Where the rows of the second org are."""
    return Path(b.server.data) / "orgs" / b.org_id / "org.db"


def dump(pair: Pair) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of org B, but for the counters of its own housekeeping."""
    with closing(sqlite3.connect(database(pair.b))) as db:
        tables = [
            name
            for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
        ]
        return {
            name: sorted(db.execute(_READS.get(name, f"SELECT * FROM {name}")).fetchall(), key=repr)
            for name in tables
            if name not in ("progress", "sqlite_sequence", "sqlite_stat1", "event_usage", _USAGE_METRICS)
        }


def assert_untouched(pair: Pair, before: dict[str, list[tuple[Any, ...]]]) -> None:
    """Org B has the rows of an earlier dump."""
    deadline = time.monotonic() + _FORGETTING_S
    # A streaming client of its own that has said goodbye is forgotten a moment after it was answered.
    while (found := dump(pair))["kept_clients"] != before["kept_clients"] and time.monotonic() < deadline:
        continue
    assert found == before
