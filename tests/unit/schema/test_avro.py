from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

import avro.schema
import pytest

from tidewire.schema.avro import change_event_schema, platform_event_schema, schema_id
from tidewire.schema.field_types import FieldType
from tidewire.schema.fields import double, location, multi_picklist, rich_text, text
from tidewire.schema.layout import add_fields, custom_object
from tidewire.schema.model import EventType, Field, ObjectType, RollUp
from tidewire.schema.standard import STANDARD_OBJECTS
from tidewire.schema.standard.access import USER
from tidewire.schema.standard.accounts import ACCOUNT, CONTACT

ORDERED = EventType(
    name="Ordered__e",
    label="Ordered",
    label_plural="Ordered",
    key_prefix="e00",
    fields=(
        Field(
            name="Number__c", label="Number", type=FieldType.TEXT, length=10, field_id="00NTW0000000001AAA"
        ),
        Field(name="Paid__c", label="Paid", type=FieldType.CHECKBOX, field_id="00NTW0000000002AAA"),
        Field(name="Day__c", label="Day", type=FieldType.DATE),
        Field(name="Moment__c", label="Moment", type=FieldType.DATETIME),
        Field(name="Sum__c", label="Sum", type=FieldType.NUMBER, precision=18, scale=2),
        Field(name="Memo__c", label="Memo", type=FieldType.LONG_TEXT, length=32_000),
    ),
)


