"""`tidewire apply`: apply a YAML definition to an org."""

from __future__ import annotations

from pathlib import Path

import click
import yaml

from tidewire.cli.client_options import ADMIN_PATH, Connection, connection_options
from tidewire.cli.output import examples, json_option, show


@click.command(
    epilog=examples(
        "tidewire apply -f examples/invoices.yaml --dry-run", "tidewire apply -f examples/invoices.yaml"
    )
)
@click.option(
    "-f", "--file", "path", required=True, type=click.Path(exists=True, dir_okay=False), help="the YAML file"
)
@click.option("--dry-run", is_flag=True, help="only show what would change")
@json_option
@connection_options
def apply(path: str, dry_run: bool, as_json: bool, connection: Connection) -> None:
    """Apply a YAML definition to an org: objects, events, users, permission sets, push topics."""
    try:
        document = yaml.safe_load(Path(path).read_text("utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise click.ClickException(f"{path} is not valid YAML: {error}") from error
    if not isinstance(document, dict):
        raise click.ClickException(f"{path} is not an org definition; see examples/invoices.yaml")
    suffix = "?dryRun=true" if dry_run else ""
    client = connection.rest()
    answer = client.call("POST", f"{ADMIN_PATH}/apply{suffix}", document)
    if as_json:
        show(answer | {"is_applied": not dry_run}, as_json=True, text="")
        return
    for line in answer["plan"]:
        click.echo(line)
    for client_id, secret in answer["secrets"].items():
        click.echo(f"secret of {client_id} (shown only once): {secret}")
    if not answer["plan"]:
        click.echo("nothing to do")
    elif dry_run:
        click.echo("not applied (dry run)")
