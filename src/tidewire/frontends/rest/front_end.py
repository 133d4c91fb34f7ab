"""What the server needs to serve REST, OAuth and bulk jobs; see `tidewire.delivery.front_end`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tidewire.delivery.front_end import (
    CoreContext,
    CoreHandler,
    CoreSide,
    FrontEnd,
    Gauge,
    OrgCore,
    Uploads,
)
from tidewire.frontends.rest.listener_errors import try_render_listener_error
from tidewire.jobs.model import MAX_UPLOAD_BYTES
from tidewire.names import MAX_API_VERSION

_UPLOAD_PATHS = re.compile(
    r"/services/data/v[0-9]{2}\.0/jobs/ingest/[0-9A-Za-z]{15}(?:[0-9A-Za-z]{3})?/batches/?"
)


def _load_core() -> CoreSide:
    from tidewire.frontends.rest.cors import try_answer_preflight
    from tidewire.frontends.rest.limits import render_limits
    from tidewire.frontends.rest.org_choice import find_org, try_find_token
    from tidewire.frontends.rest.serve import RestApp
    from tidewire.matching.log_ranges import LogRanges

    def open_app(context: CoreContext) -> CoreHandler:
        core = context.core
        app = RestApp(
            core.gate,
            core.logins,
            core.cursors,
            context.clock,
            core.oauth,
            core.jobs,
            core.generic,
            core.streams,
            LogRanges(core.gate, core.log, core.capture),
            is_first=context.is_first,
            lake=context.lake,
        )
        return app.handle

    def read_gauges(core: OrgCore) -> Iterator[Gauge]:
        limits = render_limits(core.gate.usage.used(), MAX_API_VERSION, 0, core.allocations)
        named = {name: entry for name, entry in limits.items() if entry["Max"]}
        for key, word in (("Max", "max"), ("Remaining", "remaining")):
            rows = [({"name": name}, float(str(entry[key]))) for name, entry in named.items()]
            yield Gauge(f"tidewire_allocation_{word}", f"allocations of the first org, {word}", rows)

    return CoreSide(open_app, find_org, try_find_token, try_answer_preflight, read_gauges)


# Every path: REST also answers those that nobody knows.
FRONT_END = FrontEnd(
    "rest",
    re.compile(r".*", re.DOTALL),
    try_render_listener_error,
    Uploads(_UPLOAD_PATHS, MAX_UPLOAD_BYTES),
    load_core=_load_core,
)
