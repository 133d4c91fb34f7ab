from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager

import pytest
import uvloop

from tidewire.clock import Clock, ManualClock, SystemClock
from tidewire.transport.http import HttpRequest, HttpResponse
from tidewire.transport.http_server import HttpListener, serve_http
from tidewire.transport.request_reader import HttpLimits
from tidewire.transport.routes import Exchange, Route, Router

GET = b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n"
QUICK_SWEEP = HttpLimits(sweep_s=0.01)
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def echo(request: HttpRequest) -> HttpResponse:
    body = f"{request.method} {request.target} {request.body.decode()}".encode()
    return HttpResponse(200, body, "text/plain", (("X-Peer", request.peer),))


async def fail(request: HttpRequest) -> HttpResponse:
    raise RuntimeError("a secret detail")


async def big(request: HttpRequest) -> HttpResponse:
    return HttpResponse(200, b"x" * 64_000_000)


class Parking:
    """Holds every request it gets until told."""

    def __init__(self) -> None:
        self.arrived: asyncio.Queue[Exchange] = asyncio.Queue()
        self.left: asyncio.Queue[Exchange] = asyncio.Queue()

    def park(self, request: HttpRequest, exchange: Exchange) -> None:
        exchange.on_close = self.left.put_nowait
        self.arrived.put_nowait(exchange)


@asynccontextmanager
async def listening(
    *routes: Route, clock: Clock | None = None, limits: HttpLimits = QUICK_SWEEP
) -> AsyncIterator[HttpListener]:
    router = Router([Route("/", handle=echo), *routes])
    listener = await serve_http(router, "127.0.0.1", 0, clock=clock or SystemClock(), limits=limits)
    try:
        yield listener
    finally:
        await listener.close(0.1)


@asynccontextmanager
async def connected(listener: HttpListener) -> AsyncIterator[Streams]:
    reader, writer = await asyncio.open_connection(listener.host, listener.port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def read_response(
    reader: asyncio.StreamReader, *, has_body: bool = True
) -> tuple[int, dict[str, str], bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
    body = await reader.readexactly(int(headers["content-length"])) if has_body else b""
    return int(head[0].split()[1]), headers, body


@pytest.fixture(params=["uvloop", "asyncio"])
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[None, None, None]], None]:
    """Runs a scenario on each kind of loop, within a minute: less than the default idle timeout."""
    factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop

    def run_scenario(scenario: Coroutine[None, None, None]) -> None:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(asyncio.wait_for(scenario, 60))

    return run_scenario


Run = Callable[[Coroutine[None, None, None]], None]


