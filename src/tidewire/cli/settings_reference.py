"""Generate the table of settings in docs/configuration.md from `tidewire.config`.

Run by `scripts/generate-docs`. With `--check` nothing is written, and an outdated table fails.
"""

from __future__ import annotations

import sys
from dataclasses import fields
from pathlib import Path

from tidewire.config import Settings

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "configuration.md"
_BEGIN = "| flag | default | meaning |\n|---|---|---|\n"


def render_settings() -> str:
    """Render the table with its header."""
    rows = []
    for f in fields(Settings):
        default = "none" if f.default == "" else "off" if f.default is False else f"`{f.default}`"
        rows.append(f"| `--{f.name.replace('_', '-')}` | {default} | {f.metadata['help']} |\n")
    return _BEGIN + "".join(rows)


def renew(document: str) -> str:
    """Replace the table of settings in a document."""
    before, _, after = document.partition(_BEGIN)
    lines = after.splitlines(keepends=True)
    while lines and lines[0].startswith("|"):
        del lines[0]
    return before + render_settings() + "".join(lines)


def main(arguments: list[str]) -> int:
    """Write the table, or compare it with `--check`. Return the exit status."""
    found = DOCUMENT.read_text("utf-8")
    wanted = renew(found)
    if arguments == ["--check"]:
        if found != wanted:
            sys.stderr.write("docs/configuration.md is out of date; run scripts/generate-docs\n")
        return int(found != wanted)
    DOCUMENT.write_text(wanted, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
