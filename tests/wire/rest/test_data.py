"""The data API against a live server: every resource, and what it refuses."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
import requests

from tidewire.config import DEV_PASSWORD
from tidewire.ids import make_id
from tidewire.testing import READER_USERNAME, ServerProcess

V = "/services/data/v59.0"


class Api(requests.Session):
    """A requests session that knows its server and its user."""

    def __init__(self, server: ServerProcess, token: str) -> None:
        super().__init__()
        self.base = server.http
        self.headers["Authorization"] = f"Bearer {token}"

    def go(self, method: str, path: str, **options: Any) -> requests.Response:
        return self.request(method, self.base + path, timeout=120, **options)

    def new(self, entity: str, **values: object) -> str:
        answer = self.go("POST", f"{V}/sobjects/{entity}", json=values)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])


@pytest.fixture
def api(server: ServerProcess, dev_token: str) -> Iterator[Api]:
    with Api(server, dev_token) as session:
        yield session


@pytest.fixture
def reader(server: ServerProcess) -> Iterator[Api]:
    with Api(server, server.login(READER_USERNAME, DEV_PASSWORD)) as session:
        yield session


def assert_refused(answer: requests.Response, status: int, code: str, message: str | None = None) -> None:
    assert answer.status_code == status, answer.text
    (entry,) = answer.json()
    assert entry["errorCode"] == code
    if message is not None:
        assert entry["message"] == message


def unique(name: str) -> str:
    return f"{name} {uuid.uuid4().hex[:12]}"


def test_versions_are_listed_without_signing_in(server: ServerProcess) -> None:
    for path in ("/services/data", "/services/data/"):
        listed = requests.get(server.http + path, timeout=120).json()
        assert listed[0]["version"] == "20.0"
        assert listed[-1] == {"label": "Summer '26", "url": "/services/data/v67.0", "version": "67.0"}


def test_version_resources_point_at_answers(api: Api) -> None:
    resources = api.go("GET", V).json()
    assert resources["sobjects"] == f"{V}/sobjects"
    assert resources["identity"].startswith(f"{api.base}/id/00D")
    assert api.go("GET", resources["sobjects"]).status_code == 200
    assert api.get(resources["identity"], timeout=120).status_code == 200


@pytest.mark.parametrize(
    "path", ["/services/data/v19.0/sobjects", "/services/data/v99.0", f"{V}//sobjects", f"{V}/x"]
)
def test_unknown_path_or_version_is_not_found(api: Api, path: str) -> None:
    assert_refused(api.go("GET", path), 404, "NOT_FOUND", "The requested resource does not exist")


def test_record_goes_through_its_life(api: Api) -> None:
    name = unique("Life")
    created = api.go("POST", f"{V}/sobjects/account/", json={"name": name, "NumberOfEmployees": "12"})
    assert created.status_code == 201
    record_id = created.json()["id"]
    assert created.json() == {"id": record_id, "success": True, "errors": []}
    url = f"{V}/sobjects/Account/{record_id}"
    assert created.headers["Location"] == url

    read = api.go("GET", url)
    record = read.json()
    assert next(iter(record)) == "attributes"
    assert record["attributes"] == {"type": "Account", "url": url}
    assert (record["Name"], record["NumberOfEmployees"], record["Phone"]) == (name, 12, None)
    assert record["CreatedDate"].endswith("+0000")
    assert int(read.headers["Tidewire-Position"]) > 0
    assert read.headers["Sforce-Limit-Info"].startswith("api-usage=")
    assert "no-store" in read.headers["Cache-Control"]
    assert read.headers["Content-Type"] == "application/json;charset=UTF-8"
    assert read.headers["Last-Modified"].endswith(" GMT")

    updated = api.go("PATCH", url, json={"Phone": "123"})
    assert (updated.status_code, updated.content) == (204, b"")
    short = f"{V}/sobjects/Account/{record_id[:15]}"
    some = api.go("GET", short, params={"fields": "phone,Name"}).json()
    assert some == {"attributes": record["attributes"], "Phone": "123", "Name": name, "Id": record_id}

    deleted = api.go("DELETE", url)
    assert (deleted.status_code, deleted.content) == (204, b"")
    for method in ("GET", "PATCH", "DELETE"):
        answer = api.go(method, url, json={} if method == "PATCH" else None)
        assert_refused(answer, 404, "ENTITY_IS_DELETED", "entity is deleted")
        assert answer.json()[0]["fields"] == []


def test_unknown_record_is_not_found_for_readers_and_a_bad_reference_for_writers(api: Api) -> None:
    url = f"{V}/sobjects/Account/{make_id('001', 61**8)}"
    assert_refused(api.go("GET", url), 404, "NOT_FOUND")
    assert_refused(api.go("DELETE", url), 404, "INVALID_CROSS_REFERENCE_KEY")
    assert_refused(api.go("PATCH", url, json={"Phone": "1"}), 404, "INVALID_CROSS_REFERENCE_KEY")


def test_text_in_place_of_an_id_is_taken_for_an_external_id_field(api: Api) -> None:
    message = "Provided external ID field does not exist or is not accessible: nonsense"
    for method in ("GET", "DELETE"):
        assert_refused(api.go(method, f"{V}/sobjects/Account/nonsense"), 404, "NOT_FOUND", message)


def test_unknown_object_in_a_path_is_not_found(api: Api) -> None:
    for path in ("Nope", "Nope/describe", "Nope/" + make_id("001", 1), "Nope/eventSchema"):
        assert_refused(api.go("GET", f"{V}/sobjects/{path}"), 404, "NOT_FOUND")
    assert_refused(api.go("POST", f"{V}/sobjects/Nope", json={}), 404, "NOT_FOUND")


def test_wrong_values_are_refused_with_their_fields(api: Api) -> None:
    def post(**values: object) -> requests.Response:
        return api.go("POST", f"{V}/sobjects/Account", json=values)

    missing = post(Phone="1")
    assert_refused(missing, 400, "REQUIRED_FIELD_MISSING", "Required fields are missing: [Name]")
    assert missing.json()[0]["fields"] == ["Name"]
    long = post(Name="x" * 256)
    assert_refused(long, 400, "STRING_TOO_LONG")
    assert long.json()[0]["fields"] == ["Name"]
    unknown = post(Name="x", Nope="y")
    assert_refused(unknown, 400, "INVALID_FIELD", "No such column 'Nope' on sobject of type Account")
    assert "fields" not in unknown.json()[0]
    assert_refused(post(Name="x", CreatedDate="2026-01-01T00:00:00Z"), 400, "INVALID_FIELD_FOR_INSERT_UPDATE")
    assert_refused(post(Name="x", NumberOfEmployees="many"), 400, "JSON_PARSER_ERROR")
    given = post(Name="x", Id=make_id("001", 1))
    message = "The Id field should not be specified in the sobject data."
    assert_refused(given, 400, "INVALID_FIELD", message)
    assert_refused(post(Name="x", ParentId="junk"), 400, "MALFORMED_ID")


def test_attributes_in_a_body_are_ignored(api: Api) -> None:
    assert api.new("Account", attributes={"type": "Account"}, Name=unique("Attr"))


@pytest.mark.parametrize("body", [b"{", b"[]", b"", b'{"Name": NaN}', b"\xff"])
def test_malformed_body_is_refused(api: Api, body: bytes) -> None:
    answer = api.go("POST", f"{V}/sobjects/Account", data=body, headers={"Content-Type": "application/json"})
    assert_refused(answer, 400, "JSON_PARSER_ERROR")


def test_media_type_that_no_resource_reads_is_refused(api: Api) -> None:
    form = api.go("POST", f"{V}/sobjects/Account", data={"Name": "x"})
    assert_refused(form, 415, "UNSUPPORTED_MEDIA_TYPE")


def test_wrong_method_is_refused_with_the_right_ones(api: Api) -> None:
    answer = api.go("PUT", f"{V}/sobjects/Account", json={})
    assert_refused(answer, 405, "METHOD_NOT_ALLOWED", "HTTP Method 'PUT' not allowed. Allowed are GET, POST")
    assert answer.headers["Allow"] == "GET, POST"


def test_post_can_stand_in_for_patch(api: Api) -> None:
    record_id = api.new("Account", Name=unique("Over"))
    url = f"{V}/sobjects/Account/{record_id}"
    assert api.go("POST", url + "?_HttpMethod=PATCH", json={"Phone": "9"}).status_code == 204
    assert api.go("GET", url).json()["Phone"] == "9"
    assert_refused(api.go("POST", url, json={}), 405, "METHOD_NOT_ALLOWED")


def test_missing_and_wrong_tokens_are_told_apart(server: ServerProcess) -> None:
    url = f"{server.http}{V}/sobjects"
    assert_refused(requests.get(url, timeout=120), 401, "INVALID_AUTH_HEADER", "INVALID_HEADER_TYPE")
    wrong = requests.get(url, headers={"Authorization": "Bearer 00D!nope"}, timeout=120)
    assert_refused(wrong, 401, "INVALID_SESSION_ID", "Session expired or invalid")


def test_query_answers_in_the_order_asked(api: Api) -> None:
    name = unique("Query")
    record_id = api.new("Account", Name=name, AnnualRevenue=50000)
    answer = api.go(
        "GET",
        f"{V}/query/",
        params={"q": f"SELECT annualrevenue, Name, Id FROM account WHERE Name = '{name}'"},
    )
    assert answer.json() == {
        "totalSize": 1,
        "done": True,
        "records": [
            {
                "attributes": {"type": "Account", "url": f"{V}/sobjects/Account/{record_id}"},
                "AnnualRevenue": 50000.0,
                "Name": name,
                "Id": record_id,
            }
        ],
    }
    assert b'"AnnualRevenue":50000.0' in answer.content
    assert int(answer.headers["Tidewire-Position"]) > 0


def test_query_position_rises_with_a_captured_change(api: Api) -> None:
    def position() -> int:
        answer = api.go("GET", f"{V}/query", params={"q": "SELECT Id FROM Account LIMIT 1"})
        return int(answer.headers["Tidewire-Position"])

    before = position()
    api.new("Account", Name=unique("Pos"))
    assert position() >= before


def test_query_attributes_have_a_url_although_the_id_is_not_selected(api: Api) -> None:
    name = unique("NoId")
    record_id = api.new("Account", Name=name)
    (record,) = api.go(
        "GET", f"{V}/query", params={"q": f"SELECT Name FROM Account WHERE Name = '{name}'"}
    ).json()["records"]
    assert record == {
        "attributes": {"type": "Account", "url": f"{V}/sobjects/Account/{record_id}"},
        "Name": name,
    }


def test_count_answers_with_a_total_and_no_records(api: Api) -> None:
    name = unique("Count")
    api.new("Account", Name=name)
    answer = api.go("GET", f"{V}/query", params={"q": f"SELECT COUNT() FROM Account WHERE Name = '{name}'"})
    assert answer.json() == {"totalSize": 1, "done": True, "records": []}


def test_query_all_sees_deleted_records(api: Api) -> None:
    name = unique("Bin")
    record_id = api.new("Account", Name=name)
    api.go("DELETE", f"{V}/sobjects/Account/{record_id}")
    soql = f"SELECT Id, IsDeleted FROM Account WHERE Name = '{name}'"
    assert api.go("GET", f"{V}/query", params={"q": soql}).json()["totalSize"] == 0
    (record,) = api.go("GET", f"{V}/queryAll", params={"q": soql}).json()["records"]
    assert record["IsDeleted"] is True


@pytest.mark.parametrize(
    "soql, code",
    [
        ("", "MALFORMED_QUERY"),
        ("SELECT Id FORM Account", "MALFORMED_QUERY"),
        ("SELECT Nope FROM Account", "INVALID_FIELD"),
        ("SELECT Id FROM Nope", "INVALID_TYPE"),
        ("SELECT Id FROM Account WHERE Name = 3999", "INVALID_FIELD"),
        ("SELECT Id FROM Account OFFSET 2001", "NUMBER_OUTSIDE_VALID_RANGE"),
    ],
)
def test_wrong_query_is_refused(api: Api, soql: str, code: str) -> None:
    answer = api.go("GET", f"{V}/query", params={"q": soql})
    assert_refused(answer, 400, code)
    assert "fields" not in answer.json()[0]


def test_large_answer_comes_in_pages(api: Api, reader: Api) -> None:
    mark = uuid.uuid4().hex[:12]
    for number in range(201):
        api.new("Account", Name=f"Page {mark} {number:03}")
    soql = f"SELECT Name FROM Account WHERE Name LIKE 'Page {mark}%' ORDER BY Name"
    small = {"Sforce-Query-Options": "batchSize=200"}
    first = api.go("GET", f"{V}/queryAll", params={"q": soql}, headers=small).json()
    assert (first["totalSize"], first["done"], len(first["records"])) == (201, False, 200)
    next_url = first["nextRecordsUrl"]
    assert next_url.startswith(f"{V}/queryAll/01g")
    assert next_url.endswith("-200")
    for resource in ("query", "queryAll"):  # clients resume under either, and may repeat a page
        last = api.go("GET", next_url.replace("queryAll", resource), headers=small).json()
        assert (last["totalSize"], last["done"]) == (201, True)
        assert [record["Name"] for record in last["records"]] == [f"Page {mark} 200"]
        assert "nextRecordsUrl" not in last
    assert_refused(reader.go("GET", next_url), 400, "INVALID_QUERY_LOCATOR", "invalid query locator")
    assert_refused(api.go("GET", f"{V}/query/01gnonsense"), 400, "INVALID_QUERY_LOCATOR")


def test_pretty_print_changes_only_the_blanks(api: Api) -> None:
    plain = api.go("GET", f"{V}/sobjects/Account/describe")
    pretty = api.go("GET", f"{V}/sobjects/Account/describe", headers={"X-PrettyPrint": "1"})
    assert b"\n  " in pretty.content
    assert b"\n" not in plain.content
    assert pretty.json() == plain.json()


def test_global_list_and_descriptions_agree(api: Api) -> None:
    listed = api.go("GET", f"{V}/sobjects").json()
    assert (listed["encoding"], listed["maxBatchSize"]) == ("UTF-8", 200)
    names = [entry["name"] for entry in listed["sobjects"]]
    assert {"Account", "Contact", "Opportunity", "PushTopic", "User"} <= set(names)
    for entry in listed["sobjects"]:
        assert api.go("GET", entry["urls"]["describe"]).json()["name"] == entry["name"]
        assert api.go("GET", entry["urls"]["sobject"]).json()["objectDescribe"] == entry


def test_every_described_field_can_be_queried(api: Api) -> None:
    fields = api.go("GET", f"{V}/sobjects/Account/describe").json()["fields"]
    soql = f"SELECT {', '.join(f['name'] for f in fields)} FROM Account LIMIT 1"
    api.new("Account", Name=unique("All"))
    (record,) = api.go("GET", f"{V}/query", params={"q": soql}).json()["records"]
    assert list(record) == ["attributes", *(f["name"] for f in fields)]


def test_restricted_user_sees_neither_hidden_fields_nor_hidden_objects(api: Api, reader: Api) -> None:
    name = unique("Hidden")
    record_id = api.new("Account", Name=name, Phone="12345", AnnualRevenue=7)
    seen = reader.go("GET", f"{V}/sobjects/Account/{record_id}").json()
    assert seen["Name"] == name
    assert not {"Phone", "AnnualRevenue"} & set(seen)
    described = {f["name"] for f in reader.go("GET", f"{V}/sobjects/Account/describe").json()["fields"]}
    assert not {"Phone", "AnnualRevenue"} & described
    listed = {entry["name"] for entry in reader.go("GET", f"{V}/sobjects").json()["sobjects"]}
    assert "Account" in listed
    assert "Opportunity" not in listed
    assert_refused(
        reader.go("GET", f"{V}/query", params={"q": "SELECT Phone FROM Account"}), 400, "INVALID_FIELD"
    )
    hidden_filter = "SELECT Id FROM Account WHERE Phone = '12345'"
    assert_refused(reader.go("GET", f"{V}/query", params={"q": hidden_filter}), 400, "INVALID_FIELD")
    assert_refused(
        reader.go("GET", f"{V}/query", params={"q": "SELECT Id FROM Opportunity"}), 400, "INVALID_TYPE"
    )
    assert_refused(reader.go("GET", f"{V}/sobjects/Opportunity/describe"), 404, "NOT_FOUND")
    hidden = reader.go("GET", f"{V}/sobjects/Account/{record_id}", params={"fields": "Phone"})
    assert_refused(hidden, 400, "INVALID_FIELD")
    assert_refused(
        reader.go("PATCH", f"{V}/sobjects/Account/{record_id}", json={"Phone": "1"}),
        403,
        "INSUFFICIENT_ACCESS_OR_READONLY",
    )


def test_limits_count_the_calls(api: Api) -> None:
    first = api.go("GET", f"{V}/limits").json()["DailyApiRequests"]
    second = api.go("GET", f"{V}/limits/").json()["DailyApiRequests"]
    assert second["Remaining"] < first["Remaining"]


def test_change_event_schema_is_served_by_name_and_id(api: Api) -> None:
    by_name = f"{V}/sobjects/AccountChangeEvent/eventSchema"
    compact = api.go("GET", by_name, params={"payloadFormat": "COMPACT"}).json()
    assert (compact["name"], compact["type"]) == ("AccountChangeEvent", "record")
    by_id = api.go(
        "GET", f"{V}/event/eventSchema/{compact['uuid']}", params={"payloadFormat": "COMPACT"}
    ).json()
    assert by_id == compact
    assert api.go("GET", by_name).json()["type"] == "expanded-record"
    assert_refused(api.go("GET", by_name, params={"payloadFormat": "x"}), 400, "INVALID_PARAMETER")
    assert_refused(api.go("GET", f"{V}/event/eventSchema/AAAAAAAAAAAAAAAAAAAAAA"), 404, "NOT_FOUND")
    assert_refused(
        api.go("GET", "/services/data/v39.0/sobjects/AccountChangeEvent/eventSchema"), 404, "NOT_FOUND"
    )


def test_definition_can_be_planned_and_a_wrong_one_is_refused(api: Api, reader: Api) -> None:
    url = "/services/tidewire/v1/apply"
    planned = api.go("POST", url + "?dryRun=true", json={})
    assert planned.status_code == 200, planned.text
    assert planned.json()["applied"] is False
    assert isinstance(planned.json()["plan"], list)
    assert_refused(api.go("POST", url, json={"no-such-section": 1}), 400, "INVALID_DEFINITION")
    assert_refused(reader.go("POST", url, json={}), 403, "INSUFFICIENT_ACCESS_OR_READONLY")
    assert_refused(requests.post(api.base + url, json={}, timeout=120), 401, "INVALID_AUTH_HEADER")


def test_event_is_published_described_and_hidden_from_strangers(api: Api, reader: Api) -> None:
    name = f"Rest_{uuid.uuid4().hex[:12]}__e"
    fields = {"Model__c": {"type": "Text", "length": 20}, "Level__c": {"type": "Number"}}
    document = {"events": {name: {"label": "Rest Event", "fields": fields}}}
    applied = api.go("POST", "/services/tidewire/v1/apply", json=document)
    assert applied.status_code == 200, applied.text
    assert applied.json()["applied"] is True

    answer = api.go("POST", f"{V}/sobjects/{name.lower()}", json={"Model__c": "M1", "Level__c": 0.5})
    assert answer.status_code == 201, answer.text
    body = answer.json()
    (entry,) = body["errors"]
    assert (body["success"], entry["statusCode"], entry["fields"]) == (True, "OPERATION_ENQUEUED", [])
    assert str(uuid.UUID(entry["message"])) == entry["message"]
    assert len(body["id"]) == 18
    assert_refused(api.go("POST", f"{V}/sobjects/{name}", json={"Nope__c": 1}), 400, "INVALID_FIELD")

    described = {f["name"] for f in api.go("GET", f"{V}/sobjects/{name}/describe").json()["fields"]}
    assert described == {"ReplayId", "EventUuid", "CreatedDate", "CreatedById", "Model__c", "Level__c"}
    compact = api.go("GET", f"{V}/sobjects/{name}/eventSchema?payloadFormat=COMPACT").json()
    assert [f["name"] for f in compact["fields"]] == ["CreatedDate", "CreatedById", "Model__c", "Level__c"]

    for path in (name, f"{name}/describe", f"{name}/eventSchema", "OpportunityChangeEvent/eventSchema"):
        assert_refused(reader.go("GET", f"{V}/sobjects/{path}"), 404, "NOT_FOUND")
    assert_refused(reader.go("GET", f"{V}/event/eventSchema/{compact['uuid']}"), 404, "NOT_FOUND")
    assert api.go("GET", f"{V}/event/eventSchema/{compact['uuid']}").status_code == 200
    assert_refused(reader.go("POST", f"{V}/sobjects/{name}", json={}), 404, "NOT_FOUND")
    assert name not in {entry["name"] for entry in reader.go("GET", f"{V}/sobjects").json()["sobjects"]}


def test_head_answers_like_get_without_a_body(api: Api) -> None:
    record_id = api.new("Account", Name=unique("Head"))
    answer = api.go("HEAD", f"{V}/sobjects/Account/{record_id}")
    assert (answer.status_code, answer.content) == (200, b"")


@pytest.mark.parametrize(
    "path", ["%00", "%ff", "Account/%00", "Account/" + "x" * 3000, "%2e%2e", "Account%2Fdescribe"]
)
def test_hostile_path_is_not_found(api: Api, path: str) -> None:
    assert_refused(api.go("GET", f"{V}/sobjects/{path}"), 404, "NOT_FOUND")