def test_pipelined_requests_are_answered_in_order(run: Run) -> None:
    async def scenario() -> None:
        async with listening() as listener, connected(listener) as (reader, writer):
            writer.write(b"".join(b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n" % i for i in range(30)))
            for i in range(30):
                status, headers, body = await read_response(reader)
                assert (status, body) == (200, b"GET /%d " % i)
                assert headers["date"].endswith(" GMT")
                assert "connection" not in headers

    run(scenario())


def test_parked_request_behind_another_waits_its_turn(run: Run) -> None:
    async def scenario() -> None:
        parking = Parking()
        async with (
            listening(Route("/park", park=parking.park)) as listener,
            connected(listener) as (reader, writer),
        ):
            writer.write(b"GET /park HTTP/1.1\r\nHost: x\r\n\r\n" + GET)
            exchange = await parking.arrived.get()
            assert exchange.is_open
            assert exchange.respond(200, b"late")
            assert not exchange.respond(200, b"again")
            assert (await read_response(reader))[2] == b"late"
            assert (await read_response(reader))[2] == b"GET /a "
            assert parking.left.empty()

    run(scenario())


def test_parked_exchange_learns_that_the_peer_has_left(run: Run) -> None:
    async def scenario() -> None:
        parking = Parking()
        async with listening(Route("/park", park=parking.park)) as listener:
            async with connected(listener) as (_, writer):
                writer.write(b"GET /park HTTP/1.1\r\nHost: x\r\n\r\n")
                exchange = await parking.arrived.get()
            assert await parking.left.get() is exchange
            assert not exchange.is_open
            assert not exchange.respond(200, b"nobody")

    run(scenario())


def test_half_closed_peer_still_gets_its_answer(run: Run) -> None:
    async def scenario() -> None:
        started = asyncio.Event()
        go_on = asyncio.Event()

        async def slow(request: HttpRequest) -> HttpResponse:
            started.set()
            await go_on.wait()
            return HttpResponse(200, b"done")

        async with (
            listening(Route("/slow", handle=slow)) as listener,
            connected(listener) as (reader, writer),
        ):
            writer.write(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
            await started.wait()
            writer.write_eof()
            # A second connection's round trip: by then the end of the first has been seen.
            async with connected(listener) as (other, other_writer):
                other_writer.write(GET)
                await read_response(other)
            go_on.set()
            status, headers, body = await read_response(reader)
            assert (status, body, headers["connection"]) == (200, b"done", "close")

    run(scenario())


def test_expect_continue_is_answered_before_the_body(run: Run) -> None:
    async def scenario() -> None:
        async with listening() as listener, connected(listener) as (reader, writer):
            writer.write(b"POST /a HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n")
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            writer.write(b"abc")
            assert (await read_response(reader))[2] == b"POST /a abc"

    run(scenario())


def test_expect_continue_behind_a_held_request_waits_for_its_answer(run: Run) -> None:
    async def scenario() -> None:
        parking = Parking()
        async with (
            listening(Route("/park", park=parking.park)) as listener,
            connected(listener) as (reader, writer),
        ):
            writer.write(b"GET /park HTTP/1.1\r\nHost: x\r\n\r\n")
            writer.write(b"POST /a HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n")
            (await parking.arrived.get()).respond(200, b"first")
            assert (await read_response(reader))[2] == b"first"
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"

    run(scenario())


def test_head_request_gets_the_length_but_no_body(run: Run) -> None:
    async def scenario() -> None:
        async with listening() as listener, connected(listener) as (reader, writer):
            writer.write(b"HEAD /a HTTP/1.1\r\nHost: x\r\n\r\n" + GET)
            _, headers, _ = await read_response(reader, has_body=False)
            assert headers["content-length"] == str(len("HEAD /a "))
            assert (await read_response(reader))[2] == b"GET /a "

    run(scenario())


def test_http_1_0_is_closed_unless_it_asks_to_stay(run: Run) -> None:
    async def scenario() -> None:
        async with listening() as listener, connected(listener) as (reader, writer):
            writer.write(b"GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
            assert (await read_response(reader))[1]["connection"] == "keep-alive"
            writer.write(b"GET /a HTTP/1.0\r\n\r\n")
            assert (await read_response(reader))[1]["connection"] == "close"
            assert await reader.read() == b""

    run(scenario())


def test_oversize_body_is_rejected_unread_and_the_response_arrives(run: Run) -> None:
    async def scenario() -> None:
        small = Route("/small", handle=echo, body_limit_bytes=100, too_large_text="Too much")
        async with listening(small) as listener, connected(listener) as (reader, writer):
            writer.write(
                b"POST /small HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 50_000
            )
            status, headers, body = await read_response(reader)
            assert (status, body, headers["connection"]) == (413, b"Too much\n", "close")
            assert await reader.read() == b""

    run(scenario())


@pytest.mark.parametrize(
    "data, after_s",
    [
        (b"GET /a HTTP/1.1\r\nHo", 10.1),
        (b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc", 20.1),
    ],
    ids=["head", "body"],
)
def test_slow_request_gets_408_and_is_closed(run: Run, data: bytes, after_s: float) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        async with listening(clock=clock) as listener, connected(listener) as (reader, writer):
            writer.write(data)
            async with connected(listener) as (other, other_writer):
                other_writer.write(GET)
                await read_response(other)
                clock.advance(after_s)
                assert (await read_response(reader))[0] == 408
                clock.advance(3)
                assert await reader.read() == b""

    run(scenario())


def test_idle_connection_is_closed_in_silence(run: Run) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        async with listening(clock=clock) as listener, connected(listener) as (reader, writer):
            writer.write(GET)
            await read_response(reader)
            clock.advance(121)
            assert await reader.read() == b""

    run(scenario())


def test_held_request_outlives_every_timeout(run: Run) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        parking = Parking()
        route = Route("/park", park=parking.park)
        async with listening(route, clock=clock) as listener, connected(listener) as (reader, writer):
            writer.write(b"GET /park HTTP/1.1\r\nHost: x\r\n\r\n")
            exchange = await parking.arrived.get()
            # An idle connection beside it shows when the sweep has passed.
            async with connected(listener) as (idle, _):
                clock.advance(1000)
                assert await idle.read() == b""
            assert exchange.respond(200, b"still here")
            assert (await read_response(reader))[2] == b"still here"

    run(scenario())


def test_peer_that_does_not_read_is_cut(run: Run) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        route = Route("/big", handle=big)
        async with listening(route, clock=clock) as listener, connected(listener) as (reader, writer):
            writer.write(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n")
            await reader.readuntil(b"\r\n\r\n")
            clock.advance(31)
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await reader.readexactly(64_000_000)

    run(scenario())


def test_raising_handler_becomes_a_bare_500(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with (
            listening(Route("/fail", handle=fail)) as listener,
            connected(listener) as (reader, writer),
        ):
            writer.write(b"GET /fail HTTP/1.1\r\nHost: x\r\n\r\n")
            status, _, body = await read_response(reader)
            assert (status, body) == (500, b"")

    run(scenario())
    assert "transport.handler_failed" in caplog.text


def test_response_header_with_a_line_break_is_not_sent(run: Run) -> None:
    async def split(request: HttpRequest) -> HttpResponse:
        return HttpResponse(200, b"", headers=(("Location", "/a\r\nSet-Cookie: x=1"),))

    async def scenario() -> None:
        async with (
            listening(Route("/split", handle=split)) as listener,
            connected(listener) as (reader, writer),
        ):
            writer.write(b"GET /split HTTP/1.1\r\nHost: x\r\n\r\n")
            status, headers, _ = await read_response(reader)
            assert status == 500
            assert "set-cookie" not in headers

    run(scenario())


@pytest.mark.parametrize(
    "offer, is_packed",
    [("gzip, deflate", True), ("br;q=1, gzip;q=0.5", True), ("gzip;q=0", False), ("br", False)],
)
def test_long_text_is_compressed_for_peers_that_ask(run: Run, offer: str, is_packed: bool) -> None:
    text = b'{"a":"' + b"x" * 5000 + b'"}'

    async def long(request: HttpRequest) -> HttpResponse:
        return HttpResponse(200, text)

    async def scenario() -> None:
        async with (
            listening(Route("/long", handle=long)) as listener,
            connected(listener) as (reader, writer),
        ):
            writer.write(f"GET /long HTTP/1.1\r\nHost: x\r\nAccept-Encoding: {offer}\r\n\r\n".encode())
            _, headers, body = await read_response(reader)
            assert (headers.get("content-encoding") == "gzip") is is_packed
            assert (gzip.decompress(body) if is_packed else body) == text

    run(scenario())


def test_close_lets_the_request_under_way_finish(run: Run) -> None:
    async def scenario() -> None:
        parking = Parking()
        async with (
            listening(Route("/park", park=parking.park)) as listener,
            connected(listener) as (reader, writer),
            connected(listener) as (idle, idle_writer),
        ):
            idle_writer.write(GET)
            await read_response(idle)
            writer.write(b"GET /park HTTP/1.1\r\nHost: x\r\n\r\n")
            exchange = await parking.arrived.get()
            closing = asyncio.create_task(listener.close(50))
            assert await idle.read() == b""
            exchange.respond(200, b"goodbye")
            _, headers, body = await read_response(reader)
            assert (headers["connection"], body) == ("close", b"goodbye")
            await closing

    run(scenario())


def test_route_prefix_covers_whole_segments_only() -> None:
    inner = Route("/cometd", handle=echo)
    router = Router([Route("/", handle=echo), inner])
    assert router.find("/cometd") is inner
    assert router.find("/cometd/62.0") is inner
    assert router.find("/cometdx").prefix == "/"
    assert router.find("*").prefix == "/"
