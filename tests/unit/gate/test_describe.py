"""Descriptions: every key is there, and each flag is true of the field."""

from __future__ import annotations

from typing import Any

import pytest

from tidewire.gate.describe import (
    ChildLink,
    render_describe,
    render_event_describe,
    render_event_entry,
    render_field,
    render_global_entry,
)
from tidewire.schema.field_types import FieldType
from tidewire.schema.fields import auto_number, detail, location, lookup, multi_picklist, rich_text
from tidewire.schema.layout import custom_object
from tidewire.schema.model import EventType, Field, ObjectType, PicklistValue, RollUp
from tidewire.schema.standard import STANDARD_OBJECTS
from tidewire.schema.standard.accounts import ACCOUNT, CONTACT
from tidewire.schema.standard.activities import TASK
from tidewire.schema.standard.statuses import LEAD_STATUS

FIELD_KEYS = [
    "aggregatable",
    "aiPredictionField",
    "autoNumber",
    "byteLength",
    "calculated",
    "calculatedFormula",
    "cascadeDelete",
    "caseSensitive",
    "compoundFieldName",
    "controllerName",
    "createable",
    "custom",
    "defaultValue",
    "defaultValueFormula",
    "defaultedOnCreate",
    "dependentPicklist",
    "deprecatedAndHidden",
    "digits",
    "displayLocationInDecimal",
    "encrypted",
    "externalId",
    "extraTypeInfo",
    "filterable",
    "filteredLookupInfo",
    "formulaTreatNullNumberAsZero",
    "groupable",
    "highScaleNumber",
    "htmlFormatted",
    "idLookup",
    "inlineHelpText",
    "label",
    "length",
    "mask",
    "maskType",
    "name",
    "nameField",
    "namePointing",
    "nillable",
    "permissionable",
    "picklistValues",
    "polymorphicForeignKey",
    "precision",
    "queryByDistance",
    "referenceTargetField",
    "referenceTo",
    "relationshipName",
    "relationshipOrder",
    "restrictedDelete",
    "restrictedPicklist",
    "scale",
    "searchPrefilterable",
    "soapType",
    "sortable",
    "type",
    "unique",
    "updateable",
    "writeRequiresMasterRead",
]
ENTRY_KEYS = {
    "activateable",
    "associateEntityType",
    "associateParentEntity",
    "createable",
    "custom",
    "customSetting",
    "deepCloneable",
    "deletable",
    "deprecatedAndHidden",
    "feedEnabled",
    "hasSubtypes",
    "isInterface",
    "isSubtype",
    "keyPrefix",
    "label",
    "labelPlural",
    "layoutable",
    "mergeable",
    "mruEnabled",
    "name",
    "queryable",
    "replicateable",
    "retrieveable",
    "searchable",
    "triggerable",
    "undeletable",
    "updateable",
    "urls",
}
OBJECT_KEYS = ENTRY_KEYS | {
    "actionOverrides",
    "childRelationships",
    "compactLayoutable",
    "defaultImplementation",
    "extendedBy",
    "extendsInterfaces",
    "fields",
    "implementedBy",
    "implementsInterfaces",
    "listviewable",
    "lookupLayoutable",
    "namedLayoutInfos",
    "networkScopeFieldName",
    "recordTypeInfos",
    "searchLayoutable",
    "sobjectDescribeOption",
    "supportedScopes",
}
EVENT = EventType(
    name="Low_Ink__e",
    label="Low Ink",
    label_plural="Low Inks",
    key_prefix="e01",
    fields=(Field(name="Printer__c", label="Printer", type=FieldType.TEXT, length=20, custom=True),),
)
ALL = frozenset(f.name for f in ACCOUNT.fields)


def field(name: str) -> dict[str, Any]:
    return render_field(ACCOUNT.by_name[name.lower()], can_edit=True)


def test_field_has_every_key_in_order() -> None:
    assert list(field("Name")) == FIELD_KEYS


def test_every_field_type_can_be_described() -> None:
    for kind in FieldType:
        described = render_field(Field(name="X", label="X", type=kind), can_edit=True)
        assert described["type"]
        assert described["soapType"]


