from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import pytest

from tidewire.errors import FilterInvalid, InternalError
from tidewire.events import Value
from tidewire.schema.catalog import Catalog
from tidewire.schema.model import ObjectType
from tidewire.soql.binder import bind_query
from tidewire.soql.compile_sql import CompiledSql, compile_sql
from tidewire.soql.parser import parse_query


def compiled(text: str, catalog: Catalog, *, include_deleted: bool = True) -> CompiledSql:
    return compile_sql(bind_query(parse_query(text), catalog), include_deleted=include_deleted)


def test_query_without_clauses_is_ordered_by_id(catalog: Catalog) -> None:
    sql = compiled("SELECT Name, Id FROM Widget__c", catalog)
    assert sql.text == "SELECT c2, id FROM o7_0 ORDER BY id"
    assert sql.params == ()
    assert [field.name for field in sql.columns] == ["Name", "Id"]


def test_deleted_rows_are_left_out_unless_asked_for(catalog: Catalog) -> None:
    assert compiled("SELECT Id FROM Widget__c", catalog, include_deleted=False).text == (
        "SELECT id FROM o7_0 WHERE c1 = 0 ORDER BY id"
    )
    assert compiled("SELECT Id FROM Bare__c", catalog, include_deleted=False).text == (
        "SELECT id FROM o8_0 ORDER BY id"
    )


def test_compound_is_read_through_its_components(catalog: Catalog) -> None:
    sql = compiled("SELECT SiteAddress, Unstored__c FROM Widget__c", catalog)
    assert sql.text == "SELECT c15, c16, NULL FROM o7_0 ORDER BY id"
    assert [field.name for field in sql.columns] == ["SiteStreet", "SiteCity", "Unstored__c"]


@pytest.mark.parametrize(
    "condition, text, params",
    [
        ("Name = 'ACME'", "k2 = ?", ("acme",)),
        ("Name != 'ACME'", "(k2 IS NULL OR k2 <> ?)", ("acme",)),
        ("NOT Name = 'ACME'", "(k2 IS NULL OR k2 <> ?)", ("acme",)),
        ("NOT Name != 'ACME'", "k2 = ?", ("acme",)),
        ("Code__c = 'ACME'", "k3 = ?", ("ACME",)),
        ("Name = NULL", "k2 IS NULL", ()),
        ("Name != ''", "k2 IS NOT NULL", ()),
        ("Name < 'B'", "k2 < ?", ("b",)),
        ("NOT Name < 'B'", "(k2 IS NULL OR k2 >= ?)", ("b",)),
        ("NOT Size__c >= 2", "(c7 IS NULL OR c7 < ?)", (2.0,)),
        ("Name IN ('A', 'a', 'B')", "k2 IN (?, ?)", ("a", "b")),
        ("Name IN ('A', NULL)", "(k2 IS NULL OR k2 IN (?))", ("a",)),
        ("Name IN (NULL)", "k2 IS NULL", ()),
        ("Name NOT IN ('A')", "(k2 IS NULL OR k2 NOT IN (?))", ("a",)),
        ("Name NOT IN ('A', NULL)", "(k2 IS NOT NULL AND k2 NOT IN (?))", ("a",)),
        ("Name NOT IN (NULL)", "k2 IS NOT NULL", ()),
        ("Name LIKE 'Ac%'", "(k2 >= ? AND k2 < ?)", ("ac", "ad")),
        ("Name LIKE '\U0010ffff%'", "k2 >= ?", ("\U0010ffff",)),
        ("Name LIKE '%'", "k2 IS NOT NULL", ()),
        ("Name LIKE 'Ac'", "k2 = ?", ("ac",)),
        ("Name LIKE '%A\\_c_'", "k2 LIKE ? ESCAPE '\\'", ("%a\\_c_",)),
        ("NOT Name LIKE 'A%'", "(k2 IS NULL OR k2 NOT LIKE ? ESCAPE '\\')", ("a%",)),
        ("Active__c = TRUE", "c9 = 1", ()),
        ("Active__c != FALSE", "c9 = 1", ()),
        ("Active__c = FALSE", "(c9 IS NULL OR c9 = 0)", ()),
        ("NOT Active__c = TRUE", "(c9 IS NULL OR c9 = 0)", ()),
        ("Active__c = NULL", "1 = 0", ()),
        ("Active__c != NULL", "1 = 1", ()),
        ("Id > '005TW0000000001'", "id > ?", ("005TW0000000001YAA",)),
        ("Due__c = 1970-01-02", "c10 = ?", (86_400_000,)),
        ("Size__c = 1 AND (Name = 'a' OR Name = 'b')", "(c7 = ? AND (k2 = ? OR k2 = ?))", (1.0, "a", "b")),
        ("(Name = 'a' OR Name = 'b') AND Size__c = 1", "(c7 = ? AND (k2 = ? OR k2 = ?))", (1.0, "a", "b")),
    ],
)
def test_condition_becomes_two_valued_sql(
    catalog: Catalog, condition: str, text: str, params: tuple[Value, ...]
) -> None:
    sql = compiled(f"SELECT Id FROM Widget__c WHERE {condition}", catalog)
    assert sql.text == f"SELECT id FROM o7_0 WHERE {text} ORDER BY id"
    assert sql.params == params


