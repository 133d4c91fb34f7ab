"""Layouts, tabs and menus, and unsupported calls."""

from __future__ import annotations

import pytest

from tests.orgs import READER, TestOrg
from tests.unit.frontends.soap.caller import sign_in
from tidewire.frontends.soap.unsupported_calls import UNSUPPORTED

ACCOUNT = "<sObjectType>Account</sObjectType>"
HIDDEN = "<sObjectType>Opportunity</sObjectType>"


async def test_compact_layout_shows_the_name(org: TestOrg) -> None:
    caller = await sign_in(org)
    (result,) = await caller.call("describeCompactLayouts", ACCOUNT)
    assert [child.tag for child in result] == [
        "compactLayouts",
        "defaultCompactLayoutId",
        "recordTypeCompactLayoutMappings",
    ]
    assert result.findtext("compactLayouts/fieldItems/layoutComponents/value") == "Name"
    names = "<sObjectTypes>Account</sObjectTypes><sObjectTypes>Case</sObjectTypes>"
    primary = await caller.call("describePrimaryCompactLayouts", names)
    assert [each.findtext("objectType") for each in primary] == ["Account", "Case"]
    assert primary[1].findtext("fieldItems/layoutComponents/value") == "CaseNumber"


async def test_search_layouts_come_in_the_order_of_the_call(org: TestOrg) -> None:
    caller = await sign_in(org)
    names = "<sObjectType>Lead</sObjectType><sObjectType>Account</sObjectType>"
    results = await caller.call("describeSearchLayouts", names)
    assert [each.findtext("objectType") for each in results] == ["Lead", "Account"]
    assert results[1].findtext("searchColumns/field") == "Account.Name"


async def test_approvals_themes_and_menus_are_empty(org: TestOrg) -> None:
    caller = await sign_in(org)
    for call, arguments in (
        ("describeApprovalLayout", ACCOUNT),
        ("describeTheme", ""),
        ("describeTheme", "<sobjectType>Account</sobjectType>"),
        ("describeAppMenu", "<appMenuType>Salesforce1</appMenuType>"),
    ):
        (result,) = await caller.call(call, arguments)
        assert len(result) == 0
    (both,) = await caller.call("describeGlobalTheme")
    assert [child.tag for child in both] == ["global", "theme"]
    assert len(both[0].findall("sobjects")) > 20
    code, _ = await caller.fault("describeAppMenu", "<appMenuType>Nope</appMenuType>")
    assert code == "sf:INVALID_OR_NULL_FOR_RESTRICTED_PICKLIST"


async def test_tabs_stand_with_and_without_their_set(org: TestOrg) -> None:
    caller = await sign_in(org)
    (tab_set,) = await caller.call("describeTabs")
    alone = await caller.call("describeAllTabs")
    assert [tab.findtext("name") for tab in tab_set.findall("tabs")] == [
        tab.findtext("name") for tab in alone
    ]


@pytest.mark.parametrize(
    "call, arguments",
    [
        ("describeCompactLayouts", HIDDEN),
        ("describePrimaryCompactLayouts", "<sObjectTypes>Opportunity</sObjectTypes>"),
        ("describeSearchLayouts", HIDDEN),
        ("describeApprovalLayout", HIDDEN),
        ("describeTheme", "<sobjectType>Opportunity</sobjectType>"),
    ],
)
async def test_hidden_object_has_no_layout(org: TestOrg, call: str, arguments: str) -> None:
    caller = await sign_in(org, username=READER)
    code, _ = await caller.fault(call, arguments)
    assert code == "sf:INVALID_TYPE"
    scopes = await caller.call("describeSearchScopeOrder")
    assert "Opportunity" not in [scope.findtext("name") for scope in scopes]


@pytest.mark.parametrize("name", sorted(UNSUPPORTED))
async def test_unsupported_call_fails_with_its_name(org: TestOrg, name: str) -> None:
    caller = await sign_in(org)
    code, text = await caller.fault(name)
    assert code == "sf:FUNCTIONALITY_NOT_ENABLED"
    assert text.startswith(f"FUNCTIONALITY_NOT_ENABLED: {name} is not available")
    caller.token = "nobody's"
    assert (await caller.fault(name))[0] == "sf:INVALID_SESSION_ID"
