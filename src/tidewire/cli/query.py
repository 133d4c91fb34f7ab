"""`tidewire query`: run a SOQL query; print a table, JSON or CSV."""

from __future__ import annotations

import csv
import itertools
import json
import re
import sys
import tempfile
from collections.abc import Iterator
from typing import Any, TextIO

import click

from tidewire.cli.client_options import Connection, connection_options, version_option
from tidewire.cli.output import (
    Columns,
    examples,
    flat_record,
    plain_record,
    printable,
    progress,
    show_table,
)
from tidewire.cli.suggestions import suggest
from tidewire.client.rest import QueryPage, RestClient
from tidewire.errors import RequestRefused

_POSITION = re.compile(r"ERROR at Row:(\d+):Column:(\d+)\s*(.*)", re.DOTALL)
_MEMORY_BYTES = 8 << 20


@click.command(
    epilog=examples(
        "tidewire query \"SELECT Id, Name, Owner.Name FROM Account WHERE Industry = 'Energy'\"",
        "tidewire query 'SELECT Id, Name FROM Contact' --csv > contacts.csv",
        "tidewire query 'SELECT Id FROM Account WHERE IsDeleted = true' --all --json",
        "tidewire query 'SELECT DeveloperName FROM PlatformEventChannel' --tooling",
        "tidewire query -f report.soql",
    )
)
@click.argument("soql", required=False)
@click.option(
    "-f", "--file", type=click.File("r", encoding="utf-8"), help="read the query from a file; - is stdin"
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json", "csv"]),
    default="table",
    show_default=True,
    help="output format",
)
@click.option("--json", "form", flag_value="json", help="same as --format json")
@click.option("--csv", "form", flag_value="csv", help="same as --format csv")
@click.option("--all", "is_all", is_flag=True, help="include deleted and archived records")
@click.option("--tooling", is_flag=True, help="query the Tooling API")
@version_option
@connection_options
def query(
    soql: str | None,
    file: TextIO | None,
    form: str,
    is_all: bool,
    tooling: bool,
    api_version: str,
    connection: Connection,
) -> None:
    """Run a SOQL query and print all its records.

    A syntax error is shown with the position marked.
    """
    if (soql is None) == (file is None):
        raise click.UsageError("pass a query, or a file with --file")
    text = soql if soql is not None else file.read() if file is not None else ""
    if is_all and tooling:
        raise click.UsageError("the Tooling API does not support --all")
    client = connection.rest(api_version)
    resource = "tooling/query" if tooling else "queryAll" if is_all else "query"
    try:
        pages = client.iter_pages(text, resource=resource)
        first = next(pages)
        if not first.records and first.total:
            click.echo(str(first.total))  # SELECT COUNT()
            return
        _SHOW[form](_iter_records(first, pages))
    except RequestRefused as error:
        raise click.ClickException(explain(error, text, client)) from error


def _iter_records(first: QueryPage, pages: Iterator[QueryPage]) -> Iterator[dict[str, Any]]:
    """Iterate over the records, with a progress bar if there is more than one page."""
    if len(first.records) >= first.total:
        yield from map(plain_record, first.records)
        return
    with progress(first.total, "reading") as done:
        for page in itertools.chain([first], pages):
            done(len(page.records))
            yield from map(plain_record, page.records)


def _show_table(records: Iterator[dict[str, Any]]) -> None:
    columns = Columns()
    rows = []
    for record in records:
        row = flat_record(record)
        columns.add(row)
        rows.append(row)
    if rows:
        show_table(rows, columns.names, as_json=False)
    click.echo(f"{len(rows)} record{'' if len(rows) == 1 else 's'}", err=True)


def _show_json(records: Iterator[dict[str, Any]]) -> None:
    # Streamed, so that a large result needs no memory.
    is_first = True
    for record in records:
        lines = json.dumps(record, indent=2, ensure_ascii=False).replace("\n", "\n  ")
        click.echo(("[\n  " if is_first else ",\n  ") + lines, nl=False)
        is_first = False
    click.echo("[]" if is_first else "\n]")


def _show_csv(records: Iterator[dict[str, Any]]) -> None:
    # The last record may add a column, so the rows are spooled until the header is known.
    columns = Columns()
    with tempfile.SpooledTemporaryFile(_MEMORY_BYTES, "w+", encoding="utf-8") as spool:
        for record in records:
            row = flat_record(record)
            columns.add(row)
            spool.write(json.dumps(row) + "\n")
        if not columns.names:
            return
        writer = csv.DictWriter(sys.stdout, columns.names, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        spool.seek(0)
        for line in spool:
            writer.writerow({name: _csv_value(value) for name, value in json.loads(line).items()})


def _csv_value(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value


_SHOW = {"table": _show_table, "json": _show_json, "csv": _show_csv}


def explain(error: RequestRefused, soql: str, client: RestClient) -> str:
    """Explain a rejected query: the line with the error position marked, and similar names."""
    code = str(error.details.get("error_code", ""))
    message = error.message.removeprefix(f"{code}: ")
    found = _POSITION.search(message)
    if found is None:
        return f"{printable_lines(message)} [{code}]" + _meant(message, client)
    row, column, reason = int(found[1]), int(found[2]), found[3]
    lines = soql.splitlines() or [""]
    shown = ""
    if 1 <= row <= len(lines):
        line = printable(lines[row - 1])
        mark = click.style("^", fg="red", bold=True)
        shown = f"line {row}, column {column}\n\n  {line}\n  {' ' * min(column - 1, len(line))}{mark}\n\n"
    return f"{shown}{printable_lines(reason)} [{code}]" + _meant(reason, client)


def printable_lines(text: str) -> str:
    """Replace control characters in each line of a server's message."""
    return "\n".join(printable(line) for line in text.strip().splitlines())


def _meant(message: str, client: RestClient) -> str:
    found = suggest(message, client)
    return f"\n{found}" if found else ""
