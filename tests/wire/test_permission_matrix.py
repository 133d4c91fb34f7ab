"""Users by objects by records by fields: every protocol answers as one oracle, written here, does.

The oracle knows nothing of the server: it goes by the tables below, which say who has which rights, who
stands above whom, how an object is shared, and who shares what with whom.
"""

from __future__ import annotations

import csv
import io
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPConnection
from urllib.parse import quote, urlsplit
from xml.etree.ElementTree import Element, fromstring

import pytest

from tests.oauth import PASSWORD, Admin
from tests.running import API, Json
from tidewire.testing import ServerProcess

TIMEOUT_S = 120.0
PRIVATE, READ, WRITE, PART = "Mx_Private__c", "Mx_Read__c", "Mx_Write__c", "Mx_Part__c"
MODELS = {PRIVATE: "private", READ: "read", WRITE: "read_write"}
OBJECTS = (PRIVATE, READ, WRITE, PART)
FIELDS = ("Name", "Open__c", "Kept__c", "Hidden__c")
WORK = frozenset({"create", "read", "edit", "delete"})


@dataclass(frozen=True)
class Person:
    """What somebody may do with all four objects. `fields` says which can be seen, and whether edited."""

    rights: frozenset[str]
    fields: dict[str, bool]
    role: str = ""
    permissions: tuple[str, ...] = ()


_WORKER = {"Name": True, "Open__c": True, "Kept__c": False}
_READER = {"Name": True, "Open__c": False, "Kept__c": False}
_EVERY = dict.fromkeys(FIELDS, True)
PEOPLE = {
    "manager": Person(WORK, _WORKER, role="Mx_Top"),
    "seller": Person(WORK, _WORKER, role="Mx_Low"),
    "peer": Person(WORK, _WORKER, role="Mx_Low"),
    "outsider": Person(WORK, _WORKER),
    "reader": Person(frozenset({"read"}), _READER),
    "watcher": Person(frozenset({"read", "view_all"}), _READER),
    "master": Person(WORK | {"view_all", "modify_all"}, _WORKER),
    "auditor": Person(frozenset({"read"}), {"Name": True}, permissions=("ViewAllData",)),
    "nobody": Person(frozenset(), {}),
    "root": Person(WORK, _EVERY, permissions=("ModifyAllData",)),
}
BELOW = {"manager": {"seller", "peer"}}


@dataclass(frozen=True)
class Record:
    """A record of each object. `shared` is by person: Read or Edit."""

    owner: str
    shared: dict[str, str]


RECORDS = {
    "plain": Record("seller", {}),
    "lent": Record("seller", {"outsider": "Read"}),
    "open": Record("seller", {"outsider": "Edit", "reader": "Edit"}),
    "foreign": Record("outsider", {}),
    "offered": Record("outsider", {"peer": "Edit"}),
}


# the oracle


def reaches(name: str, entity: str, record: Record, level: str) -> bool:
    """Whether somebody with the rights for it may read, edit or delete this record."""
    person = PEOPLE[name]
    may_all = {"modify_all"} if level != "read" else {"modify_all", "view_all"}
    is_root = "ModifyAllData" in person.permissions
    if is_root or person.rights & may_all or (level == "read" and "ViewAllData" in person.permissions):
        return True
    if entity == PART:  # a part goes by its master, and whoever edits that may delete it
        return reaches(name, PRIVATE, record, "edit" if level == "delete" else level)
    if level in {READ: {"read"}, WRITE: {"read", "edit"}}.get(entity, set()):
        return True
    selves = {name} | BELOW.get(name, set())
    if record.owner in selves:
        return True
    wanted = {"read": {"Read", "Edit"}, "edit": {"Edit"}, "delete": set()}[level]
    return any(record.shared.get(each) in wanted for each in selves)


def sees(name: str, entity: str, record: Record) -> bool:
    return "read" in PEOPLE[name].rights and reaches(name, entity, record, "read")


def update_outcome(name: str, entity: str, record: Record, field: str) -> str:
    """What an update of one field comes to."""
    person = PEOPLE[name]
    if "read" not in person.rights:
        return "unknown"
    if "edit" not in person.rights:
        return "denied" if field in person.fields else "denied or no field"
    if field not in person.fields:
        return "no field"
    if not person.fields[field]:
        return "fixed"
    if not reaches(name, entity, record, "read"):
        return "unknown"
    return "done" if reaches(name, entity, record, "edit") else "denied"


