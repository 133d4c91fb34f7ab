"""Nothing of one org is seen or changed from another: every way in is tried with what the other org has."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import product
from typing import Any
from urllib.parse import quote

import grpc
import pytest
import requests

from tests.running import call_metadata
from tests.two_orgs import (
    API,
    B_ADMIN,
    B_CLIENT,
    SECRET_NAME,
    Pair,
    assert_no_trace,
    assert_same,
    assert_untouched,
    dump,
    running_pair,
    soap,
    soap_login,
)
from tidewire.config import DEV_CLIENT_ID, DEV_CLIENT_SECRET, DEV_USERNAME
from tidewire.frontends.pubsub.listener import STREAM_CALLS, UNARY_CALLS
from tidewire.frontends.rest.bulk.classic import ROUTES as CLASSIC_ROUTES
from tidewire.frontends.rest.bulk.jobs import ROUTES as JOB_ROUTES
from tidewire.frontends.rest.data import ROUTES as DATA_ROUTES
from tidewire.frontends.soap.serve import OPERATIONS
from tidewire.schema.proto import pubsub_pb2 as pb

ADMIN = "/services/tidewire/v1"
CLASSIC = "/services/async/62.0"
RECORD_KINDS = (
    "account",
    "contact",
    "user",
    "job",
    "locator",
    "schema",
    "session",
    "client",
    "entity",
    "event",
    "org",
)
SCHEMA_BYTES = b"\x00"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with running_pair(tmp_path_factory.mktemp("pair") / "data") as running:
        yield running


@pytest.fixture(autouse=True)
def b_untouched(pair: Pair) -> Iterator[None]:
    """Whatever a test does in org A, org B has the same rows after it."""
    before = dump(pair)
    yield
    assert_untouched(pair, before)


def rest_paths() -> list[tuple[str, tuple[str, ...]]]:
    """Every method and path of the data API, with `*` where a path is open."""
    routes = [(route.path, tuple(route.methods)) for route in DATA_ROUTES]
    routes += [(("jobs", *route.path), tuple(route.methods)) for route in JOB_ROUTES]
    routes += [((CLASSIC, *route.path), tuple(route.methods)) for route in CLASSIC_ROUTES]
    found = [(method, path) for path, methods in routes for method in (*methods, "PUT")]
    return list(dict.fromkeys(found))


def fillings(path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Kinds for the open segments: each kind in the last, and what fits in those before."""
    count = path.count("*")
    leads = {0: (), 1: (), 2: (("Account", "Contact"),), 3: (("Account",), ("account", "contact"))}[
        min(count, 3)
    ]
    for kinds in product(*leads, RECORD_KINDS):
        yield (*kinds, *("account",) * (count - len(kinds))) if count else ()
        if not count:
            return


def filled(path: tuple[str, ...], kinds: tuple[str, ...], values: dict[str, str]) -> str:
    given = iter(kinds)
    parts = [values.get(kind := next(given), kind) if part == "*" else part for part in path]
    base = parts.pop(0) if path[:1] == (CLASSIC,) else API
    return "/".join((base, *(quote(part, safe="") for part in parts)))


def bodies(values: dict[str, str]) -> list[Any]:
    """Bodies that name what org B has, in each of the forms that some resource takes."""
    account, contact = values["account"], values["contact"]
    return [
        None,
        {"Name": "Probe", "LastName": "Probe", "AccountId": account, "ParentId": account},
        {
            "allOrNone": False,
            "records": [{"attributes": {"type": "Account"}, "id": account, "Name": "Probe"}],
            "ids": [account, contact],
            "fields": ["Id", "Name"],
            "batchRequests": [{"method": "GET", "url": f"v62.0/sobjects/Account/{account}"}],
            "compositeRequest": [
                {"method": "GET", "url": f"{API}/sobjects/Account/{account}", "referenceId": "r"}
            ],
            "operation": "query",
            "query": f"SELECT Id, Name FROM Account WHERE Id = '{account}'",  # SOQL
        },
    ]


