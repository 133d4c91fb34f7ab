"""Collections over the wire: several records, one transaction."""

from __future__ import annotations

from typing import Any

import pytest
import requests

from tidewire.testing import ServerProcess

PATH = "/services/data/v60.0/composite/sobjects"


@pytest.fixture
def session(server: ServerProcess, dev_token: str) -> requests.Session:
    opened = requests.Session()
    opened.trust_env = False
    opened.headers["Authorization"] = f"Bearer {dev_token}"
    return opened


def account(**fields: object) -> dict[str, object]:
    return {"attributes": {"type": "Account"}, **fields}


def post(session: requests.Session, server: ServerProcess, method: str, **body: object) -> Any:
    answer = session.request(method, server.http + PATH, json=body)
    return answer.status_code, answer.json()


def test_records_are_made_in_order_and_changed_and_deleted_together(
    session: requests.Session, server: ServerProcess
) -> None:
    status, made = post(session, server, "POST", records=[account(Name="C1"), account(Name="C2")])
    assert status == 200
    assert [r["success"] for r in made] == [True, True]
    ids = [r["id"] for r in made]
    changes = [account(id=i, Phone="7") for i in ids]
    assert post(session, server, "PATCH", records=changes)[1] == [
        {"id": i, "success": True, "errors": []} for i in ids
    ]
    gone = session.delete(server.http + PATH, params={"ids": ",".join(ids), "allOrNone": "true"})
    assert [r["success"] for r in gone.json()] == [True, True]


def test_one_failure_undoes_all_when_asked(session: requests.Session, server: ServerProcess) -> None:
    records = [account(Name="Undone"), account()]
    _, results = post(session, server, "POST", allOrNone=True, records=records)
    assert results == [
        {
            "success": False,
            "errors": [
                {
                    "statusCode": "ALL_OR_NONE_OPERATION_ROLLED_BACK",
                    "message": "Record rolled back because not all records were valid and the request was"
                    " using AllOrNone header",
                    "fields": [],
                }
            ],
        },
        {
            "success": False,
            "errors": [
                {
                    "statusCode": "REQUIRED_FIELD_MISSING",
                    "message": "Required fields are missing: [Name]",
                    "fields": ["Name"],
                }
            ],
        },
    ]


def test_each_record_stands_alone_otherwise(session: requests.Session, server: ServerProcess) -> None:
    _, results = post(session, server, "POST", records=[account(Name="Kept"), account()])
    assert [r["success"] for r in results] == [True, False]


@pytest.mark.parametrize(
    "body",
    [{}, {"records": []}, {"records": [{"Name": "x"}]}, {"records": [1]}, {"records": [{}] * 201}],
)
def test_malformed_collection_is_refused(
    session: requests.Session, server: ServerProcess, body: dict[str, object]
) -> None:
    assert post(session, server, "POST", **body)[0] == 400


def test_update_without_id_is_the_rows_own_error(session: requests.Session, server: ServerProcess) -> None:
    _, (result,) = post(session, server, "PATCH", records=[account(Name="x")])
    assert result["success"] is False