@pytest.mark.parametrize(
    "order, text",
    [
        ("Name", "(k2 IS NOT NULL), k2, id"),
        ("Name DESC", "(k2 IS NOT NULL), k2 DESC, id"),
        ("Name NULLS LAST", "(k2 IS NULL), k2, id"),
        ("Size__c DESC NULLS LAST, Name", "(c7 IS NULL), c7 DESC, (k2 IS NOT NULL), k2, id"),
        ("Active__c DESC", "COALESCE(c9, 0) DESC, id"),
        ("Id DESC", "id DESC"),
        ("OwnerId, Id", "(c13 IS NOT NULL), c13, id"),
    ],
)
def test_order_places_nulls_itself_and_ends_with_the_id(catalog: Catalog, order: str, text: str) -> None:
    sql = compiled(f"SELECT Id FROM Widget__c ORDER BY {order}", catalog)
    assert sql.text == f"SELECT id FROM o7_0 ORDER BY {text}"


@pytest.mark.parametrize(
    "clause, text, params",
    [
        ("LIMIT 5", "LIMIT ?", (5,)),
        ("LIMIT 5 OFFSET 2", "LIMIT ? OFFSET ?", (5, 2)),
        ("OFFSET 2", "LIMIT ? OFFSET ?", (2**63 - 1, 2)),
    ],
)
def test_page_is_bound_as_parameters(
    catalog: Catalog, clause: str, text: str, params: tuple[int, ...]
) -> None:
    sql = compiled(f"SELECT Id FROM Widget__c {clause}", catalog)
    assert (sql.text, sql.params) == (f"SELECT id FROM o7_0 ORDER BY id {text}", params)


def test_count_is_one_number_and_obeys_its_limit(
    catalog: Catalog, load_rows: Callable[[Iterable[Mapping[str, Value]]], sqlite3.Connection]
) -> None:
    store = load_rows([{"Id": str(number), "IsDeleted": number == 9, "Size__c": 1.0} for number in range(10)])

    def count(text: str, *, include_deleted: bool = False) -> object:
        sql = compiled(text, catalog, include_deleted=include_deleted)
        assert sql.columns == ()
        return store.execute(sql.text, sql.params).fetchall()

    assert count("SELECT COUNT() FROM Widget__c WHERE Size__c = 1") == [(9,)]
    assert count("SELECT COUNT() FROM Widget__c", include_deleted=True) == [(10,)]
    assert count("SELECT COUNT() FROM Widget__c WHERE Size__c = 1 LIMIT 4") == [(4,)]
    assert count("SELECT COUNT() FROM Widget__c LIMIT 4 OFFSET 7") == [(2,)]
    assert count("SELECT COUNT() FROM Widget__c WHERE Size__c = 2") == [(0,)]
    store.close()


