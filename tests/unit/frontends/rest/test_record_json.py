"""Records and query results as JSON."""

from __future__ import annotations

import orjson

from tidewire.frontends.rest.record_json import render_created, render_page, render_published, render_single
from tidewire.gate.query_pages import AnswerPage
from tidewire.gate.requests import Rows
from tidewire.records.query import Record
from tidewire.schema.model import Field
from tidewire.schema.standard.accounts import ACCOUNT, CONTACT

ID = "001TW0000000001AAA"


def columns(*names: str) -> tuple[Field, ...]:
    return tuple(ACCOUNT.by_name[name.lower()] for name in names)


def answer(*rows: Record, names: tuple[str, ...] = ("Id", "Name")) -> Rows:
    return Rows(ACCOUNT, columns(*names), list(rows), None, 7)


def test_record_has_attributes_first_then_fields_as_selected() -> None:
    row: Record = {
        "Id": ID,
        "Name": "Acme",
        "AnnualRevenue": 50000.0,
        "NumberOfEmployees": 12,
        "Phone": None,
        "CreatedDate": 1_700_000_000_123,
        "IsDeleted": False,
    }
    names = ("Phone", "NumberOfEmployees", "AnnualRevenue", "CreatedDate", "IsDeleted", "Name", "Id")
    page = render_page(AnswerPage(answer(row, names=names), 1), 59, "query")
    assert orjson.dumps(page) == (
        b'{"totalSize":1,"done":true,"records":[{"attributes":{"type":"Account",'
        b'"url":"/services/data/v59.0/sobjects/Account/001TW0000000001AAA"},"Phone":null,'
        b'"NumberOfEmployees":12,"AnnualRevenue":50000.0,"CreatedDate":"2023-11-14T22:13:20.123+0000",'
        b'"IsDeleted":false,"Name":"Acme","Id":"001TW0000000001AAA"}]}'
    )


def test_compound_is_rendered_from_its_parts() -> None:
    row: Record = {
        "Id": ID,
        "BillingStreet": "1 Way",
        "BillingCity": "Kyiv",
        "BillingState": None,
        "BillingPostalCode": None,
        "BillingCountry": None,
        "BillingLatitude": None,
        "BillingLongitude": None,
        "BillingGeocodeAccuracy": None,
    }
    record = render_single(answer(row, names=("BillingAddress",)), 59)
    address = record["BillingAddress"]
    assert isinstance(address, dict)
    assert address["city"] == "Kyiv"
    assert address["street"] == "1 Way"
    assert address["postalCode"] is None


def test_person_name_is_one_text() -> None:
    row: Record = {
        "Id": "003TW0000000001AAA",
        "Salutation": None,
        "FirstName": "Ada",
        "LastName": "Lovelace",
    }
    record = render_single(Rows(CONTACT, (CONTACT.by_name["name"],), [row], None, 1), 59)
    assert record["Name"] == "Ada Lovelace"


def test_single_record_has_its_id_whatever_was_selected() -> None:
    record = render_single(answer({"Id": ID, "Name": "Acme"}, names=("Name",)), 59)
    assert list(record) == ["attributes", "Name", "Id"]


def test_page_before_the_last_has_a_next_records_url() -> None:
    rows = answer(*[Record(Id=ID, Name=str(number)) for number in (2, 3)])
    page = render_page(AnswerPage(rows, 5, "01g-4"), 59, "queryAll")
    assert list(page) == ["totalSize", "done", "nextRecordsUrl", "records"]
    assert (page["totalSize"], page["done"]) == (5, False)
    assert page["nextRecordsUrl"] == "/services/data/v59.0/queryAll/01g-4"
    records = page["records"]
    assert isinstance(records, list)
    assert [record["Name"] for record in records] == ["2", "3"]


def test_write_answers_have_the_known_form() -> None:
    assert render_created(ID) == {"id": ID, "success": True, "errors": []}
    assert render_published("e01xx0000000001AAA", "u-1") == {
        "id": "e01xx0000000001AAA",
        "success": True,
        "errors": [{"statusCode": "OPERATION_ENQUEUED", "message": "u-1", "fields": []}],
    }
