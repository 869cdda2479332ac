"""Spans by OTLP over HTTP, by OpenTelemetry's own exporter, with all of its standard variables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags
from opentelemetry.trace.status import Status, StatusCode

from lightgate import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lightgate.console.spans import SpanFacts

FIRST_TOKEN = "lightgate.first_token"  # noqa: S105 - an event of a span


class OtlpSink:
    """Sends spans to the collector that the environment names."""

    def __init__(self, env: Mapping[str, str]) -> None:
        named = {"service.name": "lightgate"} if not env.get("OTEL_SERVICE_NAME") else {}
        self._resource = Resource.create({**named, "service.version": __version__})
        self._scope = InstrumentationScope("lightgate", __version__)
        self._exporter = OTLPSpanExporter()

    def send(self, spans: Sequence[SpanFacts]) -> bool:
        """Send spans; whether the collector took them."""
        made = [self._span(span) for span in spans]
        return self._exporter.export(made) is SpanExportResult.SUCCESS

    def close(self) -> None:
        """Send nothing more."""
        self._exporter.shutdown()

    def _span(self, span: SpanFacts) -> ReadableSpan:
        flags = TraceFlags(TraceFlags.SAMPLED)
        context = SpanContext(span.trace_id, span.span_id, is_remote=False, trace_flags=flags)
        parent = None
        if span.parent_id is not None:
            parent = SpanContext(
                span.trace_id, span.parent_id, is_remote=span.parent_remote, trace_flags=flags
            )
        first = span.first_token_ns
        return ReadableSpan(
            name=span.name,
            context=context,
            parent=parent,
            resource=self._resource,
            attributes=span.attributes,
            events=() if first is None else (Event(FIRST_TOKEN, timestamp=first),),
            kind=SpanKind.SERVER if span.server else SpanKind.CLIENT,
            status=Status(StatusCode.UNSET if span.failed is None else StatusCode.ERROR),
            start_time=span.start_ns,
            end_time=span.end_ns,
            instrumentation_scope=self._scope,
        )