def test_rows_come_back_in_the_order_asked_for(
    catalog: Catalog, load_rows: Callable[[Iterable[Mapping[str, Value]]], sqlite3.Connection]
) -> None:
    store = load_rows(
        [
            {"Id": "1", "Name": "beta", "Size__c": 2.0},
            {"Id": "2", "Name": "Alpha", "Size__c": None},
            {"Id": "3", "Name": None, "Size__c": 2.0},
            {"Id": "4", "Name": "ALPHA", "Size__c": 1.0},
        ]
    )

    def ids(clause: str) -> str:
        sql = compiled(f"SELECT Id FROM Widget__c {clause}", catalog)
        return "".join(row[0] for row in store.execute(sql.text, sql.params))

    assert ids("ORDER BY Name") == "3241"
    assert ids("ORDER BY Name DESC") == "3124"
    assert ids("ORDER BY Name DESC NULLS LAST") == "1243"
    assert ids("ORDER BY Size__c NULLS LAST, Name DESC") == "4312"
    assert ids("ORDER BY Id DESC LIMIT 2 OFFSET 1") == "32"
    assert ids("OFFSET 3") == "4"
    store.close()


@pytest.mark.parametrize("operator", ["AND", "OR"])
def test_widest_and_deepest_conditions_are_within_what_sqlite_reads(
    catalog: Catalog,
    load_rows: Callable[[Iterable[Mapping[str, Value]]], sqlite3.Connection],
    operator: str,
) -> None:
    other = {"AND": "OR", "OR": "AND"}
    flat = f" {operator} ".join(f"Size__c!={number}" for number in range(5_000))
    nested, word = "Size__c = 0", operator
    for _ in range(20):
        terms = f" {word} ".join(f"Size__c={number}" for number in range(200))
        nested, word = f"({nested}) {word} {terms}", other[word]
    store = load_rows([{"Id": "1", "Size__c": -1.0}])
    for condition in (flat, nested):
        sql = compiled(f"SELECT Id FROM Widget__c WHERE {condition}", catalog)
        assert len(store.execute(sql.text, sql.params).fetchall()) == (condition is flat)
    store.close()


def test_filter_on_a_field_without_column_is_refused(catalog: Catalog) -> None:
    with pytest.raises(FilterInvalid, match="field 'Unstored__c' can not be filtered"):
        compiled("SELECT Id FROM Widget__c WHERE Unstored__c = 'x'", catalog)


@pytest.mark.parametrize("table", ["", "o1; DROP TABLE x", 'o"1', "Öl"])
def test_physical_name_that_is_no_identifier_is_never_written(
    catalog: Catalog, widget: ObjectType, table: str
) -> None:
    bound = bind_query(parse_query("SELECT Id FROM Widget__c"), catalog)
    with pytest.raises(InternalError):
        compile_sql(replace(bound, entity=replace(widget, table=table)))


def test_paths_become_outer_joins_each_made_once(catalog: Catalog) -> None:
    sql = compiled(
        "SELECT Name FROM Widget__c WHERE Parent__r.Owner.Name = 'X' AND Parent__r.Size__c > 1 "
        "ORDER BY Parent__r.Owner.Name",
        catalog,
        include_deleted=False,
    )
    assert sql.text == (
        "SELECT t0_0.c2 FROM o7_0 AS t0_0 LEFT JOIN o7_0 AS t0_1 ON t0_1.id = t0_0.c20 AND t0_1.c1 = 0 "
        "LEFT JOIN o9_0 AS t0_2 ON t0_2.id = t0_1.c13 "
        "WHERE t0_0.c1 = 0 AND (t0_2.k1 = ? AND t0_1.c7 > ?) "
        "ORDER BY (t0_2.k1 IS NOT NULL), t0_2.k1, t0_0.id"
    )
    assert sql.params == ("x", 1.0)


