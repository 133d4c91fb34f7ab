"""The recipes of CONTRIBUTING.md are complete: their files exist, and nothing outside of them has to be touched."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from dataclasses import fields
from itertools import takewhile
from pathlib import Path

import pyarrow as pa
import pytest

from tests.unit.schema import test_field_types as field_types
from tidewire import errors
from tidewire.config import Settings
from tidewire.errors import leaf_errors
from tidewire.eventlog.backends import EVENT_LOGS
from tidewire.frontends.rest import data
from tidewire.pipeline.lake import tables
from tidewire.schema import standard
from tidewire.schema.field_types import FieldType
from tidewire.schema.model import ObjectType
from tidewire.server.front_ends import FRONT_ENDS
from tidewire.soql.dates import COUNTED_DATES, RELATIVE_DATES

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src/tidewire"
MODULES = {str(path.relative_to(SOURCE)): path.read_text() for path in sorted(SOURCE.rglob("*.py"))}
TITLES = (
    "A SOQL date literal",
    "A field type",
    "A Bayeux error",
    "A standard object",
    "A REST resource",
    "A log backend",
    "A front end",
    "A pipeline table",
    "A console page",
    "A metric",
    "A setting",
    "A publish path",
)
FILE = re.compile(r"`([\w./-]+\.(?:py|md|tsx|ts|toml|json|soql)|[\w./-]+/)`")
NEW = re.compile(r"NAME")
"""Stands for the new thing in the names of files that the contributor makes."""


def recipes() -> dict[str, str]:
    """The text of each recipe, by title."""
    section = (ROOT / "CONTRIBUTING.md").read_text().split("\n## Recipes\n", 1)[1].split("\n## ", 1)[0]
    _, *parts = re.split(r"^### (.+)$", section, flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def files_named(title: str) -> list[str]:
    return FILE.findall(recipes()[title])


def exists(name: str) -> bool:
    """Whether a file exists; of a new file the folder that is already there, of a bare name a module anywhere."""
    if "/" not in name and name.endswith(".py"):
        return any(Path(module).name == name for module in MODULES)
    kept = takewhile(lambda part: not NEW.search(part), Path(name).parts)
    path = Path(*kept)
    return (ROOT / path).exists() or (SOURCE / path).exists()


def strings(text: str) -> Iterator[str]:
    """The string literals of a module."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def calls(text: str, *names: str) -> Iterator[ast.Call]:
    """The calls of methods of these names."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in names:
            yield node


def modules_that_import(prefix: str) -> set[str]:
    """The modules that import `prefix` or something below it."""
    pattern = re.compile(rf"^\s*(?:from|import) {re.escape(prefix)}\b", re.MULTILINE)
    return {name for name, text in MODULES.items() if pattern.search(text)}


def test_there_is_a_recipe_for_every_usual_extension() -> None:
    assert set(TITLES) - set(recipes()) == set()


@pytest.mark.parametrize("title", TITLES)
def test_files_that_a_recipe_names_exist(title: str) -> None:
    named = files_named(title)
    missing = [name for name in named if not exists(name)]

    assert named
    assert missing == []


@pytest.mark.parametrize("title", TITLES)
def test_recipe_is_short_and_names_the_test_that_shows_success(title: str) -> None:
    lines = recipes()[title].strip().splitlines()

    assert 3 <= len(lines) <= 10
    assert lines[0].startswith("1. ")
    assert any(name.startswith("tests/") for name in files_named(title))


def test_date_literals_are_named_in_one_module() -> None:
    words = RELATIVE_DATES | COUNTED_DATES
    found = {
        name for name, text in MODULES.items() if name.startswith("soql/") and words & set(strings(text))
    }

    assert found == {"soql/dates.py"} <= set(files_named("A SOQL date literal"))


def test_field_types_are_listed_in_the_table_that_the_recipe_names() -> None:
    # That no other module lists types is shown by the test that the recipe names.
    named = files_named("A field type")

    assert str(field_types.TABLE.relative_to(SOURCE)) in named
    assert str(Path(field_types.__file__).relative_to(ROOT)) in named
    documented = set(re.findall(r"\w+", (ROOT / "docs/configuration.md").read_text()))
    assert {each.value for each in FieldType if each.row.is_custom_type} - documented == set()


def test_errors_are_defined_in_one_module_and_listed_in_its_docstring() -> None:
    assert {leaf.__module__ for leaf in leaf_errors()} == {"tidewire.errors"}
    listed = set(re.findall(r"\w+", errors.__doc__ or ""))
    assert {leaf.__name__ for leaf in leaf_errors()} - listed == set()
    front_ends = {name for name in MODULES if re.fullmatch(r"frontends/\w+/wire_errors\.py", name)}
    assert front_ends <= set(files_named("A Bayeux error"))


def test_every_standard_object_is_in_the_list() -> None:
    defined = {
        value.name
        for name in MODULES
        if re.fullmatch(r"schema/standard/(?!people)\w+\.py", name)
        for value in vars(importlib.import_module(f"tidewire.{name[:-3].replace('/', '.')}")).values()
        if isinstance(value, ObjectType)
    }

    assert defined == {each.name for each in standard.STANDARD_OBJECTS}
    assert "schema/standard/__init__.py" in files_named("A standard object")


def test_routes_of_every_rest_module_are_in_the_list() -> None:
    listed = set(map(id, data.ROUTES))
    found = [
        name
        for name, text in MODULES.items()
        if name.startswith("frontends/rest/") and "\nROUTES: tuple[Route[Api], ...]" in text
    ]
    unlisted = [
        name
        for name in found
        for route in vars(importlib.import_module(f"tidewire.{name[:-3].replace('/', '.')}"))["ROUTES"]
        if id(route) not in listed
    ]

    assert len(found) > 5
    assert unlisted == []


def test_log_backends_are_made_in_one_module() -> None:
    implementations = {
        name
        for name, text in MODULES.items()
        if name.startswith("eventlog/") and name != "eventlog/log.py" and "def append_uniform(" in text
    }
    made = {f"eventlog/{each.__module__.rsplit('.', 1)[-1]}.py" for each in EVENT_LOGS.values()}

    assert implementations == made
    for name in made:
        importers = modules_that_import(f"tidewire.{name[:-3].replace('/', '.')}")
        assert {each for each in importers if not each.startswith("eventlog/")} == set()
        assert "eventlog/backends.py" in importers
    assert "eventlog/backends.py" in files_named("A log backend")


def test_every_front_end_is_in_the_list_and_no_other_module_imports_one() -> None:
    exported = {
        name for name in MODULES if name.endswith("/front_end.py") and not name.startswith("delivery/")
    }
    names = {Path(name).parent.name for name in exported}

    assert names == {each.name for each in FRONT_ENDS}
    for name in exported:
        importers = modules_that_import(f"tidewire.{name[:-3].replace('/', '.')}")
        assert importers == {"server/front_ends.py"}
    assert "server/front_ends.py" in files_named("A front end")


def test_every_table_of_the_lake_is_in_the_list() -> None:
    schemas = {name: value for name, value in vars(tables).items() if isinstance(value, pa.Schema)}
    per_object = {"HISTORY", "READS"}
    assert {name for name in schemas if schemas[name] not in tables.TABLES.values()} == per_object

    # No other module keeps a list of tables.
    lists = [
        name
        for name, text in MODULES.items()
        if name.startswith("pipeline/") and name != "pipeline/lake/tables.py"
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Tuple | ast.List | ast.Set)
        and sum(isinstance(each, ast.Constant) and each.value in tables.TABLES for each in node.elts) > 1
    ]
    assert lists == []
    assert "pipeline/lake/tables.py" in files_named("A pipeline table")


def test_every_console_page_has_an_address_and_every_link_a_page() -> None:
    routes = (ROOT / "web/src/pages.tsx").read_text()
    linked = set(re.findall(r'route: \["(\w+)"', routes))
    answered = set(re.findall(r'case "(\w+)":', routes))
    imported = {
        found
        for path in (ROOT / "web/src").rglob("*.ts*")
        for found in re.findall(r'from "(?:\./pages|\.)/(\w+)"', path.read_text())
    }

    menu = re.findall(r'text: "([^"]+)", route: \[([^\]]+)\]', routes)
    visited = (ROOT / "tests/browser/test_console.py").read_text()
    described = (ROOT / "docs/console.md").read_text()

    assert menu
    assert [text for text, _ in menu if text not in described] == []
    assert [route for _, route in menu if route.replace('", "', "/") not in visited] == []
    assert linked - answered == set()
    assert {path.stem for path in (ROOT / "web/src/pages").glob("*.tsx")} - imported == set()
    assert "web/src/pages.tsx" in files_named("A console page")


def test_metrics_that_the_server_renders_are_documented() -> None:
    probes = MODULES["server/probes.py"]
    rendered = {text for text in strings(probes) if re.fullmatch(r"tidewire_[a-z_]+[a-z]", text)}
    documented = set(re.findall(r"`(tidewire_[a-z_]+)", (ROOT / "docs/operations.md").read_text()))

    assert len(rendered) > 10
    assert rendered - documented == set()
    assert {"server/probes.py", "docs/operations.md"} <= set(files_named("A metric"))


def test_counters_are_named_after_the_package_that_counts() -> None:
    counted = {
        (name, key)
        for name, text in MODULES.items()
        for key in re.findall(r'counters\[f?"([^"]+)"\] \+=', text)
    }
    wrong = [
        f"{name}: {key}"
        for name, key in sorted(counted)
        if not re.fullmatch(r"[a-z]+\.[a-z{}]+(?:_[a-z{}]+)+", key)
        or key.split(".")[0] not in (*Path(name).parts[:-1], Path(name).stem)
    ]

    assert counted
    assert wrong == []


def test_settings_are_declared_where_the_recipe_says() -> None:
    declaring = {each.__module__ for each in Settings.__mro__ if each is not object}

    assert fields(Settings)
    assert {each.metadata.get("help", "") == "" for each in fields(Settings)} == {False}
    for module in declaring - {"tidewire.config"}:
        assert re.fullmatch(r"tidewire\.frontends\.\w+\.settings", module)
    assert "config.py" in files_named("A setting")


def test_events_are_appended_to_the_log_in_the_modules_that_the_recipe_names() -> None:
    appending = {
        name
        for name, text in MODULES.items()
        for call in calls(text, "append", "append_uniform", "append_paged")
        if isinstance(call.func, ast.Attribute) and re.search(r"\blog\b|_log\b", ast.unparse(call.func.value))
    }

    # What users publish, what the server reports about itself, and what records cause.
    assert appending - {"testing/controlled.py", "eventlog/sql_log.py"} == {
        "gate/publishing.py",
        "matching/generic.py",
        "gate/monitoring.py",
        "capture/stage.py",
    }
    assert {"gate/publishing.py", "matching/generic.py"} <= set(files_named("A publish path"))
