"""The table of settings in docs/configuration.md, written from `tidewire.config`.

`scripts/generate-docs` writes it anew; with `--check` nothing is written, and a table that is not what the code says
fails.
"""

from __future__ import annotations

import sys
from dataclasses import fields
from pathlib import Path

from tidewire.config import Settings

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "configuration.md"
_BEGIN = "| flag | default | meaning |\n|---|---|---|\n"


def render_settings() -> str:
    """The table, head included."""
    rows = []
    for f in fields(Settings):
        default = "none" if f.default == "" else "off" if f.default is False else f"`{f.default}`"
        rows.append(f"| `--{f.name.replace('_', '-')}` | {default} | {f.metadata['help']} |\n")
    return _BEGIN + "".join(rows)


def renew(document: str) -> str:
    """A document with the table as it should be; it stands where the first one of its head does."""
    before, _, after = document.partition(_BEGIN)
    lines = after.splitlines(keepends=True)
    while lines and lines[0].startswith("|"):
        del lines[0]
    return before + render_settings() + "".join(lines)


def main(arguments: list[str]) -> int:
    """Write, or with `--check` compare; returns the exit status."""
    found = DOCUMENT.read_text("utf-8")
    wanted = renew(found)
    if arguments == ["--check"]:
        if found != wanted:
            sys.stderr.write(
                "docs/configuration.md is not what the settings say; run scripts/generate-docs\n"
            )
        return int(found != wanted)
    DOCUMENT.write_text(wanted, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
