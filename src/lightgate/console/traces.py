"""Traces: one span for each exchange and one for each attempt, sent to an OpenTelemetry collector.

Spans are made of what has been shipped, by a thread of the control process: no request waits for
them. They have no prompt, no answer and no provider's words. Off unless the standard variables of
OpenTelemetry name a collector; the library is the extra `lightgate[otel]`.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from typing import TYPE_CHECKING, Final, Protocol

from lightgate.console.spans import sampled, spans_of
from lightgate.console.totals import PROBE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lightgate.console.spans import SpanFacts
    from lightgate.ledger.journal.notes import Settled

ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
SAMPLE: Final = "OTEL_TRACES_SAMPLER_ARG"  # the share of traces that no client's mark decides about
MOST_WAITING: Final = 4096  # exchanges; those that come while so many wait are dropped
AT_ONCE: Final = 256
CLOSE_S: Final = 3.0
_log = logging.getLogger(__name__)


class SpanSink(Protocol):
    """Where spans go; `OtlpSink` is one."""

    def send(self, spans: Sequence[SpanFacts]) -> bool:
        """Send spans; whether they were taken."""
        ...

    def close(self) -> None:
        """Send nothing more."""


class Traces:
    """Turns shipped exchanges into spans and sends them, on a thread of its own.

    `counts` says how many spans were sent, failed (the collector did not take them) and dropped
    (too many were waiting).
    """

    def __init__(self, sink: SpanSink | None, sample: float = 1.0) -> None:
        self._sink = sink
        self._sample = sample
        self._waiting: deque[Settled] = deque()
        self._wake = threading.Event()
        self._ending = False
        self.counts: Counter[str] = Counter(sent=0, failed=0, dropped=0)
        self._thread = threading.Thread(target=self._run, name="traces", daemon=True)
        if sink is not None:
            self._thread.start()

    def take(self, settled: Sequence[Settled]) -> None:
        """Send the spans of these exchanges some time later."""
        if self._sink is None:
            return
        for note in settled:
            if note.exchange.policy != PROBE and sampled(note.exchange, self._sample):
                if len(self._waiting) >= MOST_WAITING:
                    self.counts["dropped"] += 1 + len(note.attempts)
                else:
                    self._waiting.append(note)
        self._wake.set()

    def close(self) -> None:
        """Send what waits, as far as the collector takes it soon."""
        if self._sink is not None and not self._ending:
            self._ending = True
            self._wake.set()
            self._thread.join(CLOSE_S)
            self._sink.close()

    def _run(self) -> None:
        while not self._ending or self._waiting:
            self._wake.wait()
            self._wake.clear()
            while self._waiting:
                some = [self._waiting.popleft() for _ in range(min(AT_ONCE, len(self._waiting)))]
                self._send([span for note in some for span in spans_of(note)])

    def _send(self, spans: list[SpanFacts]) -> None:
        try:
            taken = self._sink is not None and self._sink.send(spans)
        except Exception:  # noqa: BLE001 - the wall of a background task: spans are not worth a gateway
            _log.exception("Spans could not be sent")
            taken = False
        self.counts["sent" if taken else "failed"] += len(spans)


def make_traces(env: Mapping[str, str]) -> Traces:
    """The traces that the environment asks for; none where it names no collector."""
    off = env.get("OTEL_SDK_DISABLED", "").lower() == "true"
    off = off or env.get("OTEL_TRACES_EXPORTER", "otlp").lower() == "none"
    if off or not any(env.get(name, "").strip() for name in ENDPOINTS):
        return Traces(None)
    try:
        sample = float(env.get(SAMPLE) or 1.0)
    except ValueError:
        sample = 1.0
    try:
        from lightgate.console.otlp import OtlpSink

        return Traces(OtlpSink(env), min(1.0, max(0.0, sample)))
    except ImportError:
        _log.error(
            "Traces are configured and their library is not installed. Install lightgate[otel]."
        )
        return Traces(None)
