"""Names that omit the default namespace in SOAP calls."""

from __future__ import annotations

import pytest

from tests.orgs import TestOrg
from tests.unit.frontends.soap.caller import sign_in
from tidewire.frontends.soap.wire import ENTERPRISE, PARTNER, Dialect

pytestmark = pytest.mark.anyio

HEADER = "<CallOptions><client>tests</client><defaultNamespace>arena</defaultNamespace></CallOptions>"


@pytest.mark.parametrize("dialect", [PARTNER, ENTERPRISE])
async def test_calls_omit_the_default_namespace(org: TestOrg, dialect: Dialect) -> None:
    await org.apply(
        objects={
            "arena__Bot__c": {
                "name": {"type": "Text"},
                "fields": {
                    "arena__Power__c": {"type": "Number"},
                    "arena__Key__c": {"type": "Text", "length": 20, "external_id": True},
                },
            }
        }
    )
    caller = await sign_in(org, dialect)
    is_partner = dialect is PARTNER
    kind = "" if is_partner else ' xsi:type="sf:Bot__c"'
    typed = "<sf:type>Bot__c</sf:type>" if is_partner else ""
    record = f"<sObjects{kind}>{typed}<sf:Key__c>k</sf:Key__c><sf:Power__c>4</sf:Power__c></sObjects>"
    (saved,) = await caller.call(
        "upsert", f"<externalIDFieldName>Key__c</externalIDFieldName>{record}", HEADER
    )
    assert saved.findtext("success") == "true"
    asked = "<queryString>SELECT Power__c FROM Bot__c WHERE Key__c = 'k'</queryString>"
    (found,) = await caller.call("query", asked, HEADER)
    assert found.findtext("records/Power__c") == "4.0"
    arguments = f"<fieldList>Id, Power__c</fieldList><sObjectType>Bot__c</sObjectType><ids>{saved.findtext('id')}</ids>"
    (read,) = await caller.call("retrieve", arguments, HEADER)
    assert read.findtext("Power__c") == "4.0"
    fault, _ = await caller.fault("query", asked)
    assert fault == "sf:INVALID_TYPE"
    await org.gate.create(org.call, "arena__Bot__c", {"Name": "Power__c", "arena__Power__c": 8})
    sosl = "FIND {Power__c} IN NAME FIELDS RETURNING Bot__c(Power__c)"
    (searched,) = await caller.call("search", f"<searchString>{sosl}</searchString>", HEADER)
    assert searched.findtext("searchRecords/record/Power__c") == "8.0"
