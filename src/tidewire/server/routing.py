"""Which org a request is for.

A token says it by itself: it begins with the org's id. A login says it by the user's name, an app by its client id.
Nothing is checked here: the org that is found checks everything, and a request that names none, or one that is not
here, goes to the first org, which refuses it in the words that it has for every bad token.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from urllib.parse import parse_qsl

from tidewire.access.oauth import read_assertion
from tidewire.errors import AuthHeaderInvalid, GrantInvalid, InternalError, PlatformError
from tidewire.frontends.bayeux.wire import parse_token as parse_bayeux_token
from tidewire.frontends.pubsub.listener import CallAnswerer
from tidewire.frontends.rest.cors import try_answer_preflight
from tidewire.frontends.rest.oauth.browser import SESSION_COOKIE, read_cookie
from tidewire.frontends.rest.oauth.forms import client_credentials, given_parameters
from tidewire.frontends.rest.wire import parse_form, parse_segments, parse_token
from tidewire.frontends.soap.request_routing import parse_routing_keys
from tidewire.server.front import OrgFront
from tidewire.server.orgs import OpenOrg, Orgs
from tidewire.server.probes import PATHS, Probes
from tidewire.transport.http import HttpRequest, HttpResponse, cached_by_head
from tidewire.transport.routes import Exchange, Route

_UNAVAILABLE = HttpResponse(
    503,
    json.dumps(
        [{"errorCode": "SERVER_UNAVAILABLE", "message": "The org is not to be had now; try again later"}]
    ).encode(),
)


class OrgRouter:
    """Hands every request, on whatever listener, to its org."""

    def __init__(self, orgs: Orgs, probes: Probes) -> None:
        self._orgs = orgs
        self._probes = probes
        self._tasks: set[asyncio.Task[None]] = set()

    async def answer(self, request: HttpRequest) -> HttpResponse:
        """Answer a REST, SOAP, OAuth or page request. Never raises."""
        orgs = self._orgs
        if request.raw_path in PATHS:
            return await self._probes.answer(request)
        if request.method == "OPTIONS":
            preflight = try_answer_preflight(request, orgs.cors_origins())
            if preflight is not None:
                return preflight
        try:
            token = _try_data_token(request)
            org_id = orgs.try_known(token) if token is not None else None
            org = await orgs.enter(org_id or await self._choose(request))
        except PlatformError:
            return _UNAVAILABLE
        try:
            return await org.http.answer(request)
        finally:
            orgs.leave(org)

    def bayeux_route(self, first: OrgFront) -> Route:
        """The route of Bayeux requests, formed as any org's is."""
        return replace(first.route, park=self.park)

    def park(self, request: HttpRequest, exchange: Exchange) -> None:
        """Hand over a Bayeux request; at once if its org is open, as all but the first are."""
        try:
            token = parse_bayeux_token(request.headers.get("authorization"))
        except AuthHeaderInvalid:
            token = ""
        org_id = self._orgs.try_known(token)
        org = self._orgs.try_open(org_id) if org_id else None
        if org is not None and org.front is not None:
            org.front.park(request, exchange)
            return
        task = asyncio.get_running_loop().create_task(self._park_later(token, request, exchange))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _park_later(self, token: str, request: HttpRequest, exchange: Exchange) -> None:
        try:
            async with self._orgs.using(await self._orgs.of_token(token)) as org:
                _front(org).park(request, exchange)
        except PlatformError:
            exchange.respond(503, b"[]")

    @asynccontextmanager
    async def find_pubsub(self, token: str) -> AsyncIterator[CallAnswerer]:
        """The Pub/Sub front end of a token's org. Raises PlatformError if the org cannot be had."""
        async with self._orgs.using(await self._orgs.of_token(token)) as org:
            yield _front(org).pubsub

    async def _choose(self, request: HttpRequest) -> str:
        if request.method == "POST" and request.raw_path.startswith("/services/Soap/"):
            keys = parse_routing_keys(request.body)
            if keys.token:
                return await self._orgs.of_token(keys.token)
            return await self._orgs.of_login(keys.username)
        match parse_segments(request.raw_path) or ():
            case ("services", "oauth2", "token"):
                return await self._choose_grantor(request)
            case ("services", "oauth2", "authorize") | ("setup", "connect"):
                return await self._choose_page(request)
            case ("services", "oauth2", "revoke" | "introspect"):
                given = given_parameters(request)
                return await self._of_code(given.get("token", ""), client_credentials(request, given)[0])
            case _:
                return await self._orgs.of_token(_token(request))

    async def _choose_grantor(self, request: HttpRequest) -> str:
        """The token endpoint: what is given in exchange tells."""
        form = parse_form(request) or {}
        client_id, secret = client_credentials(request, form)
        match form.get("grant_type", ""):
            case "password":
                return await self._orgs.of_login(form.get("username", ""), client_id)
            case "authorization_code" | "device":
                return await self._of_code(form.get("code", ""), client_id)
            case "refresh_token":
                return await self._of_code(form.get("refresh_token", ""), client_id)
            case "urn:ietf:params:oauth:grant-type:jwt-bearer":
                try:
                    assertion = await read_assertion(form.get("assertion", ""))
                except GrantInvalid:
                    return self._orgs.first_id
                return await self._orgs.of_login(assertion.subject, assertion.issuer)
            case _:
                return await self._orgs.of_client(client_id, secret)

    async def _choose_page(self, request: HttpRequest) -> str:
        """The login pages: who signs in tells, then who is signed in, then for which app."""
        form = (parse_form(request) or {}) if request.method == "POST" else {}
        asked = _asked(form) if "action" in form else given_parameters(request)
        client_id = asked.get("client_id")
        if form.get("action") == "login":
            return await self._orgs.of_login(form.get("username", ""), client_id)
        cookie = read_cookie(request, SESSION_COOKIE)
        signed_in = await self._orgs.of_token(cookie) if cookie else None
        if client_id is None:
            return signed_in or self._orgs.first_id
        return await self._orgs.of_client(client_id, prefers=signed_in)

    async def _of_code(self, code: str, client_id: str) -> str:
        """The org of something that was given out before. What does not say it goes where its app is."""
        if code[15:16] in ("!", "."):
            return await self._orgs.of_token(code)
        return await self._orgs.of_client(client_id)


@cached_by_head
def _try_data_token(request: HttpRequest) -> str | None:
    """The token of a request to the data API that has it where nearly all have it, or None."""
    if (parse_segments(request.raw_path) or ())[:2] != ("services", "data"):
        return None
    try:
        return parse_token(request)
    except AuthHeaderInvalid:
        return None


def _token(request: HttpRequest) -> str:
    """The session token, in whichever place this kind of request has it."""
    try:
        return parse_token(request)
    except AuthHeaderInvalid:
        pass
    if "x-sfdc-session" in request.headers:
        return request.headers["x-sfdc-session"].strip()
    given = given_parameters(request)
    return given.get("oauth_token") or given.get("access_token") or read_cookie(request, SESSION_COOKIE)


def _asked(form: dict[str, str]) -> dict[str, str]:
    """What a browser wanted before it was shown the form that it sends now."""
    return dict(parse_qsl(form.get("request", ""), keep_blank_values=True))


def _front(org: OpenOrg) -> OrgFront:
    if org.front is None:
        raise InternalError("this org's clients belong to the edges")
    return org.front
