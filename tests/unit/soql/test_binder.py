from __future__ import annotations

import pytest

from tidewire.errors import FieldUnknown, FilterInvalid, ObjectUnknown, RequestError, SoqlSyntaxError
from tidewire.schema.catalog import Catalog
from tidewire.schema.model import Field, ObjectType
from tidewire.soql.ast import Operator
from tidewire.soql.binder import MAX_ALTERNATIONS, bind_query
from tidewire.soql.bound import (
    BoundAnd,
    BoundCompare,
    BoundCondition,
    BoundIn,
    BoundLike,
    BoundNot,
    BoundOr,
    BoundOrder,
    BoundQuery,
    Column,
    SelectedParent,
    referenced_fields,
)
from tidewire.soql.like import Wildcard
from tidewire.soql.parser import parse_query


def bind(text: str, catalog: Catalog) -> BoundQuery:
    return bind_query(parse_query(text), catalog)


def bind_where(condition: str, catalog: Catalog) -> BoundCondition:
    where = bind(f"SELECT Id FROM Widget__c WHERE {condition}", catalog).where
    assert where is not None
    return where


def names(fields: tuple[Field, ...]) -> list[str]:
    return [field.name for field in fields]


def test_names_are_found_in_any_letter_case(catalog: Catalog, widget: ObjectType) -> None:
    bound = bind("SELECT ID, nAmE, widget__C.code__c, W.SIZE__C FROM wIDGET__c w ORDER BY w.name", catalog)
    assert bound.entity is widget
    assert names(bound.columns) == ["Id", "Name", "Code__c", "Size__c"]
    assert bound.order == (BoundOrder(Column(widget.by_name["name"])),)


def test_selected_compound_stays_and_its_components_are_read_once(catalog: Catalog) -> None:
    bound = bind("SELECT SiteCity, SiteAddress, Id FROM Widget__c", catalog)
    assert names(bound.columns) == ["SiteCity", "SiteAddress", "Id"]
    assert names(bound.flat_columns) == ["SiteCity", "SiteStreet", "Id"]


def test_count_selects_nothing(catalog: Catalog) -> None:
    bound = bind("SELECT COUNT() FROM Widget__c LIMIT 5 OFFSET 1", catalog)
    assert (bound.is_count, bound.columns, bound.flat_columns) == (True, (), ())
    assert (bound.limit, bound.offset) == (5, 1)


@pytest.mark.parametrize(
    "condition, value",
    [
        ("Name = 'X'", "X"),
        ("Name = ''", None),
        ("Name > ''", ""),
        ("Count__c = 5", 5),
        ("Count__c > 5.5", 5.5),
        ("Size__c = 5", 5.0),
        ("Size__c = -.5", -0.5),
        ("Active__c = TRUE", True),
        ("Due__c = 1970-01-02", 86_400_000),
        ("At__c = 1970-01-01T00:00:00+01:00", -3_600_000),
        ("Start__c = 00:00:01Z", 1_000),
        ("OwnerId = '005TW0000000001'", "005TW0000000001YAA"),
        ("OwnerId = '005tw0000000001yaa'", "005TW0000000001YAA"),
        ("OwnerId = ''", None),
        ("OwnerId > ''", ""),
        ("Size__c = NULL", None),
    ],
)
def test_literal_becomes_the_stored_value(catalog: Catalog, condition: str, value: object) -> None:
    bound = bind_where(condition, catalog)
    assert isinstance(bound, BoundCompare)
    assert (bound.value, type(bound.value)) == (value, type(value))


def test_list_is_deduplicated_and_null_set_apart(catalog: Catalog, widget: ObjectType) -> None:
    field = widget.by_name["name"]
    assert bind_where("Name IN ('a', '', 'b', 'a')", catalog) == BoundIn(
        Column(field), ("a", "b"), has_null=True
    )
    assert bind_where("Name NOT IN (NULL)", catalog) == BoundIn(
        Column(field), (), has_null=True, is_negated=True
    )


def test_like_pattern_is_folded_as_its_field(catalog: Catalog, widget: ObjectType) -> None:
    assert bind_where("Name LIKE 'A%'", catalog) == BoundLike(
        Column(widget.by_name["name"]), ("a", Wildcard.ANY)
    )
    assert bind_where("Code__c LIKE 'A%'", catalog) == BoundLike(
        Column(widget.by_name["code__c"]), ("A", Wildcard.ANY)
    )


