"""Documents, lock files and sizes are kept by tests, not by good intentions."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

from tidewire.cli.settings_reference import renew
from tidewire.errors import PlatformError, leaf_errors

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(p for p in (ROOT / "src").rglob("*.py") if "proto" not in p.parts)
PACKAGES = [ROOT / name / "package.json" for name in ("web", "tests/clients", "benchmarks/faye")]
PACKAGE_LOCKS = [path.with_name("package-lock.json") for path in PACKAGES]
POMS = [ROOT / name / "pom.xml" for name in ("tests/clients/java", "tests/pipeline/kafka")]
REQUIREMENTS = [ROOT / f"requirements/{name}.txt" for name in ("runtime", "postgres", "spark", "dev")]
MAX_MODULE_LINES = 600

CRASH_POINT = re.compile(r"crash_point\(\s*[\"']([^\"']+)[\"']")
MAVEN_PACKAGE = re.compile(r"<artifactId>([\w.-]+)</artifactId>\s*<version>[0-9.]{2,}<")
PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^ ]+)(?: ;.*?)? \\$", re.MULTILINE)


def read_doc(name: str) -> str:
    return (ROOT / "docs" / name).read_text()


def table_rows(text: str) -> dict[str, list[str]]:
    """The rows of all tables of a document by their first cell, without its backticks."""
    rows: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line.startswith("|") and not line.startswith("|---"):
            first, *rest = [cell.strip() for cell in line.strip("|").split("|")]
            rows[first.strip("`")] = rest
    return rows


def requirement_names(lines: list[str]) -> list[str]:
    return [re.split(r"[^A-Za-z0-9_-]", line, maxsplit=1)[0] for line in lines]


def declared_dependencies() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    lines = [*project["project"]["dependencies"]]
    for extra in project["project"]["optional-dependencies"].values():
        lines += extra
    for group in project["dependency-groups"].values():
        lines += group
    names = requirement_names(lines)
    for path in PACKAGES:
        package = json.loads(path.read_text())
        names += [*package.get("dependencies", {}), *package.get("devDependencies", {})]
    for path in POMS:
        names += MAVEN_PACKAGE.findall(path.read_text())
    return sorted(set(names))


def pinned(path: Path) -> dict[str, set[str]]:
    pins: dict[str, set[str]] = {}
    for name, version in PIN.findall(path.read_text()):
        pins.setdefault(name, set()).add(version)
    return pins


@pytest.mark.parametrize("error", leaf_errors(), ids=lambda error: error.code)
def test_error_code_stands_in_the_reference_with_class_cause_retry_and_action(
    error: type[PlatformError],
) -> None:
    row = table_rows(read_doc("errors.md")).get(error.code)

    assert row is not None, f"docs/errors.md has no row for {error.code}"
    name, cause, retry, action = row
    assert name == error.__name__
    assert cause
    assert action
    assert retry == ("yes" if error.retryable else "no")


def test_error_reference_lists_no_code_that_is_gone() -> None:
    listed = set(table_rows(read_doc("errors.md"))) - {"code"}

    assert listed == {error.code for error in leaf_errors()}


def test_crash_points_in_the_source_are_the_ones_documented() -> None:
    used = {name for path in SOURCES for name in CRASH_POINT.findall(path.read_text())} - {"name"}
    section = read_doc("configuration.md").split("## Crash points", 1)[1].split("\n## ", 1)[0]

    assert set(table_rows(section)) - {"name"} == used


def test_settings_are_documented_as_the_code_has_them() -> None:
    document = read_doc("configuration.md")
    assert "--metrics-token" in document
    assert document == renew(document)


def test_dependencies_are_the_ones_explained() -> None:
    explained = set(table_rows(read_doc("dependencies.md"))) - {"package"}

    assert explained == set(declared_dependencies())


@pytest.mark.parametrize("path", PACKAGE_LOCKS, ids=lambda path: path.parent.name)
def test_package_lock_holds_hashes_and_no_addresses(path: Path) -> None:
    packages = json.loads(path.read_text())["packages"]
    installed = {name: entry for name, entry in packages.items() if name}

    assert installed
    assert [name for name, entry in installed.items() if "://" in entry.get("resolved", "")] == []
    assert [name for name, entry in installed.items() if not entry.get("integrity")] == []


@pytest.mark.parametrize("path", REQUIREMENTS, ids=lambda path: path.stem)
def test_requirements_hold_hashes_and_no_addresses(path: Path) -> None:
    text = path.read_text()
    entries = re.findall(r"^[A-Za-z0-9].*?(?=^[A-Za-z0-9]|\Z)", text, re.MULTILINE | re.DOTALL)

    assert entries
    assert "://" not in text
    assert "--index" not in text
    assert [entry.split()[0] for entry in entries if "--hash=sha256:" not in entry] == []


@pytest.mark.parametrize("smaller", ["runtime", "postgres", "spark"])
def test_smaller_requirements_pin_what_the_tests_run_with(smaller: str) -> None:
    tested = pinned(ROOT / "requirements/dev.txt")
    released = pinned(ROOT / f"requirements/{smaller}.txt")

    assert released
    assert {name: versions for name, versions in released.items() if tested.get(name) != versions} == {}


def test_requirements_pin_every_declared_runtime_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    runtime = set(requirement_names(project["dependencies"]))
    spark = set(requirement_names(project["optional-dependencies"]["spark"]))

    postgres = set(requirement_names(project["optional-dependencies"]["postgres"]))
    assert runtime <= set(pinned(ROOT / "requirements/runtime.txt"))
    assert runtime | postgres <= set(pinned(ROOT / "requirements/postgres.txt"))
    assert runtime | spark <= set(pinned(ROOT / "requirements/spark.txt"))


def test_changelog_starts_with_what_is_unreleased() -> None:
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)

    assert headings[0] == "Unreleased"


def test_version_is_the_same_in_the_package_and_in_the_project_file() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    text = (ROOT / "src/tidewire/__init__.py").read_text()

    assert f'__version__ = "{declared}"' in text


def test_modules_stay_short_enough_to_read() -> None:
    sizes = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in SOURCES}

    assert {name: lines for name, lines in sizes.items() if lines > MAX_MODULE_LINES} == {}


def test_packages_say_what_they_read_feed_and_guarantee() -> None:
    stages = [p for p in (ROOT / "src/tidewire").glob("*/__init__.py") if p.parent.name != "static"]
    silent = []
    for path in stages:
        text = path.read_text()
        if not all(word in text for word in ("Reads from:", "Feeds:", "Guarantee:", "Never does:")):
            silent.append(path.parent.name)

    assert stages
    assert silent == []


def test_links_between_documents_lead_somewhere() -> None:
    documents = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    broken = [
        f"{document.relative_to(ROOT)} -> {target}"
        for document in documents
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text())
        if not (document.parent / target).exists()
    ]

    assert documents
    assert broken == []


def test_decisions_are_numbered_listed_and_complete() -> None:
    folder = ROOT / "docs/adr"
    decisions = sorted(folder.glob("0*.md"))
    index = (folder / "README.md").read_text()

    assert [path.name[:4] for path in decisions] == [f"{n:04}" for n in range(1, len(decisions) + 1)]
    for path in decisions:
        text = path.read_text()
        assert f"({path.name})" in index
        assert "Status:" in text
        for heading in ("## Context", "## Decision", "## Consequences", "## How we would know it was wrong"):
            assert heading in text, f"{path.name} lacks {heading!r}"


def test_compatibility_rows_have_a_known_state_and_tests_that_exist() -> None:
    rows = table_rows(read_doc("compatibility.md"))
    del rows["behaviour"]

    for behaviour, (state, test) in rows.items():
        assert state in {"done", "partly", "not yet"}, behaviour
        paths = re.findall(r"tests/[\w./-]+", test)
        assert paths or state == "not yet", f"{behaviour}: {state} without a test"
        assert [path for path in paths if not (ROOT / path).exists()] == []
        links = re.findall(r"\[`(tests/[\w./-]+)`\]\(\.\./(tests/[\w./-]+)\)", test)
        assert [text for text, target in links if text != target] == []
        assert len(links) * 2 == len(paths), f"{behaviour}: a test that is named is linked too"


def test_marked_tests_stand_where_the_makefile_looks_for_them() -> None:
    found = re.search(r"^SYSTEM_TESTS := (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert found is not None
    searched = found.group(1).split()
    marked = [
        str(path.relative_to(ROOT))
        for path in (ROOT / "tests").rglob("test_*.py")
        if re.search(r"mark\.(clients|crash|spark|browser)\b", path.read_text())
    ]

    assert marked
    assert [path for path in marked if not path.startswith(tuple(f"{folder}/" for folder in searched))] == []


def test_modules_that_the_documents_name_are_there() -> None:
    modules = {str(path.relative_to(ROOT / "src/tidewire")) for path in (ROOT / "src/tidewire").rglob("*.py")}
    missing = {
        name
        for document in (ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md")
        for name in re.findall(r"`((?:[a-z_]+/)*[a-z_]+\.py)`", document.read_text())
        if not (ROOT / name).exists()
        and not any(module == name or module.endswith(f"/{name}") for module in modules)
    }

    assert missing == set()
