"""JSON and XML batches parsed to records."""

from __future__ import annotations

import pytest

from tidewire.errors import JobInvalid
from tidewire.jobs.model import JobKind, JobRequest, Operation
from tidewire.jobs.uploads import iter_input, parse_json_rows, parse_xml_rows

XML_HEAD = (
    b'<?xml version="1.0"?><sObjects xmlns="http://www.force.com/2009/06/asyncapi/dataload"'
    b' xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance">'
)


def test_xml_record_keeps_texts_nulls_and_references() -> None:
    data = XML_HEAD + (
        b'<sObject><type>Contact</type><LastName>O&amp;P</LastName><Phone xsi:nil="true"/><Fax></Fax>'
        b"<Account><sObject><type>Account</type><Number__c>7</Number__c></sObject></Account></sObject></sObjects>"
    )
    account = {"attributes": {"type": "Account"}, "Number__c": "7"}
    assert parse_xml_rows(data) == [{"LastName": "O&P", "Phone": None, "Account": account}]


@pytest.mark.parametrize(
    "data",
    [
        b"<sObjects>",
        b"no xml",
        b'<!DOCTYPE x [<!ENTITY e "boom">]><sObjects>&e;</sObjects>',
        "<sObjects/>".encode("utf-16"),
        b"<a>" * 9 + b"</a>" * 9,
        b"<sObjects>" + b"<a/>" * 500_001 + b"</sObjects>",
    ],
)
def test_xml_that_is_broken_dangerous_or_huge_is_refused(data: bytes) -> None:
    with pytest.raises(JobInvalid):
        parse_xml_rows(data)


def test_json_records_lose_their_attributes() -> None:
    data = b'[{"attributes": {"type": "Account"}, "Name": "a", "Phone": null}]'
    assert parse_json_rows(data) == [{"Name": "a", "Phone": None}]


@pytest.mark.parametrize("data", [b"{}", b"[1]", b"nonsense", b"[" * 100_000, b"\xff"])
def test_json_that_is_no_list_of_records_is_refused(data: bytes) -> None:
    with pytest.raises(JobInvalid):
        parse_json_rows(data)


def test_batch_of_the_older_api_with_too_many_rows_is_refused() -> None:
    request = JobRequest(JobKind.CLASSIC, Operation.INSERT, "Account", 60, "")
    rows = iter_input(request, [b"Name\n" + b"x\n" * 10_001])
    with pytest.raises(JobInvalid, match="Too many records"):
        list(rows)
