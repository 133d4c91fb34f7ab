"""Every error has an answer in every front end, and no answer tells a peer about our insides."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tidewire.errors import (
    ConfigInvalid,
    InternalError,
    PlatformError,
    RequestError,
    ServerUnreachable,
    StorageError,
    leaf_errors,
)
from tidewire.frontends.bayeux.wire_errors import wire_error
from tidewire.frontends.pubsub.wire_errors import STATUS_AND_CODE, render_failure
from tidewire.frontends.rest.wire_errors import REST_ERRORS, rest_error
from tidewire.frontends.rest.wire_errors import render_error as render_rest
from tidewire.frontends.soap.wire import PARTNER
from tidewire.frontends.soap.wire_errors import SOAP_ERRORS
from tidewire.frontends.soap.wire_errors import render_error as render_soap
from tidewire.transport.http import HttpRequest

SECRET = "/var/lib/secret/org.db"
OURS = (StorageError, ServerUnreachable, InternalError, ConfigInvalid)
"""Failures that are not the caller's: what broke is for the log alone."""

LEAVES = leaf_errors()


def answer_rest(error: PlatformError) -> str:
    """What a REST caller reads."""
    response = render_rest(HttpRequest("GET", "/services/data", {}), error)
    assert 400 <= response.status < 600
    return response.body.decode()


def answer_soap(error: PlatformError) -> str:
    """What a SOAP caller reads."""
    response = render_soap(PARTNER, error)
    assert 400 <= response.status < 600
    return response.body.decode()


def answer_pubsub(error: PlatformError) -> str:
    """What a gRPC caller reads."""
    failure = render_failure(error, rpc="Subscribe", rpc_id="r", tenant="00D", topic="/event/X__e")
    assert failure.status != "OK"
    assert dict(failure.trailers)["error-code"]
    return f"{failure.text} {failure.trailers}"


def answer_bayeux(error: PlatformError) -> str:
    """What a Bayeux client reads: three digits, arguments, text."""
    failure = wire_error(error, "/topic/X")
    code, _, text = failure.text.split(":", 2)
    assert 400 <= int(code) < 600
    assert text
    return f"{failure.text} {failure.reason}"


Answer = Callable[[PlatformError], str]
FRONT_ENDS = [
    pytest.param(answer_rest, id="rest"),
    pytest.param(answer_soap, id="soap"),
    pytest.param(answer_pubsub, id="pubsub"),
    pytest.param(answer_bayeux, id="bayeux"),
]


@pytest.mark.parametrize("answer", FRONT_ENDS)
@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: leaf.code)
def test_every_error_has_an_answer_in_every_front_end(leaf: type[PlatformError], answer: Answer) -> None:
    assert answer(leaf("something about it"))


@pytest.mark.parametrize("answer", FRONT_ENDS)
@pytest.mark.parametrize(
    "leaf", [leaf for leaf in LEAVES if issubclass(leaf, OURS)], ids=lambda leaf: leaf.code
)
def test_answer_to_a_failure_of_ours_hides_its_message(leaf: type[PlatformError], answer: Answer) -> None:
    assert SECRET not in answer(leaf(f"cannot read {SECRET}", path=SECRET))


@pytest.mark.parametrize(
    "table",
    [
        pytest.param(REST_ERRORS, id="rest"),
        pytest.param(SOAP_ERRORS, id="soap"),
        pytest.param(STATUS_AND_CODE, id="pubsub"),
    ],
)
def test_table_has_a_row_for_each_leaf_and_no_other(table: dict[type[PlatformError], object]) -> None:
    assert set(table) == set(LEAVES)


@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: leaf.code)
def test_rest_status_blames_the_side_at_fault(leaf: type[PlatformError]) -> None:
    status = rest_error(leaf("something about it")).status
    if issubclass(leaf, OURS):
        assert status >= 500
    elif issubclass(leaf, RequestError):
        assert status < 500
