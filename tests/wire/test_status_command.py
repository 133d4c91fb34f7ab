"""`tidewire status` against a live server."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from tests.running import Refused, Rest
from tidewire.cli.main import cli
from tidewire.testing import READER_USERNAME, ServerProcess


def test_status_shows_managed_subscriptions_for_people_and_programs(
    server: ServerProcess, rest: Rest
) -> None:
    spec = {"label": "Shown", "topic": "/data/ChangeEvents"}
    rest.call("POST", "/services/tidewire/v1/apply", {"managed_subscriptions": {"Shown_In_Status": spec}})
    shown = CliRunner().invoke(cli, ["status", "--url", server.http])
    assert shown.exit_code == 0, shown.output
    assert "log head: " in shown.output
    assert "Shown_In_Status" in shown.output
    found = json.loads(CliRunner().invoke(cli, ["status", "--url", server.http, "--json"]).output)
    (managed,) = [m for m in found["managed"] if m["name"] == "Shown_In_Status"]
    assert (managed["state"], managed["is_read"], managed["lag"]) == ("RUN", False, None)


def test_status_is_refused_to_who_may_not_view_the_setup(server: ServerProcess) -> None:
    reader = Rest(server.http, server.login(READER_USERNAME))
    for name in ("status", "metrics"):
        with pytest.raises(Refused, match="403"):
            reader.call("GET", f"/services/tidewire/v1/{name}")
    reader.close()
