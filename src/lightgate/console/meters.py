"""`GET /metrics`: counters and gauges in Prometheus' formats, with GenAI names where they exist."""

from __future__ import annotations

from collections import Counter
from itertools import accumulate
from typing import TYPE_CHECKING, Final, NamedTuple, get_args

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.utils import floatToGoString

from lightgate import __version__
from lightgate.console.meter_list import METERS
from lightgate.console.workers import place_of
from lightgate.gateway.exchange.load import LAG_BOUNDS_NS
from lightgate.gateway.shared.store import StoreState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from prometheus_client import Metric

    from lightgate.console.totals import Histogram, OperationTotals, TargetTotals, Totals
    from lightgate.console.workers import ChildSeries, Workers
    from lightgate.ledger.journal.ship import Shipped

    Labels = tuple[str, ...]

_BY_NAME: Final = {meter.name: meter for meter in METERS}
_STATES: Final = ("closed", "held", "open", "half_open")
_NANO: Final = 1e-9


class Shipping(NamedTuple):
    """How the way from the journals to the ledger is."""

    shipped: Shipped
    failures: int
    lost: int
    lag_s: float | None
    waiting_bytes: int


class Scrape(NamedTuple):
    """The sources of one scrape."""

    totals: Totals
    workers: Workers
    shipping: Shipping
    spans: Mapping[str, int]
    children: Sequence[ChildSeries]


class _Collector:
    def __init__(self, reading: Scrape) -> None:
        self._reading = reading
        self._targets = sorted(reading.totals.targets.items())

    def collect(self) -> Iterator[Metric]:
        """Every metric of the table, in its order."""
        yield from self._operations()
        yield from self._targets_counted()
        yield from self._exchanges()
        yield from self._load()
        yield from self._worker_gauges()
        yield from self._shipping()
        yield from self._children()
        info = InfoMetricFamily("lightgate", _BY_NAME["lightgate_info"].means)
        info.add_metric((), {"version": __version__})
        yield info

    def _operations(self) -> Iterator[Metric]:
        """The histograms of the GenAI conventions, and our own two."""
        found = [
            ((name, *place), of)
            for place, target in self._targets
            for name, of in sorted(target.operations.items())
        ]
        yield _histogram("gen_ai_client_operation_duration_seconds", found, "duration")
        tokens = (
            ((*labels, kind), histogram)
            for labels, of in found
            for kind, histogram in of.tokens.items()
        )
        yield _histogram_of("gen_ai_client_token_usage", tokens)
        yield _histogram("gen_ai_server_time_to_first_token_seconds", found, "first_token")
        yield _histogram("gen_ai_server_time_per_output_token_seconds", found, "output_token")
        yield _histogram("lightgate_speed_tokens_per_second", self._targets, "speed")
        yield _histogram("lightgate_overhead_seconds", self._targets, "overhead")

    def _targets_counted(self) -> Iterator[Metric]:
        targets = self._targets
        ended = (((*place, how), n) for place, of in targets for how, n in of.outcomes.items())
        yield _counter("lightgate_attempts_total", ended)
        tokens = (((*place, kind), n) for place, of in targets for kind, n in of.tokens.items())
        yield _counter("lightgate_tokens_total", tokens)
        for name, role in (
            ("lightgate_hedges_total", "hedge"),
            ("lightgate_racers_total", "racer"),
            ("lightgate_fallbacks_total", "fallback"),
        ):
            yield _counter(
                name,
                (
                    ((*place, won), n)
                    for place, of in targets
                    for (found, won), n in of.roles.items()
                    if found == role
                ),
            )
        for name, field in (
            ("lightgate_cost_usd_total", "cost_nano"),
            ("lightgate_loser_cost_usd_total", "loser_nano"),
        ):
            yield _counter(name, ((place, getattr(of, field) * _NANO) for place, of in targets))

    def _exchanges(self) -> Iterator[Metric]:
        totals = self._reading.totals
        yield _counter("lightgate_exchanges_total", totals.exchanges.items())
        yield _counter("lightgate_cache_total", totals.shared.items())
        spent = (((key,), nano * _NANO) for key, nano in totals.key_nano.items())
        yield _counter("lightgate_key_cost_usd_total", spent)

    def _load(self) -> Iterator[Metric]:
        workers = self._reading.workers
        yield _counter("lightgate_shed_total", (((w,), n) for w, n in workers.shed.items()))
        yield _counter("lightgate_refused_total", (((w,), n) for w, n in workers.refused.items()))
        long = (((stage,), n) for stage, n in workers.turns.items())
        yield _counter("lightgate_loop_long_turns_total", long)
        bounds = _bounds(bound / 1e9 for bound in LAG_BOUNDS_NS)
        name = "lightgate_loop_lag_seconds"
        family = HistogramMetricFamily(name, _BY_NAME[name].means, labels=_BY_NAME[name].labels)
        for worker, lag in sorted(workers.lags.items()):
            pairs = list(zip(bounds, accumulate(lag.counts), strict=True))
            family.add_metric((str(worker),), pairs, lag.total_ns / 1e9)
        yield family

    def _worker_gauges(self) -> Iterator[Metric]:
        now, names = self._reading.workers.now, self._reading.totals.names
        for name, field in (
            ("lightgate_exchanges_under_way", "exchanges"),
            ("lightgate_connections", "connections"),
            ("lightgate_provider_connections", "provider_connections"),
            ("lightgate_body_bytes", "body_bytes"),
            ("lightgate_journal_waiting_notes", "waiting"),
            ("lightgate_cache_answers", "cache_answers"),
            ("lightgate_cache_bytes", "cache_bytes"),
        ):
            summed: Counter[Labels] = Counter()
            for gauges in now:
                summed[str(place_of(gauges)),] += getattr(gauges, field)
            yield _gauge(name, summed.items())
        flying: Counter[Labels] = Counter()
        states: Counter[Labels] = Counter()
        places = sorted({names.target(target) for target in names.configured})
        for gauges in now:
            worker = str(place_of(gauges))
            flying.update({(*place, worker): 0 for place in places})
            for target, count in gauges.in_flight.items():
                flying[*names.target(target), worker] += count
            known = dict.fromkeys(names.configured, "closed") | gauges.breakers
            for target, state in known.items():
                states[*names.target(target), state] += 1
        yield _gauge("lightgate_in_flight", flying.items())
        stores = Counter((gauges.store.state,) for gauges in now if gauges.store is not None)
        yield _gauge(
            "lightgate_shared_state_workers",
            (((state,), stores[state,]) for state in get_args(StoreState)),
        )
        shown = dict.fromkeys(labels[:2] for labels in states)
        yield _gauge(
            "lightgate_breaker_workers",
            (((*place, state), states[*place, state]) for place in shown for state in _STATES),
        )

    def _shipping(self) -> Iterator[Metric]:
        shipping = self._reading.shipping
        shipped = shipping.shipped
        yield _counter("lightgate_shipped_notes_total", (((), shipped.records),))
        yield _counter("lightgate_orphans_total", (((), shipped.orphans),))
        yield _counter("lightgate_journal_damaged_total", (((), shipped.damaged),))
        yield _counter("lightgate_ship_failures_total", (((), shipping.failures),))
        yield _counter("lightgate_ledger_lost_total", (((), shipping.lost),))
        lag = () if shipping.lag_s is None else (((), shipping.lag_s),)
        yield _gauge("lightgate_ship_lag_seconds", lag)
        yield _gauge("lightgate_journal_waiting_bytes", (((), shipping.waiting_bytes),))
        spans = (((result,), n) for result, n in self._reading.spans.items())
        yield _counter("lightgate_spans_total", spans)

    def _children(self) -> Iterator[Metric]:
        children = self._reading.children
        yield _gauge("lightgate_child_up", (((c.name,), float(c.up)) for c in children))
        again = (((c.name,), c.restarts) for c in children)
        yield _counter("lightgate_child_restarts_total", again)
        facts = [((c.name,), c.facts) for c in children if c.facts is not None]
        for name, at in (
            ("lightgate_process_open_fds", 0),
            ("lightgate_process_max_fds", 1),
            ("lightgate_process_resident_memory_bytes", 2),
        ):
            yield _gauge(name, ((labels, known[at]) for labels, known in facts))
        spent = (((c.name,), c.cpu_s) for c in children if c.cpu_s is not None)
        yield _counter("lightgate_process_cpu_seconds_total", spent)


