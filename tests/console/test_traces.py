"""Traces: what is sent, read by OpenTelemetry's own message types."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from ledger.notes import MS, T0, Called, attempt_note, marks, settled
from lightgate.clock.outcome import Outcome
from lightgate.console import traces as module
from lightgate.console.spans import sampled, spans_of, trace_of
from lightgate.console.traces import ENDPOINTS, Traces, make_traces
from lightgate.errors import PeerReset

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lightgate.console.spans import SpanFacts
    from lightgate.ledger.journal.notes import Settled

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"


def raced(**changes: Any) -> Settled:
    """An exchange whose first attempt broke and whose hedge won."""
    failed = Called(outcome=Outcome.RESET, error=PeerReset("said: my secret prompt"), status=None)
    lost = attempt_note("x-1", None, failed, id="x-1.0", role="primary", won=False)
    won = attempt_note("x-1", marks(), None, id="x-1.1", role="hedge", won=True)
    return settled("x-1", lost, won, error="said: my secret prompt", **changes)


class Collector:
    """A server that reads what an OTLP exporter sends, with the official types."""

    def __init__(self, status: int = 200) -> None:
        self.bodies: list[bytes] = []
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.got = threading.Event()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                collector.bodies.append(self.rfile.read(int(self.headers["content-length"])))
                collector.paths.append(self.path)
                collector.headers.append({k.lower(): v for k, v in self.headers.items()})
                self.send_response(status)
                self.send_header("content-length", "0")
                self.end_headers()
                collector.got.set()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def spans(self) -> list[Any]:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
            ExportTraceServiceRequest,
        )

        found = []
        for body in self.bodies:
            request = ExportTraceServiceRequest()
            request.ParseFromString(body)
            for resource in request.resource_spans:
                named = {a.key: a.value.string_value for a in resource.resource.attributes}
                assert named["service.name"] == "lightgate"
                found += [span for scope in resource.scope_spans for span in scope.spans]
        return found

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def collector(missing: Callable[[str], None]) -> Iterator[Collector]:
    try:
        import opentelemetry.exporter.otlp.proto.http
        import opentelemetry.sdk.trace  # noqa: F401
    except ImportError:
        missing("the extra otel is not installed: `make test` installs it")
    made = Collector()
    yield made
    made.close()


def values(span: Any) -> dict[str, Any]:
    """The attributes of a span of the official type."""
    found = {}
    for one in span.attributes:
        kind = one.value.WhichOneof("value")
        value = getattr(one.value, kind)
        found[one.key] = [v.string_value for v in value.values] if kind == "array_value" else value
    return found


def test_a_collector_gets_a_span_for_the_exchange_and_one_for_each_attempt(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.address)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=blue")
    traces = make_traces({"OTEL_EXPORTER_OTLP_ENDPOINT": collector.address})
    traces.take([raced(traceparent=PARENT, tags="team=search")])
    traces.close()
    assert collector.paths == ["/v1/traces"]
    assert collector.headers[0]["x-tenant"] == "blue"
    exchange, lost, won = collector.spans()
    assert traces.counts == {"sent": 3, "failed": 0, "dropped": 0}
    # The client's trace goes on.
    assert {span.trace_id.hex() for span in (exchange, lost, won)} == {TRACE}
    assert exchange.parent_span_id.hex() == SPAN
    assert lost.parent_span_id == won.parent_span_id == exchange.span_id
    assert len({exchange.span_id, lost.span_id, won.span_id}) == 3
    kinds = exchange.SpanKind
    assert (exchange.kind, won.kind) == (kinds.SPAN_KIND_SERVER, kinds.SPAN_KIND_CLIENT)
    # What it was, by the conventions' names.
    assert (exchange.name, won.name) == ("chat fast", "chat s1")
    told = values(won)
    assert told["gen_ai.provider.name"] == "lab"
    assert told["gen_ai.request.model"] == "s1"
    assert told["gen_ai.usage.input_tokens"] == 12
    assert told["gen_ai.usage.output_tokens"] == 4
    assert told["gen_ai.response.finish_reasons"] == ["stop"]
    assert told["gen_ai.response.time_to_first_chunk"] == pytest.approx(0.1)
    assert (told["lightgate.role"], told["lightgate.won"]) == ("hedge", True)
    assert values(lost)["error.type"] == "reset"
    assert values(lost)["lightgate.won"] is False
    assert lost.status.code == lost.status.STATUS_CODE_ERROR
    assert won.status.code == won.status.STATUS_CODE_UNSET
    assert values(exchange)["lightgate.tags"] == "team=search"
    # And when: the exchange's first byte came a millisecond before the whole request.
    assert exchange.start_time_unix_nano == T0 - MS
    assert exchange.end_time_unix_nano == T0 + 131 * MS + MS // 2
    assert won.end_time_unix_nano == T0 + 131 * MS
    assert [(e.name, e.time_unix_nano) for e in won.events] == [
        ("lightgate.first_token", T0 + 101 * MS)
    ]
    assert b"secret prompt" not in b"".join(collector.bodies)


def test_a_collector_that_takes_nothing(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing = Collector(status=400)
    try:
        monkeypatch.setenv(ENDPOINTS[0], f"{refusing.address}/v1/traces")
        traces = make_traces({ENDPOINTS[0]: refusing.address})
        traces.take([settled("x-1")])
        traces.close()
        assert traces.counts == {"sent": 0, "failed": 2, "dropped": 0}
    finally:
        refusing.close()


class Sink:
    """Keeps spans, once it may."""

    def __init__(self) -> None:
        self.may = threading.Event()
        self.asked = threading.Event()
        self.spans: list[SpanFacts] = []

    def send(self, spans: Sequence[SpanFacts]) -> bool:
        self.asked.set()
        self.may.wait(60)
        self.spans += spans
        return True

    def close(self) -> None:
        pass


def test_no_more_wait_than_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_WAITING", 5)
    sink = Sink()
    traces = Traces(sink)
    traces.take([settled("first")])
    assert sink.asked.wait(60)
    traces.take([settled(f"x-{at}") for at in range(8)])
    assert traces.counts["dropped"] == 3 * 2
    sink.may.set()
    traces.close()
    assert len(sink.spans) == 6 * 2


def test_a_sink_that_breaks_is_not_the_end() -> None:
    class Broken(Sink):
        def send(self, spans: Sequence[SpanFacts]) -> bool:
            raise OSError("gone")

    traces = Traces(Broken())
    traces.take([settled("x-1")])
    traces.close()
    assert traces.counts["failed"] == 2


def test_the_clients_mark_decides_else_the_share() -> None:
    one = settled("x-1").exchange
    marked = settled("x-1", traceparent=PARENT).exchange
    unmarked = settled("x-1", traceparent=PARENT[:-1] + "0").exchange
    assert sampled(marked, 0.0)
    assert not sampled(unmarked, 1.0)
    assert sampled(one, 1.0)
    assert not sampled(one, 0.0)
    share = sum(sampled(settled(f"x-{at}").exchange, 0.25) for at in range(2000)) / 2000
    assert share == pytest.approx(0.25, abs=0.03)


def test_a_trace_of_our_own_and_one_that_is_all_zeros() -> None:
    one, other = settled("x-1").exchange, settled("x-2").exchange
    assert trace_of(one) == trace_of(settled("x-1").exchange)
    assert trace_of(one) != trace_of(other)
    assert trace_of(one)[1] is None
    zeros = settled("x-1", traceparent=f"00-{'0' * 32}-{SPAN}-01").exchange
    assert trace_of(zeros) == trace_of(one)  # W3C: such a trace is none


def test_probes_and_estimates() -> None:
    sink = Sink()
    sink.may.set()
    traces = Traces(sink)
    traces.take([settled("x-1", policy="probe")])
    orphan = settled("x-2", received_ns=None, first_byte_ns=None, last_out_ns=None, closed_ns=None)
    assert [span.start_ns for span in spans_of(orphan)[:1]] == [T0]
    traces.close()
    assert sink.spans == []


@pytest.mark.parametrize(
    "env",
    [
        {},
        {ENDPOINTS[0]: " "},
        {ENDPOINTS[1]: "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "true"},
        {ENDPOINTS[1]: "http://127.0.0.1:1", "OTEL_TRACES_EXPORTER": "none"},
    ],
)
def test_off_unless_it_is_asked_for(env: dict[str, str]) -> None:
    traces = make_traces(env)
    traces.take([settled("x-1")])
    traces.close()
    assert sum(traces.counts.values()) == 0
    assert not traces._thread.is_alive()