@pytest.mark.parametrize(
    "condition, text, params",
    [
        (
            "Id IN (SELECT Widget__c FROM Part__c WHERE Cost__c > 5)",
            "id IN (SELECT c4 FROM o10_0 WHERE c3 > ? AND c4 IS NOT NULL)",
            (5.0,),
        ),
        (
            "OwnerId NOT IN (SELECT Id FROM Crew__c)",
            "(c13 IS NULL OR c13 NOT IN (SELECT id FROM o9_0 WHERE id IS NOT NULL))",
            (),
        ),
        ("About__r.Type = 'Part__c'", "(c21 >= ? AND c21 < ?)", ("a02", "a03")),
        ("About__r.Type != 'Part__c'", "(c21 IS NULL OR c21 NOT LIKE ? ESCAPE '\\')", ("a02%",)),
        (
            "Tags__c INCLUDES ('RED;blue', 'x%')",
            "(((';' || c17 || ';') LIKE ? ESCAPE '\\' AND (';' || c17 || ';') LIKE ? ESCAPE '\\') "
            "OR ((';' || c17 || ';') LIKE ? ESCAPE '\\'))",
            ("%;red;%", "%;blue;%", "%;x\\%;%"),
        ),
        (
            "Tags__c EXCLUDES ('red')",
            "(c17 IS NULL OR (((';' || c17 || ';') NOT LIKE ? ESCAPE '\\')))",
            ("%;red;%",),
        ),
        ("Tags__c = 'blue;red'", "c17 = ?", ("red;blue",)),
        ("toLabel(Stage__c) = 'open!'", "k5 IN (?)", ("open",)),
        (
            "toLabel(Stage__c) NOT IN ('Open!', 'other')",
            "(k5 IS NULL OR k5 NOT IN (?, ?))",
            ("open", "other"),
        ),
        ("toLabel(Stage__c) = 'Open'", "(k5 IS NULL AND k5 IS NOT NULL)", ()),
        ("HOUR_IN_DAY(At__c) = 5", None, (5,)),
    ],
)
def test_further_conditions_become_two_valued_sql(
    catalog: Catalog, condition: str, text: str | None, params: tuple[Value, ...]
) -> None:
    sql = compiled(f"SELECT Id FROM Widget__c WHERE {condition}", catalog)
    assert text is None or sql.text == f"SELECT id FROM o7_0 WHERE {text} ORDER BY id"
    assert sql.params == params


def test_deleted_records_are_left_out_of_semi_joins_too(catalog: Catalog) -> None:
    soql = "SELECT Id FROM Widget__c WHERE Id IN (SELECT Widget__c FROM Part__c)"
    assert "o10_0 WHERE c1 = 0 AND" in compiled(soql, catalog, include_deleted=False).text
    assert "c1" not in compiled(soql, catalog).text


def test_path_to_several_types_takes_whichever_there_is(catalog: Catalog) -> None:
    sql = compiled("SELECT Id FROM Widget__c WHERE About__r.Name = 'X'", catalog)
    assert "WHERE COALESCE(t0_1.k1, t0_2.k2) = ?" in sql.text


def test_picklist_is_ordered_by_its_definition(catalog: Catalog) -> None:
    sql = compiled("SELECT Id FROM Widget__c WHERE Size__c = 1 ORDER BY Stage__c DESC LIMIT 3", catalog)
    assert sql.text.endswith(
        "ORDER BY (k5 IS NOT NULL), CASE k5 WHEN ? THEN 0 WHEN ? THEN 1 WHEN ? THEN 2 ELSE 3 END DESC, "
        "k5 DESC, id LIMIT ?"
    )
    assert sql.params == (1.0, "new", "open", "closed", 3)


def test_distance_is_never_written_as_sql(catalog: Catalog) -> None:
    with pytest.raises(InternalError):
        compiled("SELECT Id FROM Widget__c WHERE DISTANCE(Place__c, GEOLOCATION(1, 2), 'mi') < 5", catalog)
