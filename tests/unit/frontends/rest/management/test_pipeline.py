"""The pipeline's resources and who may read them."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.orgs import READER, TestOrg
from tidewire.config import DEV_PASSWORD, DEV_USERNAME
from tidewire.errors import AccessDenied, SessionInvalid
from tidewire.frontends.rest.calls import ApiCall
from tidewire.frontends.rest.management.calls import Services
from tidewire.frontends.rest.management.pipeline import show_history
from tidewire.matching.log_ranges import LogRanges
from tidewire.server.core_http import CoreHttp
from tidewire.transport.http import HttpRequest

ID = "001000000000001AAA"


async def ask(
    org: TestOrg, path: str, *, user: str = DEV_USERNAME, lake: str = "", method: str = "GET"
) -> tuple[int, Any]:
    http = CoreHttp(org.core, org.clock, is_dev=True, is_first=True, pipeline_dir=lake)
    token = (await org.core.logins.login(user, DEV_PASSWORD, "test")).token
    request = HttpRequest(
        method, f"/services/tidewire/v1/pipeline{path}", {"authorization": f"Bearer {token}"}
    )
    answer = await http.answer(request)
    return answer.status, json.loads(answer.body)


async def test_server_without_a_pipeline_says_how_to_configure_one(org: TestOrg) -> None:
    status, body = await ask(org, "")
    assert (status, body["state"], body["status"]) == (200, "not_set", None)
    assert "--pipeline-dir" in body["message"]


async def test_lake_is_shown_to_who_may_view_all_data(org: TestOrg, tmp_path: Path) -> None:
    (tmp_path / "status.json").write_text('{"archived": 3}')
    status, body = await ask(org, "", lake=str(tmp_path))
    assert (status, body["status"]) == (200, {"archived": 3})


@pytest.mark.parametrize("path", ["", f"/history?entity=Account&id={ID}"])
async def test_lake_requires_view_all_data(org: TestOrg, tmp_path: Path, path: str) -> None:
    status, body = await ask(org, path, user=READER, lake=str(tmp_path))
    assert (status, body[0]["errorCode"]) == (403, "INSUFFICIENT_ACCESS_OR_READONLY")


@pytest.mark.parametrize("path", ["/history", "/history?entity=Account", "/history?entity=Account&id=5"])
async def test_history_without_a_record_is_rejected(org: TestOrg, tmp_path: Path, path: str) -> None:
    status, body = await ask(org, path, lake=str(tmp_path))
    assert (status, body[0]["errorCode"]) == (400, "REQUIRED_FIELD_MISSING")
    assert body[0]["message"].endswith("the id of a record, 15 or 18 characters")


@pytest.mark.parametrize("path", ["/more", f"/history?entity=Account&id={ID}", "/history/more"])
async def test_missing_resource_is_not_found(org: TestOrg, tmp_path: Path, path: str) -> None:
    assert (await ask(org, path, lake=str(tmp_path)))[0] == 404


async def test_resource_can_only_be_read(org: TestOrg) -> None:
    assert (await ask(org, "", method="POST"))[0] == 405


def keep_history(lake: Path, entity: str, record_id: str, values: dict[str, Any], **more: str) -> None:
    row = {"record_id": record_id, "replay_id": 1, "changed": list(values), "values_json": json.dumps(values)}
    write_deltalake(str(lake / "history" / entity), pa.Table.from_pylist([row | more]))


async def view_all(org: TestOrg, *more: str, fields: Mapping[str, object] | None = None) -> None:
    """Let the reader view all data, have the further permissions, and see these fields."""
    rights = {"permissions": ["ViewAllData", *more], "fields": fields or {}}
    await org.apply(permission_sets={"Account_Reader": rights})


async def test_history_is_redacted_to_the_fields_its_reader_may_see(org: TestOrg, tmp_path: Path) -> None:
    await org.apply(settings={"person_accounts": True})
    await view_all(org, fields={"Account": {"Fax": "read", "BillingCity": "read", "LastName": "read"}})
    hidden = {"Phone": "1", "BillingAddress_Street": "Lane", "Name_FirstName": "Ann", "Gone__c": "x"}
    shown = {"Name": "Acme", "Name_LastName": "Smith", "Fax": "2", "BillingAddress_City": "Ulm"}
    enriched = json.dumps({"AnnualRevenue": 5, "Fax": "2"})
    keep_history(tmp_path, "Account", ID, hidden | shown, enriched_json=enriched)
    path = f"/history?entity=Account&id={ID}"

    status, body = await ask(org, path, user=READER, lake=str(tmp_path))
    (row,) = body["changes"]
    assert status == 200
    assert json.loads(row["values_json"]) == shown
    assert row["changed"] == list(shown)
    assert json.loads(row["enriched_json"]) == {"Fax": "2"}

    (row,) = (await ask(org, path, lake=str(tmp_path)))[1]["changes"]
    assert json.loads(row["values_json"]) == hidden | shown
    assert (row["changed"], row["enriched_json"]) == ([*hidden, *shown], enriched)


async def test_history_of_users_needs_view_all_users(org: TestOrg, tmp_path: Path) -> None:
    keep_history(tmp_path, "User", org.admin.user_id, {"Username": "x"})
    path = f"/history?entity=User&id={org.admin.user_id}"
    await view_all(org)
    status, body = await ask(org, path, user=READER, lake=str(tmp_path))
    assert (status, body[0]["errorCode"]) == (403, "INSUFFICIENT_ACCESS_OR_READONLY")
    await view_all(org, "ViewAllUsers")
    assert (await ask(org, path, user=READER, lake=str(tmp_path)))[0] == 200


async def test_history_of_an_object_that_is_gone_is_for_administrators(org: TestOrg, tmp_path: Path) -> None:
    keep_history(tmp_path, "Gone__c", ID, {"Name": "x"})
    path = f"/history?entity=Gone__c&id={ID}"
    await view_all(org)
    assert (await ask(org, path, user=READER, lake=str(tmp_path)))[0] == 404
    assert (await ask(org, path, lake=str(tmp_path)))[0] == 200


class SlowLake:
    """A lake during whose reads something happens."""

    def __init__(self, happen: Callable[[], Awaitable[object]]) -> None:
        self._happen = happen

    async def status(self) -> Mapping[str, object]:
        await self._happen()
        return {"state": "running", "message": "", "status": {}}

    async def history(self, entity: str, record_id: str) -> Mapping[str, object]:
        await self._happen()
        return {"entity": entity, "id": record_id, "changes": [], "at_most": 200}


async def ask_slow(org: TestOrg, token: str, lake: SlowLake) -> None:
    principal = await org.core.logins.sessions.authenticate(token)
    target = f"/services/tidewire/v1/pipeline/history?entity=Account&id={ID}"
    request = HttpRequest("GET", target, {"authorization": f"Bearer {token}"})
    core = org.core
    ranges = LogRanges(core.gate, core.log, core.capture)
    services = Services(org.gate, core.logins, core.oauth.apps, core.streams, ranges, lake)
    await show_history(services, ApiCall(request, 0, principal))


async def test_reader_signed_out_while_the_lake_is_read_is_rejected(org: TestOrg) -> None:
    login = await org.core.logins.login(DEV_USERNAME, DEV_PASSWORD, "test")
    with pytest.raises(SessionInvalid):
        await ask_slow(
            org, login.token, SlowLake(lambda: org.core.logins.sessions.log_out(login.principal.session_id))
        )


async def test_right_revoked_while_the_lake_is_read_counts(org: TestOrg) -> None:
    await view_all(org)
    token = (await org.core.logins.login(READER, DEV_PASSWORD, "test")).token
    with pytest.raises(AccessDenied):
        await ask_slow(org, token, SlowLake(lambda: org.apply(permission_sets={"Account_Reader": {}})))


async def test_history_is_rejected_when_the_apis_are_switched_off(org: TestOrg) -> None:
    token = (await org.core.logins.login(DEV_USERNAME, DEV_PASSWORD, "test")).token
    await org.apply(settings={"api_enabled": False})
    with pytest.raises(AccessDenied):
        await ask_slow(org, token, SlowLake(_nothing))


async def _nothing() -> None:
    """The lake is read undisturbed."""


async def test_further_org_is_not_shown_the_lake(org: TestOrg, tmp_path: Path) -> None:
    (tmp_path / "status.json").write_text("{}")
    http = CoreHttp(org.core, org.clock, is_dev=True, is_first=False, pipeline_dir=str(tmp_path))
    token = (await org.core.logins.login(DEV_USERNAME, DEV_PASSWORD, "test")).token
    headers = {"authorization": f"Bearer {token}"}
    answer = await http.answer(HttpRequest("GET", "/services/tidewire/v1/pipeline", headers))
    assert json.loads(answer.body)["state"] == "not_set"
