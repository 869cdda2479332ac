"""`GET /metrics`: the totals in Prometheus' text format, with GenAI names where they exist."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)

from lightgate import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prometheus_client import Metric

    from lightgate.console.totals import Totals
    from lightgate.gateway.process.lock import SupervisorState
    from lightgate.ledger.journal.ship import Shipped

TARGET: Final = ("gen_ai_provider_name", "gen_ai_request_model")


class Meter(NamedTuple):
    """A metric's name, kind, labels and meaning: a row of the reference page."""

    name: str
    kind: str
    labels: tuple[str, ...]
    means: str


METERS: Final = (
    Meter("gen_ai_client_operation_duration_seconds", "histogram", TARGET,
          "Whole answers of providers, from sending to the last byte; complete answers only."),
    Meter("gen_ai_server_time_to_first_token_seconds", "histogram", TARGET,
          "Time to first token of providers; complete streamed answers only."),
    Meter("lightgate_overhead_seconds", "histogram", TARGET,
          "What the gateway itself added to a request that ended well."),
    Meter("lightgate_attempts_total", "counter", (*TARGET, "outcome"),
          "Attempts at providers, by how they ended."),
    Meter("lightgate_tokens_total", "counter", (*TARGET, "gen_ai_token_type"),
          "Tokens of attempts, as providers count them: input or output."),
    Meter("lightgate_cost_usd_total", "counter", TARGET,
          "Dollars of attempts whose price is known."),
    Meter("lightgate_exchanges_total", "counter", ("model", "result"),
          "Requests of clients, by alias or known target, ok or failed."),
    Meter("lightgate_shipped_notes_total", "counter", (),
          "Notes of journals that were carried into the ledger."),
    Meter("lightgate_orphans_total", "counter", (),
          "Requests that a dead worker left open and that were settled as estimated."),
    Meter("lightgate_journal_damaged_total", "counter", (),
          "Journals with a frame that is not what was written."),
    Meter("lightgate_ship_failures_total", "counter", (),
          "Passes over the journals that failed and are tried again."),
    Meter("lightgate_ship_lag_seconds", "gauge", (),
          "Time since the last whole pass over the journals."),
    Meter("lightgate_child_up", "gauge", ("child",),
          "Whether a child process of `lightgate up` serves."),
    Meter("lightgate_child_restarts_total", "counter", ("child",),
          "How often a child process was started again."),
    Meter("lightgate_info", "gauge", ("version",),
          "The version of Lightgate."),
)  # fmt: skip
_BY_NAME: Final = {meter.name: meter for meter in METERS}
_TIMES: Final = {
    "e2e_ms": "gen_ai_client_operation_duration_seconds",
    "ttft_ms": "gen_ai_server_time_to_first_token_seconds",
    "overhead_ms": "lightgate_overhead_seconds",
}


class Scrape(NamedTuple):
    """The sources of one scrape."""

    totals: Totals
    shipped: Shipped
    failures: int
    lag_s: float | None
    state: SupervisorState | None


class _Collector:
    def __init__(self, reading: Scrape) -> None:
        self._reading = reading

    def collect(self) -> Iterator[Metric]:
        """Every metric of the table, in its order."""
        yield from self._histograms()
        yield from self._counters()
        yield from self._shipping()
        yield from self._children()
        info = InfoMetricFamily("lightgate", _BY_NAME["lightgate_info"].means)
        info.add_metric((), {"version": __version__})
        yield info

    def _histograms(self) -> Iterator[Metric]:
        for metric, name in _TIMES.items():
            family = HistogramMetricFamily(name, _BY_NAME[name].means, labels=TARGET)
            for (which, place), histogram in self._reading.totals.times.items():
                if which == metric:
                    bounds = (*(f"{bound:g}" for bound in histogram.bounds_s), "+Inf")
                    family.add_metric(
                        place,
                        list(zip(bounds, histogram.counts, strict=True)),
                        histogram.sum_s,
                    )
            yield family

    def _counters(self) -> Iterator[Metric]:
        totals = self._reading.totals
        ended = (((*place, how), n) for (place, how), n in totals.outcomes.items())
        yield _counter("lightgate_attempts_total", ended)
        tokens = (((*place, kind), n) for (place, kind), n in totals.tokens.items())
        yield _counter("lightgate_tokens_total", tokens)
        yield _counter("lightgate_cost_usd_total", totals.cost_usd.items())
        yield _counter("lightgate_exchanges_total", totals.exchanges.items())

    def _shipping(self) -> Iterator[Metric]:
        reading, shipped = self._reading, self._reading.shipped
        yield _counter("lightgate_shipped_notes_total", (((), shipped.records),))
        yield _counter("lightgate_orphans_total", (((), shipped.orphans),))
        yield _counter("lightgate_journal_damaged_total", (((), shipped.damaged),))
        yield _counter("lightgate_ship_failures_total", (((), reading.failures),))
        if reading.lag_s is not None:
            yield _gauge("lightgate_ship_lag_seconds", (((), reading.lag_s),))

    def _children(self) -> Iterator[Metric]:
        children = () if self._reading.state is None else self._reading.state.children
        yield _gauge("lightgate_child_up", (((c.name,), float(c.ready)) for c in children))
        again = (((c.name,), c.restarts) for c in children)
        yield _counter("lightgate_child_restarts_total", again)


def exposition(reading: Scrape) -> bytes:
    """The text that Prometheus reads."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(reading))
    return generate_latest(registry)


def _counter(name: str, samples: Iterable[tuple[tuple[str, ...], float]]) -> Metric:
    meter = _BY_NAME[name]
    family = CounterMetricFamily(name, meter.means, labels=meter.labels)
    for labels, value in samples:
        family.add_metric(labels, value)
    return family


def _gauge(name: str, samples: Iterable[tuple[tuple[str, ...], float]]) -> Metric:
    meter = _BY_NAME[name]
    family = GaugeMetricFamily(name, meter.means, labels=meter.labels)
    for labels, value in samples:
        family.add_metric(labels, value)
    return family