@pytest.mark.parametrize("method, path", rest_paths())
def test_rest_route_answers_for_the_other_org_as_for_nobody(
    pair: Pair, method: str, path: tuple[str, ...]
) -> None:
    while path == ("jobs", "query") and any(
        job["state"] in ("UploadComplete", "InProgress")
        for job in pair.a.done("GET", f"{API}/jobs/query")["records"]
    ):
        continue  # what a test before this one has left would end between two looks at the list
    for kinds in fillings(path):
        answers = []
        for values in (pair.foreign, pair.unknown):
            soql = f"SELECT Id, Name FROM Account WHERE Id = '{values['account']}'"  # SOQL
            query = f"?q={quote(soql)}&ids={values['account']}&id={values['account']}&fields=Id,Name"
            url = filled(path, kinds, values) + query
            session = {"X-SFDC-Session": pair.a.token}  # the older bulk API looks for it here
            answers.append([pair.a.call(method, url, body, **session) for body in bodies(values)])
        for foreign, unknown in zip(*answers, strict=True):
            assert_same(pair, foreign, unknown, f"{method} {'/'.join(path)} {kinds}")


@pytest.mark.parametrize(
    "method, path",
    [
        ("GET", "/apps/{client}"),
        ("DELETE", "/apps/{client}"),
        ("POST", "/apps/{client}/secret"),
        ("DELETE", "/sessions/{session}"),
        ("POST", "/users/{user}/password"),
        ("POST", "/users/{user}/unlock"),
        ("POST", "/users/{user}/security-token"),
        ("DELETE", "/users/{user}/security-token"),
    ],
)
def test_administration_answers_for_the_other_org_as_for_nobody(pair: Pair, method: str, path: str) -> None:
    foreign = pair.a.call(method, ADMIN + path.format(**pair.foreign))
    assert_same(pair, foreign, pair.a.call(method, ADMIN + path.format(**pair.unknown)), path)
    assert foreign.status_code == 404


@pytest.mark.parametrize("path", ["/apps", "/sessions"])
def test_lists_show_the_own_org_only(pair: Pair, path: str) -> None:
    answer = pair.a.call("GET", ADMIN + path)
    assert answer.status_code == 200
    assert_no_trace(pair, answer, path)
    for kind in ("session", "client", "org"):
        assert pair.foreign[kind] not in answer.text


@pytest.mark.parametrize(
    "soql",
    ["SELECT Name FROM Organization", "SELECT Username, LastName FROM User", "SELECT Name FROM Account"],
)
def test_query_and_search_see_the_own_org_only(pair: Pair, soql: str) -> None:
    assert_no_trace(pair, pair.a.call("GET", f"{API}/query?q={quote(soql)}"), soql)
    assert SECRET_NAME in pair.b.call("GET", f"{API}/query?q={quote(soql)}").text or "Username" in soql
    search = quote(f"FIND {{{SECRET_NAME}}} IN ALL FIELDS RETURNING Account(Name), Contact(Name)")
    found = pair.a.call("GET", f"{API}/search?q={search}")
    assert_no_trace(pair, found, "search")


def soap_inner(values: dict[str, str]) -> dict[str, str]:
    """Arguments of each operation that name what org B has."""
    ids = f"<ids>{values['account']}</ids><ID>{values['account']}</ID>"
    record = (
        f'<sObjects><type xmlns="urn:sobject.partner.soap.sforce.com">Account</type>'
        f'<Id xmlns="urn:sobject.partner.soap.sforce.com">{values["account"]}</Id>'
        f'<ParentId xmlns="urn:sobject.partner.soap.sforce.com">{values["account"]}</ParentId></sObjects>'
    )
    soql = f"<queryString>SELECT Id, Name FROM Account WHERE Id = '{values['account']}'</queryString>"  # SOQL
    given = {
        "query": soql,
        "queryAll": soql,
        "queryMore": f"<queryLocator>{values['locator']}</queryLocator>",
        "retrieve": f"<fieldList>Id, Name</fieldList><sObjectType>Account</sObjectType>{ids}",
        "search": f"<searchString>FIND {{{SECRET_NAME}}} RETURNING Account(Id, Name)</searchString>",
        "describeSObject": f"<sObjectType>{values['entity']}</sObjectType>",
        "describeSObjects": f"<sObjectType>{values['entity']}</sObjectType>",
        "describeLayout": f"<sObjectType>{values['entity']}</sObjectType>",
        "setPassword": f"<userId>{values['user']}</userId><password>another password 1</password>",
        "resetPassword": f"<userId>{values['user']}</userId>",
        "invalidateSessions": f"<sessionIds>{values['token']}</sessionIds>",
        "merge": (
            '<request><masterRecord><type xmlns="urn:sobject.partner.soap.sforce.com">Account</type>'
            f'<Id xmlns="urn:sobject.partner.soap.sforce.com">{values["account"]}</Id></masterRecord>'
            f"<recordToMergeIds>{values['account']}</recordToMergeIds></request>"
        ),
        "convertLead": (
            f"<leadConverts><leadId>{values['account']}</leadId><convertedStatus>x</convertedStatus></leadConverts>"
        ),
        "upsert": f"<externalIDFieldName>Id</externalIDFieldName>{record}",
    }
    window = (
        "<sObjectType>Account</sObjectType><startDate>2020-01-01T00:00:00Z</startDate>"
        "<endDate>2020-01-02T00:00:00Z</endDate>"
    )
    given |= {"getDeleted": window, "getUpdated": window, "create": record, "update": record}
    return {name: given.get(name, ids + record) for name in OPERATIONS if name != "logout"}


