"""The npm Pub/Sub client, unmodified: every way it signs in, publishing, reading, resuming, managed subscriptions."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.clients.watcher import Watcher
from tests.oauth import Admin
from tests.running import API
from tidewire.config import DEV_PASSWORD, DEV_USERNAME
from tidewire.testing import ServerProcess

pytestmark = [pytest.mark.clients, pytest.mark.slow, pytest.mark.timeout(180)]

MODES = ("user-supplied", "username-password", "oauth-client-credentials", "oauth-jwt-bearer")
COUNT = 8
_WALK_S = 90.0
_numbers = itertools.count()


@pytest.fixture(scope="module")
def admin(server: ServerProcess) -> Admin:
    return Admin(server)


def configuration(server: ServerProcess, admin: Admin, mode: str) -> dict[str, Any]:
    """The client's own configuration for a way to sign in."""
    common = {"authType": mode, "pubSubEndpoint": server.grpc_tls, "rejectUnauthorizedSsl": False}
    scopes = ["api", "id", "openid", "profile"]
    if mode == "user-supplied":
        return common | {
            "accessToken": server.login(),
            "instanceUrl": server.https,
            "organizationId": server.org_id,
        }
    if mode == "username-password":
        return common | {"loginUrl": server.http, "username": DEV_USERNAME, "password": DEV_PASSWORD}
    if mode == "oauth-client-credentials":
        app = admin.make_app(flows=["client_credentials"], scopes=scopes, run_as=DEV_USERNAME)
        return common | {
            "loginUrl": server.http,
            "clientId": app["client_id"],
            "clientSecret": app["client_secret"],
        }
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    app = admin.make_app(flows=["jwt_bearer"], scopes=scopes, certificate=public.decode(), preauthorized=True)
    return common | {
        "loginUrl": server.http,
        "clientId": app["client_id"],
        "username": DEV_USERNAME,
        "privateKey": private.decode(),
    }


def make_topic(admin: Admin) -> str:
    """A platform event of this test's own."""
    name = f"Npm_Walk_{next(_numbers)}__e"
    admin.apply(events={name: {"label": "Walk", "fields": {"Number__c": {"type": "Text", "length": 20}}}})
    return f"/event/{name}"


def run(server: ServerProcess, tmp_path: Path, *arguments: str) -> list[dict[str, Any]]:
    """Run the program to its end; its lines."""
    with Watcher("pubsub_walk.mjs", arguments, server.ca_path, tmp_path / "walk.log") as walk:
        walk.wait_for(lambda lines: bool(lines) and lines[-1]["kind"] in ("done", "failed"), _WALK_S)
        assert walk.lines[-1]["kind"] == "done", walk.lines
        return walk.lines


def only(lines: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [line for line in lines if line["kind"] == kind]


@pytest.mark.parametrize("mode", MODES)
def test_npm_client_publishes_reads_and_resumes_with_every_way_to_sign_in(
    server: ServerProcess, admin: Admin, tmp_path: Path, mode: str
) -> None:
    topic = make_topic(admin)
    settings = json.dumps(configuration(server, admin, mode))
    lines = run(server, tmp_path, settings, topic, str(COUNT))
    results = [result for line in only(lines, "published") for result in line["results"]]
    keys = [result["correlationKey"] for result in results]
    assert keys == ["the-first", *(f"batch-{number}" for number in range(1, COUNT + 1))]
    ids = [result["replayId"] for result in results]
    assert ids == sorted(set(ids))
    (read,) = only(lines, "read")
    assert [event["number"] for event in read["events"]] == [str(number) for number in range(COUNT + 1)]
    assert [event["replayId"] for event in read["events"]] == ids
    assert [event["id"] for event in read["events"]] == keys
    (resumed,) = only(lines, "resumed")
    assert resumed["events"] == read["events"][COUNT // 2 + 1 :]
    (refused,) = only(lines, "refused")
    assert "/event/Nothing_Like_It__e not found" in refused["message"]


def test_npm_client_goes_on_after_what_it_committed_to_a_managed_subscription(
    server: ServerProcess, admin: Admin, tmp_path: Path
) -> None:
    topic = make_topic(admin)
    name = f"Npm_Managed_{next(_numbers)}"
    made = admin.call(
        "POST",
        f"{API}/tooling/sobjects/ManagedEventSubscription",
        {
            "FullName": name,
            "Metadata": {
                "label": name,
                "topicName": topic,
                "defaultReplay": "EARLIEST",
                "errorRecoveryReplay": "EARLIEST",
                "state": "RUN",
            },
        },
    )
    assert made.status_code == 201, made.text
    settings = json.dumps(configuration(server, admin, "username-password"))
    published = run(server, tmp_path, settings, topic, str(COUNT))
    ids = [result["replayId"] for line in only(published, "published") for result in line["results"]]
    (first,) = only(run(server, tmp_path, settings, "managed", name, "5", "2"), "read")
    assert [event["replayId"] for event in first["events"]] == ids[:5]
    (second,) = only(run(server, tmp_path, settings, "managed", str(made.json()["id"]), "6", "0"), "read")
    assert [event["replayId"] for event in second["events"]] == ids[3:]
