"""docs/command-line.md, written from the commands themselves: `python -m tidewire.cli.reference [--check]`.

With `--check` nothing is written, and the status is 1 if the file is not what the commands give.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from difflib import unified_diff
from inspect import cleandoc
from pathlib import Path
from textwrap import fill

import click

from tidewire.cli.client_options import sign_in_options
from tidewire.cli.main import SECTIONS, cli

PATH = Path(__file__).resolve().parents[3] / "docs" / "command-line.md"
_HEADING = """# Command line

<!-- Written by scripts/generate-docs from the commands themselves. Do not edit. -->

`tidewire COMMAND --help` tells the same. A mistyped command is answered with those that may have been meant. An error
is one line on standard error, followed by what to do about it, and a status other than 0. `tidewire completion bash`
(or `zsh`, `fish`) prints what a shell needs to complete commands and flags.

## Signing in

Commands that talk to a server take these flags, or the environment variable beside each. What is not given comes from
the profile of `tidewire login`, and without one from the well-known login of a development server on this machine. A
profile's password and session are used for its own server and user only: with another `--url` it is left aside.
Profiles are kept in `profiles.json` in the user's configuration directory (`TIDEWIRE_CONFIG_DIR` names another), which
only its owner can read.
"""


def render_reference() -> str:
    """The whole document."""
    root = click.Context(cli, info_name="tidewire")
    parts = [_HEADING, _options_table(_sign_in_parameters(), with_variable=True)]
    for title, commands in SECTIONS.items():
        parts.append(f"## {title}\n")
        for name, _, _ in commands:
            command = cli.get_command(root, name)
            if command is not None:
                parts += _iter_command(command, click.Context(command, root, name))
    return "\n".join(parts).rstrip() + "\n"


def _sign_in_parameters() -> list[click.Option]:
    @click.command()
    @click.option(
        "--profile",
        envvar="TIDEWIRE_PROFILE",
        help="which profile of `tidewire login` to use; `default` if there is one",
    )
    @sign_in_options
    def carrier() -> None:
        pass

    return [param for param in carrier.params if isinstance(param, click.Option)]


def _iter_command(command: click.Command, context: click.Context) -> Iterator[str]:
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    yield f"### `{context.command_path}`\n"
    yield f"```\n{usage}\n```\n"
    yield _prose(command.help or "") + "\n"
    shared = {param.name for param in _sign_in_parameters()}
    signs_in = shared - {"profile"} <= {param.name for param in command.params}
    own = [
        param
        for param in command.params
        if isinstance(param, click.Option)
        and not param.hidden
        and not (signs_in and (param.name in shared or param.name == "profile_name"))
    ]
    if own:
        yield _options_table(own, with_variable=False)
    if signs_in:
        yield "Takes the flags of [signing in](#signing-in).\n"
    if command.epilog:
        lines = [line.strip() for line in command.epilog.removeprefix("\b\n").splitlines()[1:]]
        yield "```\n" + "\n".join(lines) + "\n```\n"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None and not below.hidden:
                yield from _iter_command(below, click.Context(below, context, name))


def _prose(text: str) -> str:
    """A docstring as paragraphs; one that is not to be wrapped is a heading and what to type."""
    parts = []
    for paragraph in cleandoc(text).split("\n\n"):
        if paragraph.startswith("\b\n"):
            lines = [line.strip() for line in paragraph.splitlines()[2:]]
            parts.append("```\n" + "\n".join(lines) + "\n```")
        else:
            parts.append(
                fill(" ".join(paragraph.split()), 120, break_long_words=False, break_on_hyphens=False)
            )
    return "\n\n".join(parts)


def _options_table(options: list[click.Option], *, with_variable: bool) -> str:
    lines = (
        ["| flag | variable | meaning |", "|---|---|---|"]
        if with_variable
        else ["| flag | meaning |", "|---|---|"]
    )
    for option in options:
        flags = ", ".join(f"`{flag}`" for flag in (*option.opts, *option.secondary_opts))
        meaning = _cell(option.help or "")
        if isinstance(option.type, click.Choice):
            meaning = _join(meaning, "one of " + ", ".join(f"`{choice}`" for choice in option.type.choices))
        default = option.default
        if option.show_default and isinstance(default, str | int | float) and not isinstance(default, bool):
            meaning = _join(meaning, f"`{default}` if left out")
        cells = [flags, f"`{option.envvar}`", meaning] if with_variable else [flags, meaning]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _join(first: str, second: str) -> str:
    return f"{first}; {second}" if first else second


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def main(arguments: list[str]) -> int:
    """Write the document, or compare it; the exit status."""
    wanted = render_reference()
    if "--check" not in arguments:
        PATH.write_text(wanted, "utf-8")
        return 0
    found = PATH.read_text("utf-8") if PATH.exists() else ""
    if found == wanted:
        return 0
    difference = unified_diff(found.splitlines(True), wanted.splitlines(True), str(PATH), "the commands")
    click.echo(
        "".join(difference) + "docs/command-line.md is out of date; run scripts/generate-docs", err=True
    )
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