@pytest.mark.parametrize("operation", sorted(set(OPERATIONS) - {"logout"}))
def test_soap_operation_answers_for_the_other_org_as_for_nobody(pair: Pair, operation: str) -> None:
    foreign, unknown = (
        pair.a.soap(operation, soap_inner(values)[operation]) for values in (pair.foreign, pair.unknown)
    )
    assert_same(pair, foreign, unknown, operation)


def test_soap_address_of_another_org_is_refused_like_a_bad_session(pair: Pair) -> None:
    path = f"/services/Soap/u/62.0/{pair.b.org_id[:15]}"
    refused = pair.a.soap("getUserInfo", path=path)
    bad = soap(pair.a.server, "getUserInfo", token=pair.unknown["token"])
    assert refused.status_code == bad.status_code == 500
    assert "INVALID_SESSION_ID" in refused.text
    assert refused.text == bad.text
    assert pair.b.soap("getUserInfo", path=path).status_code == 200


def test_wsdl_at_the_soap_address_is_that_of_the_tokens_org(pair: Pair) -> None:
    path = "/services/Soap/c/62.0?wsdl"
    own, foreign = pair.b.call("GET", path), pair.a.call("GET", path)
    assert own.status_code == foreign.status_code == 200
    assert "Hidden__c" in own.text
    assert "Hidden__c" not in foreign.text


def test_counters_of_the_process_are_told_in_the_first_org_only(pair: Pair) -> None:
    first, further = (org.call("GET", f"{ADMIN}/metrics") for org in (pair.a, pair.b))
    assert first.status_code == further.status_code == 200
    assert "tidewire_events_total{" in first.text
    assert "tidewire_log_head" in further.text
    assert "tidewire_events_total" not in further.text


def test_logins_go_to_the_org_of_the_user(pair: Pair) -> None:
    before = dump(pair)
    a_token = soap_login(pair.a.server, DEV_USERNAME.upper(), pair.a.password)
    assert a_token.startswith(pair.a.org_id[:15] + "!")
    assert dump(pair) == before
    assert pair.b.token.startswith(pair.b.org_id[:15] + "!")


@pytest.mark.parametrize("username", [B_ADMIN, "nobody@beta.example"])
def test_password_grant_with_another_orgs_app_fails_as_for_an_unknown_user(pair: Pair, username: str) -> None:
    form = {
        "grant_type": "password",
        "client_id": DEV_CLIENT_ID,
        "client_secret": DEV_CLIENT_SECRET,
        "username": username,
        "password": pair.b.password,
    }
    answer = requests.post(f"{pair.a.server.http}/services/oauth2/token", data=form, timeout=120)
    assert answer.status_code == 400
    assert answer.json() == {"error": "invalid_grant", "error_description": "authentication failure"}


TOKEN_PLACES = ["header", "oauth", "session", "query", "cookie"]


@pytest.mark.parametrize("place", TOKEN_PLACES)
def test_forged_token_of_another_org_is_refused_wherever_it_stands(pair: Pair, place: str) -> None:
    def ask(token: str) -> requests.Response:
        headers = {
            "header": {"Authorization": f"Bearer {token}"},
            "oauth": {"Authorization": f"OAuth {token}"},
            "session": {"X-SFDC-Session": token},
            "query": {},
            "cookie": {"Cookie": f"sid={token}"},
        }[place]
        query = f"?oauth_token={token}" if place == "query" else ""
        return requests.get(f"{pair.a.server.http}{API}/sobjects{query}", headers=headers, timeout=120)

    own = pair.a.token
    swapped = pair.b.org_id[:15] + own[15:]  # a secret of org A under the name of org B
    answers = [ask(token) for token in (swapped, pair.unknown["token"], "00DTW0000zzzzzz!" + "x" * 96)]
    assert {answer.status_code for answer in answers} == {401}
    assert len({answer.text for answer in answers}) == 1


