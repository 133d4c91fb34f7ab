"""`tidewire archive` and `tidewire database`: change records of a running server below the API.

Subscribers get gap events. Both need Modify All Data and Customize Application.
"""

from __future__ import annotations

from typing import Any

import click
import yaml

from tidewire.cli.client_options import ADMIN_PATH, Connection, connection_options
from tidewire.cli.output import examples, json_option, progress, show

_IDS_PER_CALL = 2_000


@click.command(epilog=examples("tidewire archive --before 2025-01-01"))
@click.option(
    "--before", required=True, help="a date such as 2025-01-31; activities that ended before it are archived"
)
@json_option
@connection_options
def archive(before: str, as_json: bool, connection: Connection) -> None:
    """Archive past events and closed tasks. Ordinary queries no longer return them."""
    answer = connection.rest().call("POST", f"{ADMIN_PATH}/activities/archive", {"before": before})
    counts = answer["archived"]
    show(counts, as_json=as_json, text=f"archived: {counts['Task']} tasks, {counts['Event']} events")


@click.command(
    epilog=examples("tidewire database update Account --where \"Industry = 'Other'\" --set Industry=")
)
@click.argument("operation", type=click.Choice(["create", "update", "delete", "undelete"]))
@click.argument("entity")
@click.option("--id", "ids", multiple=True, help="id of a record; repeatable")
@click.option("--where", default="", help="a SOQL condition that selects the records")
@click.option("--set", "settings", multiple=True, metavar="FIELD=VALUE", help="a field value; repeatable")
@json_option
@connection_options
def database(
    operation: str,
    entity: str,
    ids: tuple[str, ...],
    where: str,
    settings: tuple[str, ...],
    as_json: bool,
    connection: Connection,
) -> None:
    """Change records below the API, like a database job. Subscribers get gap events."""
    values = dict(_parse_setting(text) for text in settings)
    client = connection.rest()
    job: dict[str, Any] = {"operation": operation, "entity": entity}
    if operation == "create":
        jobs = [job | {"records": [values]}]
    else:
        chosen = list(ids)
        if where:
            rows = client.query(f"SELECT Id FROM {entity} WHERE {where}")  # noqa: S608  # SOQL as the user's own
            chosen += [str(row["Id"]) for row in rows]
        extra = {"values": values} if operation == "update" else {}
        starts = range(0, len(chosen), _IDS_PER_CALL)
        jobs = [job | extra | {"ids": chosen[start : start + _IDS_PER_CALL]} for start in starts]
    done: list[str] = []
    with progress(sum(len(each.get("ids", [0])) for each in jobs), f"{operation[:-1]}ing") as step:
        for each in jobs:
            ids_done = client.call("POST", f"{ADMIN_PATH}/database", each)["ids"]
            done += ids_done
            step(len(ids_done))
    show({"ids": done}, as_json=as_json, text=f"{operation}d: {len(done)} records of {entity}")


def _parse_setting(text: str) -> tuple[str, object]:
    """Parse `FIELD=VALUE`; the value is YAML, and an empty one is null."""
    name, sign, value = text.partition("=")
    if not sign or not name.strip():
        raise click.ClickException(f"--set takes FIELD=VALUE, not {text[:80]}")
    try:
        parsed = yaml.safe_load(value) if value else None
    except yaml.YAMLError:
        parsed = value
    # Dates and lists go to the server as text.
    return name.strip(), parsed if parsed is None or isinstance(parsed, str | int | float | bool) else value