def test_not_is_pushed_down_to_where_it_matters(catalog: Catalog, widget: ObjectType) -> None:
    name, size = widget.by_name["name"], widget.by_name["size__c"]
    bound = bind_where("NOT (Name = 'a' OR NOT (Size__c < 5 AND Name IN ('b')) OR Size__c != NULL)", catalog)
    assert bound == BoundAnd(
        (
            BoundCompare(Column(name), Operator.NE, "a"),
            BoundCompare(Column(size), Operator.LT, 5.0),
            BoundIn(Column(name), ("b",)),
            BoundCompare(Column(size), Operator.EQ, None),
        )
    )
    assert bind_where("NOT Size__c < 5", catalog) == BoundNot(BoundCompare(Column(size), Operator.LT, 5.0))
    assert bind_where("NOT Name NOT IN ('b')", catalog) == BoundIn(Column(name), ("b",))


def test_nested_conditions_of_one_kind_become_one(catalog: Catalog) -> None:
    bound = bind_where(
        "((Size__c = 1 OR Size__c = 2) OR Size__c = 3) OR (Size__c = 4 OR Size__c = 5)", catalog
    )
    assert isinstance(bound, BoundOr)
    assert [item.value for item in bound.items if isinstance(item, BoundCompare)] == [1, 2, 3, 4, 5]


def test_alternation_past_the_limit_is_refused(catalog: Catalog) -> None:
    def nested(levels: int) -> str:
        text = "Size__c = 0"
        for level in range(levels):
            text = f"Size__c = 1 {('AND', 'OR')[level % 2]} ({text})"
        return text

    bind_where(nested(MAX_ALTERNATIONS), catalog)
    with pytest.raises(SoqlSyntaxError, match="alternate more than 20 deep"):
        bind_where(nested(MAX_ALTERNATIONS + 1), catalog)


def test_referenced_fields_are_those_of_the_condition(catalog: Catalog) -> None:
    where = bind_where("Name LIKE 'a' AND (NOT Size__c > 1) AND (Code__c IN ('x') OR Due__c = NULL)", catalog)
    assert referenced_fields(where) == {"Name", "Size__c", "Code__c", "Due__c"}
    assert referenced_fields(None) == frozenset()


UNREADABLE_USES = [
    "SELECT {} FROM Widget__c",
    "SELECT Id FROM Widget__c WHERE {} = 'x'",
    "SELECT Id FROM Widget__c WHERE {} = 5",
    "SELECT Id FROM Widget__c WHERE Id != NULL AND NOT {} IN (5, 'x')",
    "SELECT Id FROM Widget__c w WHERE w.{} LIKE 5",
    "SELECT COUNT() FROM Widget__c WHERE {} < NULL",
    "SELECT Id FROM Widget__c ORDER BY {}",
]


@pytest.mark.parametrize("hidden", ["Name", "Size__c", "Notes__c", "SiteAddress", "Active__c"])
@pytest.mark.parametrize("use", UNREADABLE_USES)
def test_unreadable_field_is_answered_like_one_that_does_not_exist(
    catalog: Catalog, use: str, hidden: str
) -> None:
    absent = "Q" * len(hidden)
    with pytest.raises(FieldUnknown) as for_hidden:
        bind_query(parse_query(use.format(hidden)), catalog, lambda entity, field: field.name != hidden)
    with pytest.raises(FieldUnknown) as for_absent:
        bind_query(parse_query(use.format(absent)), catalog)
    assert for_hidden.value.message == for_absent.value.message.replace(absent, hidden)
    assert {**for_hidden.value.details, "query": "", "field": "", "reason": ""} == {
        **for_absent.value.details,
        "query": "",
        "field": "",
        "reason": "",
    }


def test_relationship_of_an_unreadable_lookup_is_answered_like_an_unknown_one(catalog: Catalog) -> None:
    with pytest.raises(FieldUnknown, match="Didn't understand relationship 'Owner' in field path"):
        bind_query(
            parse_query("SELECT Owner.Name FROM Widget__c"),
            catalog,
            lambda entity, field: field.name != "OwnerId",
        )