def test_identity_of_another_org_is_refused(pair: Pair) -> None:
    for values in (pair.foreign, pair.unknown):
        answer = pair.a.call("GET", f"/id/{values['org']}/{values['user']}")
        assert (answer.status_code, answer.text) == (403, "Wrong_Org")
    own = pair.b.call("GET", f"/id/{pair.b.org_id}/{pair.foreign['user']}")
    assert own.json()["organization_id"] == pair.b.org_id


@pytest.mark.parametrize("grant", ["authorization_code", "refresh_token", "device", "client_credentials"])
def test_grants_of_the_other_orgs_app_need_its_secret(pair: Pair, grant: str) -> None:
    answers = []
    for client_id, secret in ((B_CLIENT, DEV_CLIENT_SECRET), (DEV_CLIENT_ID, pair.b_secret)):
        form = {"grant_type": grant, "client_id": client_id, "client_secret": secret}
        code = pair.b.org_id[:15] + "." + "x" * 64
        form |= {
            "code": code,
            "refresh_token": code,
            "redirect_uri": "https://app.example.org/callback?kind=web",
        }
        answers.append(requests.post(f"{pair.a.server.http}/services/oauth2/token", data=form, timeout=120))
    for answer in answers:
        assert answer.status_code == 400
        assert_no_trace(pair, answer, grant)
        assert "access_token" not in answer.text


def test_other_orgs_token_is_unknown_to_this_orgs_app(pair: Pair) -> None:
    form = {"client_id": DEV_CLIENT_ID, "client_secret": DEV_CLIENT_SECRET}
    url = f"{pair.a.server.http}/services/oauth2/introspect"
    answers = [
        requests.post(url, data={**form, "token": token}, timeout=120)
        for token in (pair.foreign["token"], pair.unknown["token"])
    ]
    for answer in answers:
        assert_no_trace(pair, answer, "introspect")
        assert '"active":true' not in answer.text.replace(" ", "")
    assert answers[0].text == answers[1].text


# Bayeux


def bayeux(pair: Pair, messages: list[dict[str, object]], token: str | None = None) -> list[dict[str, Any]]:
    answer = requests.post(
        f"{pair.a.server.http}/cometd/62.0",
        json=messages,
        headers={"Authorization": f"Bearer {pair.a.token if token is None else token}"},
        timeout=120,
    )
    assert answer.status_code == 200, answer.text
    replies: list[dict[str, Any]] = answer.json()
    return replies


def shake_hands(pair: Pair, token: str) -> str:
    (reply,) = bayeux(
        pair,
        [{"channel": "/meta/handshake", "version": "1.0", "supportedConnectionTypes": ["long-polling"]}],
        token,
    )
    assert reply["successful"], reply
    return str(reply["clientId"])


@pytest.mark.parametrize("channel", ["connect", "subscribe", "unsubscribe", "disconnect"])
def test_client_id_of_another_org_is_an_unknown_client(pair: Pair, channel: str) -> None:
    client_id = shake_hands(pair, pair.b.token)
    replies = []
    for used in (client_id, "z" * len(client_id)):
        message: dict[str, object] = {
            "channel": f"/meta/{channel}",
            "clientId": used,
            "connectionType": "long-polling",
        }
        message |= {"subscription": "/topic/Accounts"} if "subscribe" in channel else {}
        (reply,) = bayeux(pair, [message])
        replies.append(json.dumps(reply).replace(used, "<client>"))
    assert replies[0] == replies[1]
    assert "403::Unknown client" in replies[0]
    (gone,) = bayeux(pair, [{"channel": "/meta/disconnect", "clientId": client_id}], pair.b.token)
    assert gone["successful"]


@pytest.mark.parametrize(
    "foreign, unknown",
    [
        ("/event/Only_Beta__e", "/event/Nobodys__e"),
        ("/data/Hidden__ChangeEvent", "/data/Nobodys__ChangeEvent"),
    ],
)
def test_channel_of_another_org_does_not_exist(pair: Pair, foreign: str, unknown: str) -> None:
    client_id = shake_hands(pair, pair.a.token)
    replies = []
    for channel in (foreign, unknown):
        (reply,) = bayeux(
            pair, [{"channel": "/meta/subscribe", "clientId": client_id, "subscription": channel}]
        )
        replies.append(json.dumps(reply).replace(channel, "<channel>"))
    assert replies[0] == replies[1]
    assert '"successful": false' in replies[0]
    bayeux(pair, [{"channel": "/meta/disconnect", "clientId": client_id}])


