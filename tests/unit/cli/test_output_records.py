"""Records as rows."""

from __future__ import annotations

from tidewire.cli.output import Columns, flat_record, plain_record

RECORD = {
    "attributes": {"type": "Contact", "url": "/x"},
    "Id": "003",
    "Account": {
        "attributes": {"type": "Account"},
        "Name": "Acme",
        "Owner": {"attributes": {}, "Name": "Ada"},
    },
    "MailingAddress": {"city": "Bern", "street": None},
    "Cases": {"totalSize": 1, "done": True, "records": [{"attributes": {}, "Id": "500"}]},
}


def test_plain_record_has_no_attributes_and_lists_of_children() -> None:
    assert plain_record(RECORD) == {
        "Id": "003",
        "Account": {"Name": "Acme", "Owner": {"Name": "Ada"}},
        "MailingAddress": {"city": "Bern", "street": None},
        "Cases": [{"Id": "500"}],
    }


def test_flat_record_has_dotted_columns() -> None:
    assert flat_record(plain_record(RECORD)) == {
        "Id": "003",
        "Account.Name": "Acme",
        "Account.Owner.Name": "Ada",
        "MailingAddress.city": "Bern",
        "MailingAddress.street": None,
        "Cases": '[{"Id": "500"}]',
    }


def test_columns_of_a_parent_take_the_place_of_its_null() -> None:
    columns = Columns()
    columns.add(["Id", "Account", "Phone"])
    assert columns.names == ["Id", "Account", "Phone"]
    columns.add(["Id", "Account.Name", "Account.Owner", "Phone"])
    columns.add(["Id", "Account.Name", "Account.Owner.Name", "Phone", "Fax"])
    assert columns.names == ["Id", "Account.Name", "Account.Owner.Name", "Phone", "Fax"]
