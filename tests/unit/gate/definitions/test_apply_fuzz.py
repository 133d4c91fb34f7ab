"""Any document at all is applied or rejected with one of our errors."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.orgs import TestOrg, open_org
from tidewire.errors import DefinitionInvalid, PlatformError
from tidewire.gate.definitions.document import check_document

_LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(
        ["Account", "Tier__c", "Text", "Picklist", "edit", "Open", "SELECT Id FROM Account", "\ud800"]
    ),
)
_KEYS = st.sampled_from(
    [
        "objects",
        "events",
        "capture",
        "permission_sets",
        "users",
        "roles",
        "profiles",
        "groups",
        "queues",
        "push_topics",
        "connected_apps",
        "settings",
        "remove",
        "Account",
        "Opportunity",
        "StageName",
        "Rating",
        "Thing__c",
        "Order__e",
        "Tier__c",
        "Status__c",
        "Amount__c",
        "label",
        "plural",
        "name",
        "fields",
        "record_types",
        "sharing",
        "sharing_rules",
        "criteria",
        "share_with",
        "owned_by",
        "members",
        "parent",
        "value",
        "closed",
        "probability",
        "scopes",
        "flows",
        "cors_allowed_origins",
        "fiscal_year_start_month",
        "type",
        "values",
        "length",
        "precision",
        "scale",
        "rename",
        "replace",
        "deactivate",
        "default",
        "required",
        "unique",
        "references",
        "restricted",
        "permissions",
        "password",
        "active",
        "profile",
        "first_name",
        "secret",
        "Query",
        "*",
        "session_timeout_s",
        "trusted_ip_ranges",
        "https_required",
        "formula",
        "roll_up",
        "master_detail",
        "start",
        "format",
    ]
)
_ANYTHING = st.recursive(
    _LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=12,
)
_TYPES = st.sampled_from(
    [
        "Text",
        "TextArea",
        "LongTextArea",
        "RichTextArea",
        "Email",
        "Phone",
        "Url",
        "Number",
        "Currency",
        "Percent",
        "Checkbox",
        "Date",
        "DateTime",
        "Time",
        "Picklist",
        "MultiselectPicklist",
        "Lookup",
        "AutoNumber",
        "Geolocation",
        "Nonsense",
    ]
)
_NAMES = st.sampled_from(["Tier__c", "Status__c", "Amount__c", "Level__c"])
_OWN = st.sampled_from(["Thing__c", "Other__c"])
_WORDS = st.sampled_from(["a", "b", "c", "", " a", "a;b"])
_CHOICES = st.lists(st.sampled_from("abcd"), min_size=1, max_size=3, unique=True)
_PARTS = {
    "label": st.text(max_size=5),
    "length": st.integers(-1, 300),
    "precision": st.integers(0, 20),
    "scale": st.integers(0, 5),
    "required": st.booleans(),
    "unique": st.booleans(),
    "case_sensitive": st.booleans(),
    "default": st.one_of(_WORDS, st.booleans(), st.integers(-5, 5), st.just("2026-01-02")),
    "values": _CHOICES,
    "restricted": st.booleans(),
    "references": st.sampled_from(["Account", "thing__c", "Nope"]),
    "rename": st.dictionaries(_WORDS, _WORDS, max_size=1),
    "replace": st.dictionaries(_WORDS, _WORDS, max_size=1),
    "deactivate": st.lists(_WORDS, max_size=1),
    "formula": st.sampled_from(["LEN(Name)", "Name", "Tier__c", "Amount__c + 1", "("]),
}
_LISTED = frozenset({"Picklist", "MultiselectPicklist"})


@st.composite
def _fields(draw: st.DrawFn) -> dict[str, object]:
    """A field that is more often right than wrong."""
    kind = draw(_TYPES)
    spec: dict[str, object] = {"type": kind}
    if kind in _LISTED:
        spec["values"] = draw(_CHOICES)
    if kind == "Lookup":
        spec["references"] = draw(_PARTS["references"])
    for key in draw(st.lists(st.sampled_from(sorted(_PARTS)), max_size=2)):
        spec[key] = draw(_PARTS[key])
    return spec


_STANDARD_VALUES = st.lists(
    st.sampled_from(["Hot", "Icy", "Prospecting"])
    | st.fixed_dictionaries(
        {"value": st.sampled_from(["Icy", "Shaken"])},
        optional={"label": st.sampled_from(["L", ""]), "closed": st.booleans(), "won": st.booleans()},
    ),
    max_size=2,
)
_STANDARD_FIELD = st.fixed_dictionaries(
    {},
    optional={
        "values": _STANDARD_VALUES,
        "rename": st.dictionaries(
            st.sampled_from(["Hot", "Icy"]), st.sampled_from(["Warm", "Red"]), max_size=1
        ),
        "replace": st.dictionaries(st.sampled_from(["Cold", "Icy"]), st.sampled_from(["Warm"]), max_size=1),
        "deactivate": st.lists(st.sampled_from(["Hot", "Closed Won", "Closed Lost"]), max_size=2),
        "default": st.sampled_from(["Hot", "Icy", None]),
        "help_text": st.text(max_size=3),
    },
)
_PEOPLE = st.fixed_dictionaries(
    {},
    optional={
        "roles": st.dictionaries(
            st.sampled_from("AB"),
            st.fixed_dictionaries({}, optional={"parent": st.sampled_from(["A", "B", ""])}),
        ),
        "groups": st.dictionaries(
            st.sampled_from("GH"),
            st.fixed_dictionaries(
                {},
                optional={
                    "members": st.lists(
                        st.sampled_from(["everyone", "role:A", "group:G", "reader@tidewire.local"]),
                        max_size=2,
                    )
                },
            ),
        ),
        "objects": st.fixed_dictionaries(
            {},
            optional={
                "Account": st.fixed_dictionaries(
                    {"fields": st.fixed_dictionaries({"Rating": _STANDARD_FIELD})},
                    optional={
                        "sharing": st.sampled_from(["private", "read"]),
                        "sharing_rules": st.fixed_dictionaries(
                            {
                                "R": st.fixed_dictionaries(
                                    {"share_with": st.sampled_from(["group:G", "role:A", "everyone"])},
                                    optional={"owned_by": st.just("role:B"), "criteria": st.just([])},
                                )
                            }
                        ),
                    },
                ),
                "Opportunity": st.fixed_dictionaries(
                    {"fields": st.fixed_dictionaries({"StageName": _STANDARD_FIELD})}
                ),
            },
        ),
        "remove": st.fixed_dictionaries(
            {},
            optional={
                "roles": st.lists(st.sampled_from("AB"), max_size=1),
                "groups": st.lists(st.sampled_from("GH"), max_size=1),
                "sharing_rules": st.just(["Account.R"]),
            },
        ),
    },
)
_OBJECT = st.fixed_dictionaries(
    {"fields": st.dictionaries(_NAMES, _fields(), max_size=2)},
    optional={"label": st.text(max_size=5), "capture": st.booleans()},
)
_SHAPED = st.fixed_dictionaries(
    {"objects": st.dictionaries(st.just("Account") | _OWN, _OBJECT, min_size=1, max_size=2)},
    optional={
        "settings": st.fixed_dictionaries({}, optional={"person_accounts": st.booleans()}),
        "users": st.dictionaries(
            st.sampled_from(["a@example.org", "b", ""]),
            st.dictionaries(_KEYS, _LEAVES, max_size=1),
            max_size=1,
        ),
        "remove": st.fixed_dictionaries(
            {},
            optional={
                "objects": st.lists(_OWN, max_size=1),
                "fields": st.lists(st.builds("Account.{}".format, _NAMES), max_size=2),
            },
        ),
    },
)
_WILD = st.dictionaries(_KEYS, _ANYTHING, max_size=4)


@pytest.fixture
def apply(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Apply documents, one after the other, to one org that keeps what they bring."""
    with asyncio.Runner() as runner:
        opened = open_org(tmp_path_factory.mktemp("org"))
        org: TestOrg = runner.run(opened.__aenter__())

        def run(document: dict[str, object]) -> None:
            runner.run(_apply_twice(org, document))

        yield run
        runner.run(opened.__aexit__(None, None, None))


