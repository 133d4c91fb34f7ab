"""Fields as a command line gives them."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from tidewire.cli.field_values import iter_objects, parse_fields


def test_pairs_objects_and_files_are_taken_together_and_the_last_wins(tmp_path: Path) -> None:
    path = tmp_path / "fields.json"
    path.write_text('{"Fax": "1", "Active": true}')
    given = ["Name=A=B", "Phone=", '{"NumberOfEmployees": 12, "Name": "C"}', f"@{path}", "Fax=2"]
    assert parse_fields(given) == {
        "Name": "C",
        "Phone": None,
        "NumberOfEmployees": 12,
        "Fax": "2",
        "Active": True,
    }


@pytest.mark.parametrize("given", ["Name", "=x", "{", '{"a"}', "@/nowhere/x.json"])
def test_what_is_no_field_is_refused(given: str) -> None:
    with pytest.raises(click.UsageError):
        parse_fields([given])


def test_list_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    path.write_text("[1]")
    with pytest.raises(click.UsageError, match="must be an object"):
        parse_fields([f"@{path}"])


def test_lines_are_objects_and_empty_ones_are_left_out() -> None:
    assert list(iter_objects(iter(['{"a": 1}\n', "\n", '{"a": 2}']))) == [{"a": 1}, {"a": 2}]


def test_line_that_is_no_object_is_named_by_its_number() -> None:
    objects = iter_objects(iter(['{"a": 1}\n', "\n", "bad\n"]))
    assert next(objects) == {"a": 1}
    with pytest.raises(click.UsageError, match="line 3 of the input: not JSON"):
        next(objects)
