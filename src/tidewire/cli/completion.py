"""`tidewire completion`: print a shell completion script."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from tidewire.cli.output import examples

SHELLS = ("bash", "zsh", "fish")


@click.command(
    epilog=examples(
        "tidewire completion bash > ~/.local/share/bash-completion/completions/tidewire",
        'eval "$(tidewire completion zsh)"',
        "tidewire completion fish > ~/.config/fish/completions/tidewire.fish",
    )
)
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print a script for shell completion of commands and flags."""
    found = get_completion_class(shell)
    root = click.get_current_context().find_root().command
    if found is None:
        raise click.ClickException(f"no completion for {shell}")
    script = found(root, {}, "tidewire", "_TIDEWIRE_COMPLETE")
    # Not `source()`, which runs the shell to check its version: the script may be for another machine.
    click.echo(script.source_template % script.source_vars())
