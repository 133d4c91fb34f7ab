"""`tidewire bench`: the benchmarks of a checkout, each a program of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click

from tidewire.cli.output import examples


@click.command(
    context_settings={"ignore_unknown_options": True}, epilog=examples("tidewire bench path --json")
)
@click.argument("name")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def bench(name: str, arguments: tuple[str, ...]) -> None:
    """Measure this checkout beside a peer in the same run, for example: tidewire bench path --json"""
    directory = Path(__file__).resolve().parents[3] / "benchmarks"
    # The others beside them are what several benchmarks share.
    known = sorted(path.stem for path in directory.glob("*.py") if "\ndef main()" in path.read_text())
    if name not in known:
        raise click.ClickException(
            f"there is no benchmark {name!r}; known here: {', '.join(known) or 'none'}"
        )
    sys.exit(
        subprocess.run([sys.executable, str(directory / f"{name}.py"), *arguments], check=False).returncode
    )
