"""Histograms, log forms and traces, without a server."""

from __future__ import annotations

import contextvars
import io
import json
import logging
from collections.abc import Iterator

import pytest

from tests.collectors import Collector, running_collector
from tidewire.delivery.usage import CommitLatency
from tidewire.events import CommittedBatch, Event, Family
from tidewire.server.probes import Exposition
from tidewire.telemetry import BOUNDS_S, TIMINGS, Histogram, configure_logging
from tidewire.tracing import (
    INTERNAL,
    add_span,
    begin_request,
    configure_tracing,
    current_trace,
    end_request,
    end_tracing,
    follow_trace,
)

GIVEN = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-"


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """Where log lines go during the test."""
    root = logging.getLogger()
    before = root.handlers[:], root.level
    stream = io.StringIO()
    yield stream
    root.handlers[:], root.level = before


def test_histogram_counts_what_lies_on_a_bound_below_it() -> None:
    seen = Histogram()
    seen.observe(BOUNDS_S[0])
    seen.observe(BOUNDS_S[-1] + 1, 2)
    assert seen.buckets[0] == 1
    assert seen.buckets[-1] == 2
    other = Histogram()
    other.add(seen.buckets, seen.total_s)
    assert (other.buckets, other.total_s) == (seen.buckets, seen.total_s)


def test_exposition_adds_buckets_up_and_escapes_labels() -> None:
    out, seen = Exposition(), Histogram()
    seen.observe(0.0004)
    seen.observe(20.0)
    out.histogram("t_seconds", "time", [({"kind": 'a"b\\c\n'}, seen)])
    out.gauge("t_share", "share", [({}, 0.25), ({}, 3)])
    lines = out.text().splitlines()
    assert lines[:2] == ["# HELP t_seconds time", "# TYPE t_seconds histogram"]
    assert lines[2] == 't_seconds_bucket{kind="a\\"b\\\\c\\n",le="0.0005"} 1'
    assert 't_seconds_bucket{kind="a\\"b\\\\c\\n",le="10"} 1' in lines
    assert 't_seconds_bucket{kind="a\\"b\\\\c\\n",le="+Inf"} 2' in lines
    assert 't_seconds_count{kind="a\\"b\\\\c\\n"} 2' in lines
    assert lines[-2:] == ["t_share 0.250", "t_share 3"]


@pytest.mark.parametrize("form", ["json", "text"])
def test_log_line_cannot_be_forged_by_its_values(lines: io.StringIO, form: str) -> None:
    configure_logging("INFO", lines, form)
    logging.getLogger("x").warning("rest.refused", extra={"path": "/a\nforged", "count": 3})
    logging.getLogger("x").warning("a\nb")
    told = lines.getvalue().splitlines()
    assert len(told) == 2
    if form == "json":
        assert json.loads(told[0])["path"] == "/a\nforged"
    else:
        assert told[0].endswith('WARNING rest.refused path="/a\\nforged" count=3')


def test_nothing_is_traced_unless_the_environment_asks() -> None:
    for environment in (
        {},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_SDK_DISABLED": "true"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "ftp://elsewhere"},
    ):
        configure_tracing(environment)
        assert begin_request(GIVEN + "01") is None
        assert current_trace() is None
        assert add_span(GIVEN + "01", "commit", INTERNAL, 0.0, {}) is None


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """A collector that this process sends its spans to."""
    monkeypatch.setattr("tidewire.tracing._TIMEOUT_S", 60.0)
    with running_collector() as running:
        environment = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": running.url + "/here"}
        configure_tracing(environment | {"OTEL_EXPORTER_OTLP_HEADERS": "x-key=a%20b"})
        yield running
        end_tracing()


def test_span_takes_up_the_callers_trace_and_ends_with_its_status(collector: Collector) -> None:
    span = begin_request(GIVEN + "01")
    assert span is not None
    assert current_trace() == span.trace
    end_request(span, "rest request", {"http.response.status_code": 503}, is_error=True)
    end_tracing()
    told = collector.wait_for(lambda each: each["name"] == "rest request")
    assert (told["traceId"], told["parentSpanId"]) == (GIVEN.split("-")[1], GIVEN.split("-")[2])
    assert told["attributes"] == [{"key": "http.response.status_code", "value": {"intValue": "503"}}]
    assert told["status"] == {"code": 2}
    assert collector.paths == ["/here"]


@pytest.mark.parametrize("traceparent", ["", "nonsense", "00-zz-00-01", GIVEN])
def test_request_without_a_readable_trace_begins_one(collector: Collector, traceparent: str) -> None:
    span = begin_request(traceparent)
    assert span is not None
    assert span.parent_id == ""
    assert len(span.trace.trace_id) == 32


def test_request_that_its_caller_does_not_record_is_not_traced(collector: Collector) -> None:
    assert begin_request(GIVEN + "00") is None


def test_task_that_follows_the_trace_of_another_process_is_part_of_it(collector: Collector) -> None:
    def following(text: str) -> str:
        follow_trace(text)
        return str(current_trace() or "")

    assert contextvars.copy_context().run(following, GIVEN + "01") == GIVEN + "01"
    assert contextvars.Context().run(following, "nonsense") == ""


def test_collector_that_is_away_costs_spans_only(lines: io.StringIO) -> None:
    configure_logging("INFO", lines)
    configure_tracing({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"})
    assert add_span(GIVEN + "01", "commit", INTERNAL, 0.0, {}) is not None
    end_tracing()
    told = [json.loads(line)["event"] for line in lines.getvalue().splitlines()]
    assert [event for event in told if event.startswith("tracing.")] == ["tracing.export_failed"]


def test_delivery_of_a_commit_is_timed_and_traced_once_for_each_write(collector: Collector) -> None:
    latency = CommitLatency()
    event = Event(41, "AccountChangeEvent", Family.CHANGE, b"", 0, "", "", 41)
    latency.add_commit(CommittedBatch((event,), 41, 0, traces=((41, GIVEN + "01"),)))
    before = sum(TIMINGS["pubsub.commit_delivered"].buckets)
    latency.observe_delivery("pubsub", 40)  # behind what is remembered: nothing can be said
    latency.observe_delivery("pubsub", 41, 3)
    assert sum(TIMINGS["pubsub.commit_delivered"].buckets) == before + 3
    end_tracing()
    assert collector.wait_for(lambda each: True)["name"] == "deliver pubsub"