CODES = {
    "NOT_FOUND": "unknown",
    "INVALID_TYPE": "unknown",
    "INVALID_CROSS_REFERENCE_KEY": "unknown",
    "INSUFFICIENT_ACCESS_OR_READONLY": "denied",
    "INVALID_FIELD": "no field",
    "INVALID_FIELD_FOR_INSERT_UPDATE": "fixed",
}


def agrees(outcome: str, expected: str) -> bool:
    return outcome == expected or outcome in expected.split(" or ")


# the server


class Wire:
    """One person's connection."""

    def __init__(self, server: ServerProcess, token: str) -> None:
        self._connection = HTTPConnection(urlsplit(server.http).netloc, timeout=TIMEOUT_S)
        self._token = token

    def send(
        self, method: str, path: str, body: bytes = b"", kind: str = "application/json"
    ) -> tuple[int, bytes]:
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": kind}
        self._connection.request(method, path, body or None, headers)
        response = self._connection.getresponse()
        return response.status, response.read()

    def json(self, method: str, path: str, value: Json = None) -> Json:
        """The answer, or the error code as a text."""
        status, body = self.send(method, path, b"" if value is None else json.dumps(value).encode())
        if status >= 400:
            return str(json.loads(body)[0]["errorCode"])
        return json.loads(body) if body else None

    def soap(self, operation: str, arguments: str) -> list[Element] | str:
        """The results, or the fault's code."""
        body = (
            '<e:Envelope xmlns:e="http://schemas.xmlsoap.org/soap/envelope/"'
            ' xmlns="urn:partner.soap.sforce.com" xmlns:s="urn:sobject.partner.soap.sforce.com">'
            f"<e:Header><SessionHeader><sessionId>{self._token}</sessionId></SessionHeader></e:Header>"
            f"<e:Body><{operation}>{arguments}</{operation}></e:Body></e:Envelope>"
        )
        status, answer = self.send("POST", "/services/Soap/u/59.0", body.encode(), "text/xml")
        root = fromstring(answer)
        for element in root.iter():
            element.tag = element.tag.rpartition("}")[2]
        if status != 200:
            return (root.findtext(".//faultcode") or "").rpartition(":")[2]
        return list(root[-1][0])

    def close(self) -> None:
        """Hang up; whoever calls again dials anew."""
        self._connection.close()


@dataclass(frozen=True)
class Matrix:
    """The people signed in, and the ids of the records by object and name."""

    wires: dict[str, Wire]
    ids: dict[tuple[str, str], str]

    def of(self, entity: str) -> list[tuple[str, Record, str]]:
        return [(name, record, self.ids[entity, name]) for name, record in RECORDS.items()]


def _definition() -> dict[str, object]:
    fields = {name: {"type": "Text", "length": 40} for name in FIELDS if name != "Name"}
    objects: dict[str, object] = {
        name: {"sharing": sharing, "fields": dict(fields)} for name, sharing in MODELS.items()
    }
    link = {"type": "MasterDetail", "references": PRIVATE, "child_relationship": "Mx_Parts"}
    master = {"Master__c": link}
    objects[PART] = {"fields": {**fields, **master}}
    sets = {
        f"Mx_{name}": {
            "permissions": ["ApiEnabled", *person.permissions],
            "objects": {o: sorted(person.rights) for o in OBJECTS} if person.rights else {},
            "fields": {
                o: {
                    f: "edit" if is_edited else "read"
                    for f, is_edited in person.fields.items()
                    if f != "Name"
                }
                for o in OBJECTS
                if person.fields
            },
        }
        for name, person in PEOPLE.items()
    }
    users = {
        f"mx_{name}@example.org": {
            "password": PASSWORD,
            "last_name": name.title(),
            "permission_sets": [f"Mx_{name}"],
            **({"role": person.role} if person.role else {}),
        }
        for name, person in PEOPLE.items()
    }
    roles = {"Mx_Top": {}, "Mx_Low": {"parent": "Mx_Top"}}
    return {"objects": objects, "roles": roles, "permission_sets": sets, "users": users}


