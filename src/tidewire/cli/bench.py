"""`tidewire bench`: run the benchmark programs of a checkout."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import click

from tidewire.cli.output import examples, show_table

_DIRECTORY = Path(__file__).resolve().parents[3] / "benchmarks"


@click.command(
    context_settings={"ignore_unknown_options": True},
    epilog=examples("tidewire bench", "tidewire bench path --json"),
)
@click.argument("name", required=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def bench(name: str | None, arguments: tuple[str, ...]) -> None:
    """Run a benchmark of this checkout, most of them against a peer system.

    Without a name, lists the benchmarks.
    """
    known = _find_benchmarks()
    if not known:
        raise click.ClickException("no benchmarks here: they are part of a checkout of the repository")
    if name is None:
        show_table(
            [{"name": each, "measures": summary} for each, summary in known.items()],
            ("name", "measures"),
            as_json=False,
        )
        return
    if name not in known:
        raise click.ClickException(f"no benchmark {name!r}; available: {', '.join(known)}")
    program = str(_DIRECTORY / f"{name}.py")
    sys.exit(subprocess.run([sys.executable, program, *arguments], check=False).returncode)


def _find_benchmarks() -> dict[str, str]:
    """Return the first docstring sentence of each benchmark program; files without `main` are shared code."""
    known = {}
    for path in sorted(_DIRECTORY.glob("*.py")):
        text = path.read_text("utf-8")
        if "\ndef main()" in text:
            summary = ast.get_docstring(ast.parse(text)) or ""
            known[path.stem] = " ".join(summary.split()).partition(". ")[0].partition(": ")[2].rstrip(".")
    return known