async def _apply_twice(org: TestOrg, document: dict[str, object]) -> None:
    try:
        shown = await org.gate.apply_definition(org.call, document, dry_run=True)
        assert await org.apply(**document) == shown.lines
        assert await org.apply(**document) == []
        await org.make_account(Tier__c="a", Rating="Hot")
    except PlatformError as error:
        assert error.code != "internal", document  # noqa: PT017  # any other refusal is right


@settings(deadline=None, max_examples=100, suppress_health_check=list(HealthCheck))
@given(_WILD)
def test_any_document_is_applied_or_rejected(
    apply: Callable[[dict[str, object]], None], document: dict[str, object]
) -> None:
    apply(document)


@settings(deadline=None, max_examples=100, suppress_health_check=list(HealthCheck))
@given(_PEOPLE)
def test_document_about_people_and_statuses_is_applied_once_or_rejected(
    apply: Callable[[dict[str, object]], None], document: dict[str, object]
) -> None:
    apply(document)


@settings(deadline=None, max_examples=100, suppress_health_check=list(HealthCheck))
@given(_SHAPED)
def test_likely_document_is_applied_once_or_rejected(
    apply: Callable[[dict[str, object]], None], document: dict[str, object]
) -> None:
    apply(document)


@pytest.mark.parametrize(
    "document, path",
    [
        ({"objects": {"A__c": {"label": "\0"}}}, "objects.A__c.label"),
        ({"users": {"u": {"email": "\ud800"}}}, "users.u.email"),
        ({"objects": {5: {}}}, "objects"),
        ({"users": {"u": {"password": {1, 2}}}}, "users.u.password"),
        ({"capture": [1e400]}, "capture[0]"),
        ({"capture": [2**60]}, "capture[0]"),
    ],
)
def test_value_that_no_section_can_hold_is_rejected_with_its_path(document: object, path: str) -> None:
    with pytest.raises(DefinitionInvalid) as caught:
        check_document(document)
    assert caught.value.details["path"] == path


def test_deep_nesting_is_rejected() -> None:
    document: object = "x"
    for _ in range(10_000):
        document = [document]
    with pytest.raises(DefinitionInvalid, match="nested more than 12 levels deep"):
        check_document(document)
