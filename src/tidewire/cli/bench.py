"""`tidewire bench`: the benchmarks of a checkout, each a program of its own."""

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
    """Measure this checkout beside a peer in the same run.

    Without a name, lists what can be measured.
    """
    known = _known()
    if not known:
        raise click.ClickException("benchmarks belong to a checkout of the repository, which this is not")
    if name is None:
        show_table(
            [{"name": each, "measures": told} for each, told in known.items()],
            ("name", "measures"),
            as_json=False,
        )
        return
    if name not in known:
        raise click.ClickException(f"there is no benchmark {name!r}; known here: {', '.join(known)}")
    program = str(_DIRECTORY / f"{name}.py")
    sys.exit(subprocess.run([sys.executable, program, *arguments], check=False).returncode)


def _known() -> dict[str, str]:
    """The programs by name, each with the first sentence that it says about itself; files beside them are shared."""
    known = {}
    for path in sorted(_DIRECTORY.glob("*.py")):
        text = path.read_text("utf-8")
        if "\ndef main()" in text:
            told = ast.get_docstring(ast.parse(text)) or ""
            known[path.stem] = " ".join(told.split()).partition(". ")[0].partition(": ")[2].rstrip(".")
    return known
