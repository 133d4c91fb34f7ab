"""Rules of CONTRIBUTING.md that a machine can check: docstrings, names of tests, sizes of packages."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = sorted(path for path in (ROOT / "src").rglob("*.py") if "proto" not in path.parts)
TESTS = sorted(path for path in (ROOT / "tests").rglob("*.py") if "node_modules" not in path.parts)
MAX_MODULES = 40
MAX_TEST_NAME = 80


def docstrings(text: str) -> Iterator[tuple[int, str]]:
    """Lines and docstrings of a module, its classes and functions."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found = ast.get_docstring(node)
            if found:
                yield node.body[0].lineno, found


def test_first_docstring_line_is_a_whole_sentence() -> None:
    broken = [
        f"{path.relative_to(ROOT)}:{line}: {text.splitlines()[0]}"
        for path in SOURCES
        for line, text in docstrings(path.read_text())
        if not text.splitlines()[0].endswith(".")
    ]

    assert broken == []


def test_docstring_scan_finds_modules_classes_and_functions() -> None:
    text = '"""A."""\nclass B:\n    """B\n    b."""\n    async def _c(self) -> None:\n        """C."""\n'

    assert sorted(docstrings(text)) == [(1, "A."), (3, "B\nb."), (6, "C.")]


def test_names_of_tests_are_at_most_80_characters() -> None:
    names = [
        (path, node.name)
        for path in TESTS
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    ]

    assert len(names) > 1000
    assert [f"{path.relative_to(ROOT)}: {name}" for path, name in names if len(name) > MAX_TEST_NAME] == []


def test_packages_have_at_most_40_modules_at_one_level() -> None:
    sizes = Counter(path.parent for path in SOURCES if path.name != "__init__.py")

    assert sizes
    assert {str(path.relative_to(ROOT)): n for path, n in sizes.items() if n > MAX_MODULES} == {}