@pytest.fixture(scope="session")
def kept_matrix(server: ServerProcess) -> Iterator[Matrix]:
    """Of the whole run, as the server is: a worker may come back to this module, and find its records there."""
    admin = Admin(server)
    admin.apply(**_definition())
    wires = {name: Wire(server, server.login(f"mx_{name}@example.org", PASSWORD)) for name in PEOPLE}
    user_ids = {name: admin.user_id(f"mx_{name}@example.org") for name in PEOPLE}
    root = wires["root"]
    ids: dict[tuple[str, str], str] = {}
    for entity in OBJECTS:
        for name, record in RECORDS.items():
            values: dict[str, object] = {"Name": name, "Open__c": "o", "Kept__c": "k", "Hidden__c": "h"}
            if entity == PART:
                values["Master__c"] = ids[PRIVATE, name]
            else:
                values["OwnerId"] = user_ids[record.owner]
            ids[entity, name] = root.json("POST", f"{API}/sobjects/{entity}", values)["id"]
            for person, level in record.shared.items():
                if entity == PRIVATE or (entity == READ and level == "Edit"):
                    share = {"ParentId": ids[entity, name], "UserOrGroupId": user_ids[person]}
                    path = f"{API}/sobjects/{entity.removesuffix('__c')}__Share"
                    assert root.json("POST", path, {**share, "AccessLevel": level})["success"]
    yield Matrix(wires, ids)
    for wire in wires.values():
        wire.close()


@pytest.fixture
def matrix(kept_matrix: Matrix) -> Matrix:
    for wire in kept_matrix.wires.values():
        wire.close()  # the server closes connections that were idle for long
    return kept_matrix


each_person = pytest.mark.parametrize("name", PEOPLE)
each_object = pytest.mark.parametrize("entity", OBJECTS)


@each_person
@each_object
def test_rest_read_agrees_with_the_oracle(matrix: Matrix, name: str, entity: str) -> None:
    for _, record, record_id in matrix.of(entity):
        answer = matrix.wires[name].json("GET", f"{API}/sobjects/{entity}/{record_id}")
        if sees(name, entity, record):
            assert {field for field in FIELDS if field in answer} == set(PEOPLE[name].fields)
        else:
            assert CODES[answer] == "unknown"


@each_person
@each_object
def test_queries_agree_with_the_oracle(matrix: Matrix, name: str, entity: str) -> None:
    wire = matrix.wires[name]
    seen = {record_id for _, record, record_id in matrix.of(entity) if sees(name, entity, record)}
    for field in ("Id", *FIELDS):
        soql = f"SELECT Id, {field} FROM {entity}" if field != "Id" else f"SELECT Id FROM {entity}"
        answer = wire.json("GET", f"{API}/query?q={quote(soql)}")
        soap = wire.soap("query", f"<queryString>{soql}</queryString>")
        if "read" not in PEOPLE[name].rights and "ViewAllData" not in PEOPLE[name].permissions:
            assert CODES[answer] == CODES[str(soap)] == "unknown"
        elif field != "Id" and field not in PEOPLE[name].fields:
            assert CODES[answer] == CODES[str(soap)] == "no field"
        else:
            assert {row["Id"] for row in answer["records"]} == seen
            assert not isinstance(soap, str)
            assert {row.findtext("Id") for row in soap[0].findall("records")} == seen


@each_person
def test_part_of_a_master_out_of_sight_tells_nothing_of_it(matrix: Matrix, name: str) -> None:
    if "read" not in PEOPLE[name].rights:
        return
    wire = matrix.wires[name]
    soql = f"SELECT Id, (SELECT Id FROM Mx_Parts__r) FROM {PRIVATE}"
    found = wire.json("GET", f"{API}/query?q={quote(soql)}")
    seen = sum(sees(name, PRIVATE, record) for record in RECORDS.values())
    assert found["totalSize"] == seen
    assert all(len(row["Mx_Parts__r"]["records"]) == 1 for row in found["records"])
    searched = f"FIND {{plain or lent or open or foreign or offered}} IN NAME FIELDS RETURNING {PRIVATE}(Id)"
    hits = wire.json("GET", f"{API}/search?q={quote(searched)}")
    assert len(hits["searchRecords"]) == seen