def field_of(schema: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(f for f in schema["fields"] if f["name"] == name)
    return found


def reference_id(schema: dict[str, Any]) -> str:
    canonical = avro.schema.parse(json.dumps(schema)).canonical_form
    return base64.urlsafe_b64encode(hashlib.md5(canonical.encode()).digest()).decode().rstrip("=")


def test_schema_id_of_the_published_sample_event_is_the_published_one() -> None:
    low_ink = EventType(
        name="Low_Ink__e",
        label="Low Ink",
        label_plural="Low Ink",
        key_prefix="e00",
        fields=(
            text("Printer_Model__c", "Printer Model", 20),
            text("Serial_Number__c", "Serial Number", 20),
            double("Ink_Percentage__c", "Ink Percentage", 16, 2),
        ),
    )
    assert schema_id(platform_event_schema(low_ink)) == "5E5OtZj5_Gm6Vax9XMXH9A"


def test_schema_id_of_an_event_seen_at_the_real_service_is_the_one_it_had() -> None:
    event = EventType(
        name="CM_Test_Event_Two__e",
        label="Two",
        label_plural="Two",
        key_prefix="e00",
        fields=(text("Message__c", "Message", 20),),
    )
    assert schema_id(platform_event_schema(event)) == "K98aAtiNFBjA-PJlcvaQ2g"


@pytest.mark.parametrize("obj", STANDARD_OBJECTS, ids=lambda obj: obj.name)
def test_schema_id_of_change_events_agrees_with_the_reference_implementation(obj: ObjectType) -> None:
    schema = change_event_schema(obj)
    assert schema_id(schema) == reference_id(schema)


def test_schema_id_of_platform_events_agrees_with_the_reference_implementation() -> None:
    schema = platform_event_schema(ORDERED)
    assert schema_id(schema) == reference_id(schema)


def test_schema_id_ignores_docs_and_sees_types() -> None:
    schema = platform_event_schema(ORDERED)
    relabelled = json.loads(json.dumps(schema))
    relabelled["fields"][2]["doc"] = "Data:Text:00NTW0000000009"
    retyped = json.loads(json.dumps(schema))
    retyped["fields"][2]["type"] = ["null", "double"]
    assert schema_id(relabelled) == schema_id(schema)
    assert schema_id(retyped) != schema_id(schema)


def test_account_change_event_has_its_fields_in_the_order_of_the_wire() -> None:
    names = [f["name"] for f in change_event_schema(ACCOUNT)["fields"]]
    assert names[:26] == [
        "ChangeEventHeader",
        "Name",
        "Type",
        "ParentId",
        "BillingAddress",
        "ShippingAddress",
        "Phone",
        "Fax",
        "AccountNumber",
        "Website",
        "Sic",
        "Industry",
        "AnnualRevenue",
        "NumberOfEmployees",
        "Ownership",
        "TickerSymbol",
        "Description",
        "Rating",
        "Site",
        "OwnerId",
        "CreatedDate",
        "CreatedById",
        "LastModifiedDate",
        "LastModifiedById",
        "Jigsaw",
        "JigsawCompanyId",
    ]
    assert not {"Id", "IsDeleted", "SystemModstamp", "BillingCity"} & set(names)


def test_change_event_header_is_the_first_field_and_cannot_be_null() -> None:
    schema = change_event_schema(ACCOUNT)
    header = schema["fields"][0]
    assert (schema["name"], schema["namespace"]) == ("AccountChangeEvent", "com.sforce.eventbus")
    assert header["doc"] == "Data:ComplexValueType"
    assert [(f["name"], f["type"]) for f in header["type"]["fields"] if f["name"] != "changeType"] == [
        ("entityName", "string"),
        ("recordIds", {"type": "array", "items": "string"}),
        ("changeOrigin", "string"),
        ("transactionKey", "string"),
        ("sequenceNumber", "int"),
        ("commitTimestamp", "long"),
        ("commitNumber", "long"),
        ("commitUser", "string"),
        ("nulledFields", {"type": "array", "items": "string"}),
        ("diffFields", {"type": "array", "items": "string"}),
        ("changedFields", {"type": "array", "items": "string"}),
    ]
    change_type = header["type"]["fields"][2]
    assert change_type["name"] == "changeType"
    assert change_type["type"]["name"] == "ChangeType"
    assert change_type["type"]["symbols"] == [
        "CREATE",
        "UPDATE",
        "DELETE",
        "UNDELETE",
        "GAP_CREATE",
        "GAP_UPDATE",
        "GAP_DELETE",
        "GAP_UNDELETE",
        "GAP_OVERFLOW",
        "SNAPSHOT",
    ]


def test_compound_record_is_defined_once_and_then_named() -> None:
    schema = change_event_schema(ACCOUNT)
    billing = field_of(schema, "BillingAddress")["type"]
    assert billing[0] == "null"
    assert [f["name"] for f in billing[1]["fields"]] == (
        ["Street", "City", "State", "PostalCode", "Country", "Latitude", "Longitude", "GeocodeAccuracy"]
    )
    assert billing[1]["fields"][5] == {"name": "Latitude", "type": ["null", "double"], "default": None}
    assert field_of(schema, "ShippingAddress")["type"] == ["null", "Address"]


@pytest.mark.parametrize(
    "obj, parts", [(CONTACT, ["Salutation", "FirstName", "LastName"]), (USER, ["FirstName", "LastName"])]
)
def test_person_name_record_has_the_parts_that_the_object_has(obj: ObjectType, parts: list[str]) -> None:
    name = field_of(change_event_schema(obj), "Name")
    assert name["doc"] == "Data:PersonName"
    assert name["type"][1]["name"] == "PersonName"
    assert [f["name"] for f in name["type"][1]["fields"]] == parts


@pytest.mark.parametrize(
    "name, avro_type, doc",
    [
        ("Name", "string", "Data:Text"),
        ("Type", "string", "Data:DynamicEnum"),
        ("CleanStatus", "string", "Data:StaticEnum"),
        ("ParentId", "string", "ForeignKey:EntityId"),
        ("Phone", "string", "Data:Phone"),
        ("Website", "string", "Data:Url"),
        ("AnnualRevenue", "double", "Data:Currency"),
        ("NumberOfEmployees", "int", "Data:Integer"),
        ("Description", "string", "Data:StringPlusClob"),
        ("CreatedDate", "long", "CreatedDate:DateTime"),
        ("CreatedById", "string", "ForeignKey:EntityId"),
        ("LastModifiedDate", "long", "Data:DateTime"),
        ("Score__c", "double", "Data:Double:00NTW0000000001"),
    ],
)
def test_field_of_a_change_event_has_type_doc_and_null_default(name: str, avro_type: str, doc: str) -> None:
    score = Field(
        name="Score__c",
        label="Score",
        type=FieldType.NUMBER,
        precision=4,
        scale=1,
        field_id="00NTW0000000001AAA",
    )
    schema = change_event_schema(add_fields(ACCOUNT, [score]))
    expected = {"name": name, "type": ["null", avro_type], "doc": doc, "default": None}
    assert field_of(schema, name) == expected


def test_custom_object_change_event_is_named_without_its_suffix_letter() -> None:
    obj = custom_object("Invoice__c", "Invoice", "Invoices", "a00", 1001, None, [text("Memo__c", "Memo", 80)])
    schema = change_event_schema(obj)
    assert schema["name"] == "Invoice__ChangeEvent"
    assert [f["name"] for f in schema["fields"]] == (
        [
            "ChangeEventHeader",
            "OwnerId",
            "Name",
            "CreatedDate",
            "CreatedById",
            "LastModifiedDate",
            "LastModifiedById",
            "Memo__c",
        ]
    )


def test_platform_event_requires_only_its_own_two_fields() -> None:
    schema = platform_event_schema(ORDERED)
    assert (schema["name"], schema["namespace"]) == ("Ordered__e", "com.sforce.eventbus")
    assert schema["fields"][:3] == [
        {"name": "CreatedDate", "type": "long", "doc": "CreatedDate:DateTime"},
        {"name": "CreatedById", "type": "string", "doc": "CreatedBy:EntityId"},
        {
            "name": "Number__c",
            "type": ["null", "string"],
            "doc": "Data:Text:00NTW0000000001",
            "default": None,
        },
    ]
    assert [f["type"][1] for f in schema["fields"][3:]] == ["boolean", "long", "long", "double", "string"]


def test_location_rich_text_and_several_choices_have_their_forms() -> None:
    schema = change_event_schema(
        add_fields(
            ACCOUNT,
            [
                rich_text("Body__c", "Body"),
                multi_picklist("Colours__c", "Colours", "Red;Green"),
                *location("Place__c", "Place"),
                *location("Depot__c", "Depot"),
            ],
        )
    )
    assert field_of(schema, "Body__c")["doc"] == "Data:HtmlStringPlusClob"
    assert field_of(schema, "Colours__c")["doc"] == "Data:MultiEnum"
    assert field_of(schema, "Place__c") == {
        "name": "Place__c",
        "type": [
            "null",
            {
                "type": "record",
                "name": "Location",
                "fields": [
                    {"name": "Latitude", "type": ["null", "double"], "default": None},
                    {"name": "Longitude", "type": ["null", "double"], "default": None},
                ],
            },
        ],
        "doc": "Data:Location",
        "default": None,
    }
    assert field_of(schema, "Depot__c")["type"] == ["null", "Location"]
    assert schema_id(schema) == reference_id(schema)


def test_formula_is_left_out_of_change_events_and_roll_up_is_not() -> None:
    doubled = Field(name="Doubled__c", label="Doubled", type=FieldType.NUMBER, formula="AnnualRevenue * 2")
    total = Field(
        name="Total__c",
        label="Total",
        type=FieldType.CURRENCY,
        roll_up=RollUp("Invoice__c", "Account__c", "SUM", "Amount__c"),
    )
    names = [f["name"] for f in change_event_schema(add_fields(ACCOUNT, [doubled, total]))["fields"]]
    assert "Total__c" in names
    assert "Doubled__c" not in names


def test_account_change_event_ends_with_what_only_some_orgs_use() -> None:
    names = [f["name"] for f in change_event_schema(ACCOUNT)["fields"]]
    assert names[-2:] == ["SicDesc", "RecordTypeId"]