def test_object_has_every_key() -> None:
    assert set(render_global_entry(ACCOUNT, 59)) == ENTRY_KEYS
    assert set(render_describe(ACCOUNT, ALL, ALL, [], 59)) == OBJECT_KEYS
    assert set(render_event_describe(EVENT, 59)) == OBJECT_KEYS


def test_text_number_and_reference_have_their_sizes() -> None:
    name, revenue, employees = field("Name"), field("AnnualRevenue"), field("NumberOfEmployees")
    assert (name["type"], name["length"], name["byteLength"], name["soapType"]) == (
        "string",
        255,
        765,
        "xsd:string",
    )
    assert (revenue["type"], revenue["precision"], revenue["scale"], revenue["digits"]) == (
        "currency",
        18,
        0,
        0,
    )
    assert (employees["type"], employees["precision"], employees["digits"]) == ("int", 0, 8)
    parent = field("ParentId")
    assert (parent["length"], parent["referenceTo"], parent["relationshipName"]) == (
        18,
        ["Account"],
        "Parent",
    )


def test_flags_show_which_fields_a_create_requires() -> None:
    def is_required(described: dict[str, Any]) -> bool:
        return described["createable"] and not described["nillable"] and not described["defaultedOnCreate"]

    required = [f.name for f in ACCOUNT.fields if is_required(render_field(f, can_edit=True))]
    assert required == ["Name"]


def test_long_text_and_compound_cannot_be_filtered() -> None:
    for name in ("Description", "BillingAddress"):
        described = field(name)
        assert not described["filterable"]
        assert not described["sortable"]
        assert not described["groupable"]
    assert field("BillingCity")["compoundFieldName"] == "BillingAddress"


def test_picklist_lists_its_values() -> None:
    choice = Field(
        name="Grade__c",
        label="Grade",
        type=FieldType.PICKLIST,
        picklist=(PicklistValue("A", "Top", is_default=True), PicklistValue("B", "Low", is_active=False)),
        restricted=True,
    )
    described = render_field(choice, can_edit=True)
    assert described["restrictedPicklist"] is True
    assert described["defaultedOnCreate"] is True
    assert described["picklistValues"] == [
        {"active": True, "defaultValue": True, "label": "Top", "validFor": None, "value": "A"},
        {"active": False, "defaultValue": False, "label": "Low", "validFor": None, "value": "B"},
    ]


def test_describe_shows_only_readable_fields_and_writes_only_editable_ones() -> None:
    described = render_describe(ACCOUNT, frozenset({"Id", "Name", "Phone"}), frozenset({"Name"}), [], 59)
    fields = described["fields"]
    assert isinstance(fields, list)
    by_name = {f["name"]: f for f in fields}
    assert list(by_name) == ["Id", "Name", "Phone"]
    assert by_name["Name"]["updateable"] is True
    assert by_name["Name"]["nameField"] is True
    assert by_name["Phone"]["updateable"] is False
    assert by_name["Id"]["createable"] is False


def test_children_are_linked_by_their_lookup() -> None:
    link = ChildLink("Contact", CONTACT.by_name["accountid"])
    described = render_describe(ACCOUNT, ALL, ALL, [link], 59)
    assert described["childRelationships"] == [
        {
            "cascadeDelete": True,
            "childSObject": "Contact",
            "deprecatedAndHidden": False,
            "field": "AccountId",
            "junctionIdListNames": [],
            "junctionReferenceTo": [],
            "relationshipName": "Contacts",
            "restrictedDelete": False,
        }
    ]


def test_event_can_be_created_and_nothing_else() -> None:
    entry = render_event_entry(EVENT, 59)
    assert entry["createable"] is True
    assert not any(
        entry[flag] for flag in ("queryable", "updateable", "deletable", "retrieveable", "undeletable")
    )
    urls = entry["urls"]
    assert isinstance(urls, dict)
    assert urls["eventSchema"] == "/services/data/v59.0/sobjects/Low_Ink__e/eventSchema"
    fields = render_event_describe(EVENT, 59)["fields"]
    assert isinstance(fields, list)
    assert [f["name"] for f in fields] == [
        "ReplayId",
        "EventUuid",
        "CreatedDate",
        "CreatedById",
        "Printer__c",
    ]
    assert [f["name"] for f in fields if f["createable"]] == ["Printer__c"]