@each_person
@each_object
def test_soap_retrieve_agrees_with_the_oracle(matrix: Matrix, name: str, entity: str) -> None:
    ids = "".join(f"<ids>{record_id}</ids>" for _, _, record_id in matrix.of(entity))
    arguments = f"<fieldList>Id</fieldList><sObjectType>{entity}</sObjectType>{ids}"
    answer = matrix.wires[name].soap("retrieve", arguments)
    if "read" not in PEOPLE[name].rights:
        assert CODES[str(answer)] == "unknown"
        return
    found = {row.findtext("Id") for row in answer if not isinstance(row, str)} - {None}
    assert found == {record_id for _, record, record_id in matrix.of(entity) if sees(name, entity, record)}


@each_person
@each_object
def test_describe_agrees_with_the_oracle(matrix: Matrix, name: str, entity: str) -> None:
    person = PEOPLE[name]
    answer = matrix.wires[name].json("GET", f"{API}/sobjects/{entity}/describe")
    if "read" not in person.rights:
        assert CODES[answer] == "unknown"
        return
    expected = {"createable": "create", "updateable": "edit", "deletable": "delete"}
    assert {key: answer[key] for key in expected} == {key: r in person.rights for key, r in expected.items()}
    may_write = bool(person.rights & {"create", "edit"})
    told = {f["name"]: f["updateable"] for f in answer["fields"] if f["name"] in FIELDS}
    assert told == {field: is_edited and may_write for field, is_edited in person.fields.items()}


@each_person
@each_object
def test_updates_agree_with_the_oracle(matrix: Matrix, name: str, entity: str) -> None:
    wire = matrix.wires[name]
    for record_name, record, record_id in matrix.of(entity):
        for field in FIELDS:
            expected = update_outcome(name, entity, record, field)
            value = record_name if field == "Name" else "x"
            code = wire.json("PATCH", f"{API}/sobjects/{entity}/{record_id}", {field: value})
            assert agrees(CODES[code] if code else "done", expected), (record_name, field)
            sobject = f"<s:type>{entity}</s:type><s:Id>{record_id}</s:Id><s:{field}>{value}</s:{field}>"
            result = wire.soap("update", f"<sObjects>{sobject}</sObjects>")
            code = result if isinstance(result, str) else result[0].findtext("errors/statusCode")
            assert agrees(CODES[code] if code else "done", expected), (record_name, field)


@pytest.mark.parametrize("name", ["manager", "seller", "peer", "outsider", "reader", "master"])
@each_object
def test_bulk_updates_agree_with_the_oracle(matrix: Matrix, name: str, entity: str) -> None:
    wire = matrix.wires[name]
    rows = "".join(f"{record_id},x\n" for _, _, record_id in matrix.of(entity))
    job = wire.json(
        "POST", f"{API}/jobs/ingest", {"object": entity, "operation": "update", "lineEnding": "LF"}
    )
    if isinstance(job, str):
        assert "edit" not in PEOPLE[name].rights
        return
    path = f"{API}/jobs/ingest/{job['id']}"
    wire.send("PUT", f"{path}/batches", f"Id,Open__c\n{rows}".encode(), "text/csv")
    wire.json("PATCH", path, {"state": "UploadComplete"})
    deadline = time.monotonic() + TIMEOUT_S
    while wire.json("GET", path)["state"] not in ("JobComplete", "Failed"):
        assert time.monotonic() < deadline
    _, body = wire.send("GET", f"{path}/failedResults")
    failed = {r["Id"]: r["sf__Error"].partition(":")[0] for r in csv.DictReader(io.StringIO(body.decode()))}
    for record_name, record, record_id in matrix.of(entity):
        code = failed.get(record_id)
        outcome = update_outcome(name, entity, record, "Open__c")
        assert agrees(CODES[code] if code else "done", outcome), record_name


@each_person
@each_object
def test_deletes_of_what_may_not_be_deleted_agree_with_the_oracle(
    matrix: Matrix, name: str, entity: str
) -> None:
    wire = matrix.wires[name]
    for record_name, record, record_id in matrix.of(entity):
        if "read" not in PEOPLE[name].rights:
            expected = "unknown"
        elif "delete" not in PEOPLE[name].rights:
            expected = "denied"
        elif not reaches(name, entity, record, "read"):
            expected = "unknown"
        elif reaches(name, entity, record, "delete"):
            continue
        else:
            expected = "denied"
        assert CODES[wire.json("DELETE", f"{API}/sobjects/{entity}/{record_id}")] == expected, record_name