def test_same_channel_carries_the_own_orgs_events_only(pair: Pair) -> None:
    before = dump(pair)
    client_id = shake_hands(pair, pair.b.token)
    channels = ["/topic/Accounts", "/data/ChangeEvents", "/event/Shared__e"]
    for channel in channels:
        (reply,) = bayeux(
            pair,
            [{"channel": "/meta/subscribe", "clientId": client_id, "subscription": channel}],
            pair.b.token,
        )
        assert reply["successful"], reply
    pair.a.done("POST", f"{API}/sobjects/Account", {"Name": "Only for A"})
    pair.a.done("POST", f"{API}/sobjects/Shared__e", {"Text__c": "Only for A"})
    connect: dict[str, object] = {
        "channel": "/meta/connect",
        "clientId": client_id,
        "connectionType": "long-polling",
        "advice": {"timeout": 500},
    }
    assert [reply["channel"] for reply in bayeux(pair, [connect], pair.b.token)] == ["/meta/connect"]
    bayeux(pair, [{"channel": "/meta/disconnect", "clientId": client_id}], pair.b.token)
    assert_untouched(pair, before)


# Pub/Sub


def grpc_call(pair: Pair, rpc: str, request: Any, token: str, org_id: str) -> tuple[grpc.StatusCode, str]:
    """The status of a call, and everything that came with it, as text."""
    with grpc.insecure_channel(pair.a.server.grpc) as channel:
        metadata = call_metadata(token, pair.a.server.http, org_id)
        path = f"/eventbus.v1.PubSub/{rpc}"
        try:
            if rpc in UNARY_CALLS:
                answer = channel.unary_unary(path)(
                    request.SerializeToString(), metadata=metadata, timeout=120
                )
                return grpc.StatusCode.OK, repr(answer)
            answers = channel.stream_stream(path)(
                iter([request.SerializeToString()]), metadata=metadata, timeout=120
            )
            return grpc.StatusCode.OK, repr([answer for answer, _ in zip(answers, range(1), strict=False)])
        except grpc.RpcError as error:
            status: grpc.StatusCode = error.code()
            trailers = [t for t in error.trailing_metadata() or () if t[0] not in ("rpc-id", "x-request-id")]
            return status, f"{error.details()} {trailers}"


def grpc_request(rpc: str, values: dict[str, str]) -> Any:
    topic = f"/event/{values['event']}"
    match rpc:
        case "GetTopic":
            return pb.TopicRequest(topic_name=topic)
        case "GetSchema":
            return pb.SchemaRequest(schema_id=values["schema"])
        case "Publish" | "PublishStream":
            event = pb.ProducerEvent(id="1", schema_id=values["schema"], payload=SCHEMA_BYTES)
            return pb.PublishRequest(topic_name=topic, events=[event])
        case "Subscribe":
            return pb.FetchRequest(topic_name=topic, replay_preset=pb.EARLIEST, num_requested=1)
        case _:
            return pb.ManagedFetchRequest(subscription_id=values["session"], num_requested=1)


def scrubbed(pair: Pair, text: str) -> str:
    for kind, value in pair.foreign.items():
        text = text.replace(value, f"<{kind}>").replace(pair.unknown[kind], f"<{kind}>")
    return re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "<uuid>", text)


@pytest.mark.parametrize("rpc", [*UNARY_CALLS, *STREAM_CALLS])
def test_pubsub_call_answers_for_the_other_org_as_for_nobody(pair: Pair, rpc: str) -> None:
    answers = [
        grpc_call(pair, rpc, grpc_request(rpc, values), pair.a.token, pair.a.org_id)
        for values in (pair.foreign, pair.unknown)
    ]
    assert answers[0][0] is not grpc.StatusCode.OK
    assert SECRET_NAME not in answers[0][1]
    foreign, unknown = ((status, scrubbed(pair, text)) for status, text in answers)
    assert foreign == unknown


@pytest.mark.parametrize("rpc", [*UNARY_CALLS, *STREAM_CALLS])
def test_pubsub_call_with_token_and_tenant_of_two_orgs_is_refused(pair: Pair, rpc: str) -> None:
    request = grpc_request(rpc, pair.foreign)
    crossed = [
        grpc_call(pair, rpc, request, token, org_id)[0]
        for token, org_id in (
            (pair.a.token, pair.b.org_id),
            (pair.b.org_id[:15] + pair.a.token[15:], pair.b.org_id),
            (pair.unknown["token"], pair.a.org_id),
        )
    ]
    assert set(crossed) == {grpc.StatusCode.UNAUTHENTICATED}
