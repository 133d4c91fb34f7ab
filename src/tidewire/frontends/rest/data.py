"""The list of resources under `/services/data/vN.0`.

To add a resource, write its handlers and ROUTES in a new module and list that module in ROUTES here.

The gate checks permissions: an object that the caller may not see raises the same ObjectUnknown as one that does
not exist, so both get the same answer.
"""

from __future__ import annotations

from tidewire.frontends.rest import (
    collections,
    deploys,
    describe,
    layouts,
    limits,
    list_views,
    push,
    queries,
    record_lists,
    single_records,
)
from tidewire.frontends.rest.calls import Api, Route, RouteTable
from tidewire.frontends.rest.composite import graph, subrequests, tree
from tidewire.frontends.rest.tooling import api as tooling

ROUTES: tuple[Route[Api], ...] = (
    *describe.ROUTES,
    *push.ROUTES,
    *record_lists.ROUTES,
    *layouts.ROUTES,
    *list_views.ROUTES,
    *single_records.ROUTES,
    *queries.ROUTES,
    *limits.ROUTES,
    *tooling.ROUTES,
    *deploys.ROUTES,
    *subrequests.ROUTES,
    *graph.ROUTES,
    *tree.ROUTES,
    *collections.ROUTES,
)
"""All resources of the data API. For paths that match several, the first one counts."""

DATA_ROUTES = RouteTable(ROUTES)
