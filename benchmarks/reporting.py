"""What every benchmark says beside its figures, and the two forms it says them in."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any


def bench_parser(description: str | None) -> argparse.ArgumentParser:
    """A command line that begins with what all benchmarks take."""
    parser = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    return parser


def show(outcome: dict[str, Any], print_table: Callable[[dict[str, Any]], None], *, as_json: bool) -> None:
    """Print an outcome as one JSON object, or as a table with what it must be read with."""
    if as_json:
        print(json.dumps(outcome))
        return
    print_table(outcome)
    print(f"durability: {outcome['durability']}")
    print("clean: " + ("yes" if outcome["clean"] else "no, other work took more than 12 % of the CPU"))
