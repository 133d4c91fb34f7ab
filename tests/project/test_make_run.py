"""What `make run` asks of a machine: less than the tests do, and no Java."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ("sh", "node", "npm", "sed", "head", "id", "env", "sort", "mktemp", "rm")


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A path with Python and Node.js on it, and neither Java nor what installs packages."""
    for tool in TOOLS:
        found = shutil.which(tool)
        assert found is not None, tool
        (tmp_path / tool).symlink_to(found)
    return tmp_path


def look(machine: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", str(ROOT / "scripts" / "prerequisites"), *arguments],
        env={"PATH": str(machine), "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_machine_without_java_is_told_so_and_may_run_the_demo(machine: Path) -> None:
    told = look(machine, "run")
    assert told.returncode == 0, told.stderr
    assert "Java 17" in told.stderr
    assert "going on without" in told.stderr


def test_machine_without_java_cannot_run_the_tests(machine: Path) -> None:
    told = look(machine)
    assert told.returncode == 1
    for name in ("Java 17", "Maven", "Chromium"):
        assert name in told.stderr


def test_machine_without_node_cannot_run_the_demo(machine: Path) -> None:
    (machine / "node").unlink()
    told = look(machine, "run")
    assert told.returncode == 1
    assert "Node.js 18" in told.stderr


def test_make_run_in_a_fresh_clone_makes_nothing_that_only_tests_need(tmp_path: Path) -> None:
    web = [f"web/{name}" for name in ("package-lock.json", "build.mjs", "tsconfig.json")]
    for name in ("Makefile", "pyproject.toml", "requirements", "scripts", *web):
        target = tmp_path / name
        target.parent.mkdir(exist_ok=True)
        target.symlink_to(ROOT / name)
    told = subprocess.run(
        ["make", "--dry-run", "run"],
        cwd=tmp_path,
        env={**os.environ, "MAKEFLAGS": ""},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    steps = told.stdout
    assert "prerequisites run" in steps
    assert steps.index("pip install") < steps.index("tidewire demo")
    assert steps.index("npm run --silent build") < steps.index("tidewire demo")
    assert "mvn" not in steps
    assert "tests/clients" not in steps