def test_unreadable_component_is_left_out_of_its_compound(catalog: Catalog) -> None:
    bound = bind_query(
        parse_query("SELECT SiteAddress FROM Widget__c"),
        catalog,
        lambda entity, field: field.name != "SiteStreet",
    )
    assert names(bound.flat_columns) == ["SiteCity"]


def test_person_name_can_be_selected_but_not_filtered(catalog: Catalog) -> None:
    assert names(bind("SELECT Contact__c FROM Widget__c", catalog).columns) == ["Contact__c"]
    with pytest.raises(FilterInvalid, match="field 'Contact__c' can not be filtered in a query call"):
        bind_where("Contact__c = 'x'", catalog)


@pytest.mark.parametrize("literal", ["9" * 400, "-" + "9" * 400, "9" * 5_000 + ".5"])
@pytest.mark.parametrize("name", ["Size__c", "Count__c"])
def test_number_that_no_column_holds_is_refused(catalog: Catalog, name: str, literal: str) -> None:
    with pytest.raises(RequestError, match="numeric value out of range") as caught:
        bind_where(f"{name} = {literal}", catalog)
    assert caught.value.code == "number_out_of_range"


def test_errors_carry_what_a_program_needs(catalog: Catalog) -> None:
    with pytest.raises(FieldUnknown) as caught:
        bind("SELECT Id,\n  Nope__c FROM Widget__c", catalog)
    details = caught.value.details
    assert (details["row"], details["column"], details["field"], details["entity"]) == (
        2,
        3,
        "Nope__c",
        "Widget__c",
    )


def test_relative_date_without_a_clock_is_refused(catalog: Catalog) -> None:
    with pytest.raises(SoqlSyntaxError, match="date literal TODAY is not supported"):
        bind_where("Due__c = TODAY", catalog)


def test_person_name_with_a_column_is_text(catalog: Catalog) -> None:
    bound = bind("SELECT Name FROM Crew__c WHERE Name LIKE 'A%' ORDER BY Name", catalog)
    assert isinstance(bound.where, BoundLike)
    assert names(bound.flat_columns) == ["FirstName", "LastName"]


def test_parent_stands_where_it_was_first_named(catalog: Catalog) -> None:
    bound = bind("SELECT Parent__r.Name, Id, Parent__r.Owner.Name, Parent__r.Id FROM Widget__c", catalog)
    assert [item.name for item in bound.select] == ["Parent__r", "Id"]
    parent = bound.select[0]
    assert isinstance(parent, SelectedParent)
    assert [item.name for item in parent.branches[0].select] == ["Name", "Owner", "Id"]
    assert names(bound.flat_columns) == ["Parent__c", "Id"]


@pytest.mark.parametrize(
    "soql",
    [
        "SELECT Parent__r.{} FROM Widget__c",
        "SELECT Id FROM Widget__c WHERE Parent__r.{} = 'x'",
        "SELECT Id FROM Widget__c ORDER BY Parent__r.{}",
        "SELECT MAX(Parent__r.{}) FROM Widget__c",
        "SELECT Parent__r.{} FROM Widget__c GROUP BY Parent__r.{}",
        "SELECT Id, (SELECT {} FROM Offspring__r) FROM Widget__c",
        "SELECT Id FROM Part__c WHERE Widget__c IN (SELECT Id FROM Widget__c WHERE {} = 'x')",
    ],
)
def test_unreadable_field_of_a_related_record_does_not_exist(catalog: Catalog, soql: str) -> None:
    with pytest.raises(FieldUnknown) as for_hidden:
        bind_query(parse_query(soql.replace("{}", "Code__c")), catalog, lambda e, f: f.name != "Code__c")
    with pytest.raises(FieldUnknown) as for_absent:
        bind_query(parse_query(soql.replace("{}", "Absnt_c")), catalog)
    assert for_hidden.value.message == for_absent.value.message.replace("Absnt_c", "Code__c")


def test_children_behind_an_unreadable_lookup_do_not_exist(catalog: Catalog) -> None:
    soql = "SELECT Id, (SELECT Id FROM Parts__r) FROM Widget__c"
    with pytest.raises(ObjectUnknown, match="Didn't understand relationship 'Parts__r'"):
        bind_query(parse_query(soql), catalog, lambda entity, field: field.name != "Widget__c")