def exposition(reading: Scrape, accept: str) -> tuple[bytes, str]:
    """The text that Prometheus reads and its type: OpenMetrics where `accept` asks for it."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(reading))
    encode, kind = choose_encoder(accept)
    return encode(registry), kind


def _histogram(
    name: str,
    found: Iterable[tuple[Labels, OperationTotals | TargetTotals]],
    field: str,
) -> Metric:
    return _histogram_of(name, ((labels, getattr(of, field)) for labels, of in found))


def _histogram_of(name: str, found: Iterable[tuple[Labels, Histogram]]) -> Metric:
    meter = _BY_NAME[name]
    family = HistogramMetricFamily(name, meter.means, labels=meter.labels)
    for labels, histogram in found:
        bounds = _bounds(histogram.bounds)
        counts = histogram.cumulative()
        if counts[-1]:
            family.add_metric(labels, list(zip(bounds, counts, strict=True)), histogram.total)
    return family


def _bounds(values: Iterable[float]) -> list[str]:
    """The bounds of buckets as both formats write them."""
    return [*(floatToGoString(value) for value in values), "+Inf"]  # type: ignore[no-untyped-call] # has no types


def _counter(name: str, samples: Iterable[tuple[Labels, float]]) -> Metric:
    meter = _BY_NAME[name]
    family = CounterMetricFamily(name, meter.means, labels=meter.labels)
    for labels, value in samples:
        family.add_metric(labels, value)
    return family


def _gauge(name: str, samples: Iterable[tuple[Labels, float]]) -> Metric:
    meter = _BY_NAME[name]
    family = GaugeMetricFamily(name, meter.means, labels=meter.labels)
    for labels, value in samples:
        family.add_metric(labels, value)
    return family
