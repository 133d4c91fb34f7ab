"""The keys by which the server chooses a request's org."""

from __future__ import annotations

import pytest

from tidewire.frontends.soap.request_routing import RoutingKeys, parse_routing_keys

ENVELOPE = (
    '<?xml version="1.0"?><e:Envelope xmlns:e="http://schemas.xmlsoap.org/soap/envelope/" xmlns:u="urn:partner">'
    "<e:Header>{header}</e:Header><e:Body>{body}</e:Body></e:Envelope>"
)
SESSION = "<u:SessionHeader><u:sessionId> 00D&#33;<![CDATA[abc]]> </u:sessionId></u:SessionHeader>"
LOGIN = "<u:login><u:username> ann@example.org </u:username><u:password>x</u:password></u:login>"


def parse(header: str = "", body: str = "") -> RoutingKeys:
    return parse_routing_keys(ENVELOPE.format(header=header, body=body).encode())


def test_token_is_read_as_the_parser_of_the_call_reads_it() -> None:
    assert parse(SESSION, "<u:query/>") == RoutingKeys(token="00D!abc")


def test_headers_before_the_session_do_not_hide_it() -> None:
    assert parse("<u:CallOptions><u:client>sessionId</u:client></u:CallOptions>" + SESSION).token == "00D!abc"


def test_only_login_yields_a_user_name() -> None:
    assert parse("", LOGIN) == RoutingKeys(username="ann@example.org")
    assert parse("", LOGIN.replace("login", "create")) == RoutingKeys()


def test_session_id_outside_the_header_is_ignored() -> None:
    assert parse("", f"<u:create>{SESSION}</u:create>") == RoutingKeys()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"no xml",
        b"\xff\xfe<",
        b"<!DOCTYPE a [<!ENTITY b 'x'>]><a>&b;</a>",
        b"<a>" * 10_000,
        b"<e><Header>" + b"<x/>" * 100_000,
        ENVELOPE.format(header="", body="<u:login><u:username>" + "x" * 200_000).encode(),
    ],
)
def test_body_other_than_an_envelope_yields_no_keys(body: bytes) -> None:
    assert parse_routing_keys(body) == RoutingKeys()