@pytest.mark.parametrize(
    "described, expected",
    [
        (
            rich_text("A__c", "A"),
            {"type": "textarea", "extraTypeInfo": "richtextarea", "htmlFormatted": True},
        ),
        (
            multi_picklist("A__c", "A", "X;Y"),
            {
                "type": "multipicklist",
                "soapType": "xsd:string",
                "length": 4099,
                "filterable": True,
                "sortable": False,
                "groupable": False,
            },
        ),
        (location("A__c", "A")[0], {"type": "location", "soapType": "urn:location", "createable": False}),
        (
            location("A__c", "A")[1],
            {"type": "double", "precision": 18, "scale": 15, "compoundFieldName": "A__c"},
        ),
        (auto_number("A__c", "A", "{0}"), {"type": "string", "autoNumber": True, "createable": False}),
        (
            Field(name="A__c", label="A", type=FieldType.NUMBER, formula="1 + 1"),
            {"type": "double", "calculated": True, "calculatedFormula": "1 + 1"},
        ),
        (
            Field(name="A__c", label="A", type=FieldType.NUMBER, roll_up=RollUp("L__c", "A__c", "COUNT")),
            {"calculated": True, "calculatedFormula": None},
        ),
        (
            lookup("A__c", "A", "Account", "A__r", delete_constraint="Restrict"),
            {"restrictedDelete": True, "cascadeDelete": False, "polymorphicForeignKey": False},
        ),
        (
            TASK.by_name["whoid"],
            {"referenceTo": ["Contact", "Lead"], "polymorphicForeignKey": True, "namePointing": True},
        ),
        (TASK.by_name["subject"], {"type": "combobox", "soapType": "xsd:string"}),
        (
            CONTACT.by_name["name"],
            {"type": "string", "filterable": True, "sortable": True, "createable": False, "length": 121},
        ),
        (
            Field(name="A__c", label="A", type=FieldType.DATE, default=86_400_000),
            {"defaultValue": "1970-01-02", "defaultedOnCreate": True},
        ),
    ],
)
def test_field_is_described_by_its_kind(described: Field, expected: dict[str, object]) -> None:
    rendered = render_field(described, can_edit=True)
    assert {key: rendered[key] for key in expected} == expected


def test_masters_of_a_detail_are_counted_in_order() -> None:
    obj = custom_object(
        "Link__c",
        "Link",
        "Links",
        "a00",
        1001,
        None,
        [
            detail("One__c", "One", "Account", "One__r", "Ones"),
            detail("Two__c", "Two", "Contact", "Two__r", "Twos"),
        ],
    )
    names = frozenset(f.name for f in obj.fields)
    fields = render_describe(obj, names, names, [], 59)["fields"]
    assert isinstance(fields, list)
    orders = {f["name"]: f["relationshipOrder"] for f in fields if f["cascadeDelete"]}
    assert orders == {"One__c": 0, "Two__c": 1}


def test_status_objects_name_no_key_prefix() -> None:
    assert render_global_entry(LEAD_STATUS, 59)["keyPrefix"] is None
    assert render_global_entry(TASK, 59)["keyPrefix"] == "00T"


@pytest.mark.parametrize("obj", STANDARD_OBJECTS, ids=lambda obj: obj.name)
def test_every_standard_object_can_be_described(obj: ObjectType) -> None:
    names = frozenset(f.name for f in obj.fields)
    described = render_describe(obj, names, names, [], 59)
    fields = described["fields"]
    assert isinstance(fields, list)
    assert [f["name"] for f in fields] == [f.name for f in obj.fields]
    assert sum(f["nameField"] for f in fields) <= 1


@pytest.mark.parametrize("field_type", FieldType)
def test_every_field_type_has_a_description(field_type: FieldType) -> None:
    described = render_field(Field(name="A__c", label="A", type=field_type), can_edit=True)
    assert list(described) == FIELD_KEYS
