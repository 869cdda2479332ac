"""The ledger's past as the source of a rehearsal: its requests, and how each target did then.

What a target would have done with a request that it did not get is unknown. It is drawn from the
target's own attempts nearest in time: an empirical bootstrap, which does not know the attempts that
were closed before their first token. What more or less load would have done is taken from the
target's service curve, where the past shows one; where it does not, load changes nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import numpy as np
import sqlalchemy as sa

from lightgate.bench.rehearse.rehearsal import RehearsalInput
from lightgate.bench.rehearse.scene import PRICES, Offer
from lightgate.bench.rehearse.service_curve import Presence, ServiceCurve, fit
from lightgate.bench.rehearse.truth import BORN_NS, FAILED, NEVER_NS, Fate, Outlook
from lightgate.clock.quantile import quantile
from lightgate.errors import UsageError
from lightgate.ledger.store.schema import attempts, exchanges
from lightgate.provider.catalogue import catalogue, provider_named
from lightgate.provider.target import rates_at
from lightgate.route.health.failure import Failure, by_status

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from lightgate.config.model import Config
    from lightgate.ledger.store.store import Ledger

NS: Final = 1_000_000_000
MS: Final = 1_000_000
NEAREST: Final = 40  # attempts of a target around an instant, of which one is drawn
FEWEST: Final = 20  # attempts below which a target is left out
FAR_NS: Final = 600 * NS  # a draw from an attempt farther away than that is counted as a stretch
FAIL_NS: Final = 150 * MS  # of a failure whose duration was not recorded
SOME: Final = 2  # others in flight, below which nothing is said of load
USUAL: Final = (512, 512)  # tokens, where an exchange has none


class PastSample(NamedTuple):
    """One attempt of the past; `first_ns` is that of the failure where there is one."""

    wall_ns: int
    first_ns: int
    tps: float
    failure: Failure | None
    in_flight: int = 0  # other attempts at the target when it began


class PastExchange(NamedTuple):
    """One exchange of the past."""

    wall_ns: int
    tokens_in: int
    tokens_out: int
    key: str = ""


class PastLoad(msgspec.Struct, frozen=True, kw_only=True):
    """What load did at a target: to its first tokens, and to each token after that."""

    target: str
    first: ServiceCurve
    token: ServiceCurve

    @property
    def says(self) -> str:
        """The sentence for people."""
        seen, first, token = self.first.seen, self.first, self.token
        if seen < SOME:
            most = "one request was" if not seen else f"{seen + 1} requests were"
            return (
                f"{self.target}: never more than {most} in flight; what more do there is not known"
                " and not played."
            )
        told = []
        if first.slope_s:
            told.append(
                f"from {first.hinge} requests in flight on each one more delays the first token by"
                f" {first.slope_s * 1e3:.0f} ms"
            )
        if token.slope_s:
            told.append(
                f"from {token.hinge} on each one more adds {token.slope_s * 1e3:.1f} ms to a token"
            )
        words = " and ".join(told) or "no request was slower for others in flight"
        return f"{self.target}: {words} (seen up to {seen + 1})."


class PastPeriod(msgspec.Struct, frozen=True, kw_only=True):
    """The stretch that is read, and its model (None: the one most often asked for)."""

    since: datetime
    until: datetime
    model: str | None = None
    requests: int | None = None


class PastSource:
    """A stretch of the ledger; seeds differ in what is drawn of it."""

    def __init__(
        self,
        model: str,
        offers: Sequence[Offer],
        asked: Sequence[PastExchange],
        samples: PastSamples,
    ) -> None:
        self.loads = samples.loads
        self.model = model
        self._offers = tuple(offers)
        self._asked = list(asked)
        self._samples = samples
        self._origin_ns = asked[0].wall_ns - BORN_NS

    @property
    def offers(self) -> Sequence[Offer]:
        """The targets that answered for this model."""
        return self._offers

    @property
    def usual_tokens(self) -> int:
        """The median answer."""
        return int(quantile([one.tokens_out for one in self._asked], 0.5) or USUAL[1])

    @property
    def requests(self) -> int:
        """Number of exchanges."""
        return len(self._asked)

    @property
    def asked_ns(self) -> NDArray[np.int64]:
        """When each exchange began, by the wall clock."""
        return np.array([one.wall_ns for one in self._asked], dtype=np.int64)

    def drawn(self, seed: int) -> Callable[[], RehearsalInput]:
        """Draw for one seed: the traffic is the same for every seed."""
        n, k = len(self._asked), len(self._offers)
        rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence((seed, 11))))
        picks: list[list[float]] = rng.random((n, k)).tolist()
        draws: list[float] = rng.random(n).tolist()
        arrivals = [one.wall_ns - self._origin_ns for one in self._asked]
        asked = [(one.key, None) for one in self._asked]

        def again() -> RehearsalInput:
            return RehearsalInput(
                self._offers,
                arrivals,
                [one.tokens_in for one in self._asked],
                [one.tokens_out for one in self._asked],
                draws,
                PastTruth(self._samples, picks, self._origin_ns),
                asked,
            )

        return again

    def stretched(self) -> float:
        """The share of (request, target) pairs whose nearest attempt is over ten minutes away."""
        far = 0
        for times, _ in self._samples.columns:
            for one in self._asked:
                at = bisect_left(times, one.wall_ns)
                around = times[max(at - 1, 0) : at + 1]
                far += min(abs(time - one.wall_ns) for time in around) > FAR_NS
        return far / (len(self._asked) * len(self._samples.columns))


class PastSamples(NamedTuple):
    """The samples of each target: wall times in order, and the samples in the same order.

    `loads` are what load did there, and `beside` the attempts for other models at the same target,
    which are there again in a rehearsal.
    """

    columns: list[tuple[list[int], list[PastSample]]]
    loads: list[PastLoad]
    beside: list[Presence]


class PastTruth:
    """Fates by bootstrap: a draw from the attempts around that instant, under the present load."""

    def __init__(self, samples: PastSamples, picks: list[list[float]], origin_ns: int) -> None:
        self._columns = samples.columns
        self._loads = samples.loads
        self._beside = samples.beside
        self._flying = [0] * len(samples.columns)  # of the rehearsal's own attempts
        self._picks = picks
        self._origin_ns = origin_ns

    def fate(self, request: int, place: int, now_ns: int, tokens_out: int) -> Fate:
        """Draw what one of the nearest attempts did, with this request's own number of tokens."""
        around = self._around(place, now_ns)
        sample = around[int(self._picks[request][place] * len(around))]
        others = self.busy(place, now_ns)
        self._flying[place] += 1
        beyond = others > self._loads[place].first.seen
        if sample.failure is not None:
            return Fate(sample.first_ns, 0, 0.0, 0, sample.failure, beyond=beyond)
        if sample.first_ns >= NEVER_NS:
            return Fate(NEVER_NS, 0, 0.0, beyond=beyond)
        first_s, token_s = self._under(place, sample, others)
        decode_ns = int(max(tokens_out - 1, 0) * token_s * NS)
        return Fate(int(first_s * NS), decode_ns, 1.0 / token_s, tokens_out, beyond=beyond)

    def over(self, place: int, fate: Fate, now_ns: int, *, gone: bool) -> Sequence[tuple[int, int]]:
        """Count one less in flight; what others were promised stays."""
        del fate, now_ns, gone
        self._flying[place] -= 1
        return ()

    def busy(self, place: int, now_ns: int) -> int:
        """Return the attempts in flight: the rehearsal's own, and those for other models."""
        return self._flying[place] + self._beside[place].at(now_ns + self._origin_ns)

    def next_ns(self, place: int) -> int | None:
        """No end of the past is open."""
        del place
        return None

    def ended(self, place: int, now_ns: int) -> Sequence[int]:
        """No end of the past is open."""
        del place, now_ns
        return ()

    def made(self, place: int, ticket: int, now_ns: int) -> float:
        """No end of the past is open."""
        del place, ticket, now_ns
        return 0.0

    def probed(self, request: int, place: int, now_ns: int) -> Fate:
        """Draw as for any request of one token."""
        return self.fate(request, place, now_ns, 1)

    def outlook(self, place: int, now_ns: int, tokens_in: int) -> Outlook:
        """The medians of the attempts around this instant, under the load of now."""
        del tokens_in  # what is drawn had prompts of all sizes
        good = [one for one in self._around(place, now_ns) if one.failure is None]
        good = [one for one in good if one.first_ns < NEVER_NS]
        if not good:
            return Outlook(float("inf"), 1.0)
        others = self.busy(place, now_ns)
        both = [self._under(place, one, others) for one in good]
        firsts, tokens = sorted(one[0] for one in both), sorted(one[1] for one in both)
        wait_s = self._loads[place].first.added_s(others)
        return Outlook(firsts[len(firsts) // 2], 1.0 / tokens[len(tokens) // 2], wait_s)

    def _under(self, place: int, sample: PastSample, others: int) -> tuple[float, float]:
        """Return the seconds of a sample's first token, and of each next one, beside others."""
        load, then = self._loads[place], sample.in_flight
        first_s = load.first.moved_s(sample.first_ns / NS, then, others)
        return first_s, load.token.moved_s(1.0 / sample.tps, then, others)

    def _around(self, place: int, now_ns: int) -> list[PastSample]:
        times, samples = self._columns[place]
        at = bisect_left(times, now_ns + self._origin_ns)
        start = max(min(at - NEAREST // 2, len(samples) - NEAREST), 0)
        return samples[start : start + NEAREST]


def past(ledger: Ledger, period: PastPeriod, config: Config | None) -> PastSource:
    """Read a stretch of the ledger; UsageError says what is missing."""
    span = (_ns(period.since), _ns(period.until))
    with ledger.reading() as connection:
        model = period.model or _usual_model(connection, span)
        asked = _asked(connection, span, model)
        found = _samples(connection, span, model)
        spans = _spans(connection, span, list(found))
    if period.requests is not None:
        asked = asked[-period.requests :]
    kept = {
        name: _crowded(rows, spans[name]) for name, rows in found.items() if len(rows) >= FEWEST
    }
    if not asked or len(kept) < 2:
        some = ", ".join(f"{name} {len(rows)}" for name, rows in found.items()) or "none"
        raise UsageError(
            f"The ledger has too little of {model!r} to rehearse with: it takes two targets with"
            f" {FEWEST} streamed attempts each.",
            hint=f"Attempts there: {some}. See --last and --model.",
        )
    columns = [([row.wall_ns for row in rows], rows) for rows in kept.values()]
    offers = _priced([_offer(name, rows, period, config) for name, rows in kept.items()])
    loads = [_load(name, rows) for name, rows in kept.items()]
    beside = [Presence([one[:2] for one in spans[name] if one[2] != model]) for name in kept]
    return PastSource(model, offers, asked, PastSamples(columns, loads, beside))


def _ns(at: datetime) -> int:
    return int(at.timestamp() * 1e6) * 1000


def _usual_model(connection: sa.Connection, span: tuple[int, int]) -> str:
    """Find the model that was asked for most often."""
    table = exchanges.c
    count = sa.func.count()
    query = (
        sa.select(table.model_asked)
        .where(table.wall_ns >= span[0], table.wall_ns < span[1])
        .group_by(table.model_asked)
        .order_by(count.desc(), table.model_asked)
        .limit(1)
    )
    row = connection.execute(query).first()
    if row is None:
        raise UsageError("The ledger has no requests of that time.", hint="See --last.")
    return str(row[0])


def _asked(connection: sa.Connection, span: tuple[int, int], model: str) -> list[PastExchange]:
    table = exchanges.c
    query = (
        sa.select(table.wall_ns, table.tokens_in, table.tokens_out, table.key_id)
        .where(table.wall_ns >= span[0], table.wall_ns < span[1], table.model_asked == model)
        .order_by(table.wall_ns, table.id)
    )
    return [
        PastExchange(at, tokens_in or USUAL[0], tokens_out or USUAL[1], key or "")
        for at, tokens_in, tokens_out, key in connection.execute(query)
    ]


def _spans(
    connection: sa.Connection, span: tuple[int, int], targets: Sequence[str]
) -> dict[str, list[tuple[int, int, str]]]:
    """Read when every attempt at these targets began and ended, and for which model it was."""
    table = attempts.c
    query = (
        sa.select(
            table.target,
            table.wall_ns,
            (sa.func.coalesce(table.t_end_ns, table.t_last_ns) - table.t_send_ns).label("long_ns"),
            exchanges.c.model_asked,
        )
        .join(exchanges, exchanges.c.id == table.exchange_id)
        .where(table.wall_ns >= span[0], table.wall_ns < span[1], table.target.in_(list(targets)))
    )
    found: dict[str, list[tuple[int, int, str]]] = {target: [] for target in targets}
    for target, at_ns, long_ns, model in connection.execute(query):
        found[target].append((at_ns, at_ns + max(long_ns or 0, 0), model))
    return found


def _crowded(rows: Sequence[PastSample], spans: Sequence[tuple[int, int, str]]) -> list[PastSample]:
    """Give each sample the number of other attempts at its target when it began."""
    presence = Presence([one[:2] for one in spans])
    return [row._replace(in_flight=max(presence.at(row.wall_ns) - 1, 0)) for row in rows]


def _load(target: str, rows: Sequence[PastSample]) -> PastLoad:
    """Fit what load did at a target, by its attempts with a first token."""
    good = [row for row in rows if row.failure is None and row.first_ns < NEVER_NS]
    beside = [row.in_flight for row in good]
    return PastLoad(
        target=target,
        first=fit(beside, [row.first_ns / NS for row in good]),
        token=fit(beside, [1.0 / row.tps for row in good]),
    )


def _samples(
    connection: sa.Connection, span: tuple[int, int], model: str
) -> dict[str, list[PastSample]]:
    """Read the attempts by target, those of no use left out."""
    table = attempts.c
    query = (
        sa.select(
            table.target,
            table.wall_ns,
            table.outcome,
            table.status,
            table.ttft_ms,
            table.speed_tps,
            table.t_send_ns,
            table.t_end_ns,
        )
        .join(exchanges, exchanges.c.id == table.exchange_id)
        .where(
            table.wall_ns >= span[0],
            table.wall_ns < span[1],
            table.streamed.is_(sa.true()),
            exchanges.c.model_asked == model,
        )
        .order_by(table.wall_ns, table.id)
    )
    found: dict[str, list[PastSample]] = {}
    for row in connection.execute(query):
        sample = _sample(row)
        if sample is not None:
            found.setdefault(row.target, []).append(sample)
    return found


def _sample(row: Any) -> PastSample | None:
    """Make a sample of an attempt; None where it says too little."""
    at = row.wall_ns
    if row.ttft_ms is not None and row.outcome in {"ok", "cancelled", "cut"}:
        if row.speed_tps is None or row.speed_tps <= 0.0:
            return None
        return PastSample(at, int(row.ttft_ms * MS), row.speed_tps, None)
    if row.outcome in {"ok", "cancelled", "cut"}:
        return None
    if row.outcome == "timeout":
        return PastSample(at, NEVER_NS, 0.0, None)
    known = row.status is not None and row.status != 200
    failure = by_status(row.status) if known else FAILED
    ends = row.t_send_ns is not None and row.t_end_ns is not None
    return PastSample(at, row.t_end_ns - row.t_send_ns if ends else FAIL_NS, 0.0, failure)


def _offer(
    name: str, rows: Sequence[PastSample], period: PastPeriod, config: Config | None
) -> Offer:
    """A target with its prices, and what a gateway that has run for long believes of it."""
    provider = name.partition("/")[0]
    known = provider in catalogue() or (config is not None and provider in config.providers)
    row = provider_named(provider, config) if known else None
    price = _rates(name, period, config)
    firsts = [one.first_ns / MS for one in rows if one.failure is None and one.first_ns < NEVER_NS]
    speeds = [one.tps for one in rows if one.tps > 0.0]
    p50, p95 = quantile(firsts, 0.5) or 1000.0, quantile(firsts, 0.95) or 3000.0
    fast, slow = quantile(speeds, 0.5) or 50.0, quantile(speeds, 0.05) or 30.0
    return Offer(
        target=name,
        provider=provider,
        price_in=-1.0 if price is None else price[0],
        price_out=-1.0 if price is None else price[1],
        bills_aborts=row is not None and row.abort.stops_billing is False,
        ttft_ms=max(p50, 0.001),
        ttft_p95_ms=max(p95, p50, 0.001),
        speed_tps=fast,
        speed_slow_tps=min(slow, fast),
    )


def _rates(name: str, period: PastPeriod, config: Config | None) -> tuple[float, float] | None:
    rates = rates_at(name, config, period.until)
    if rates is None or rates.input is None or rates.output is None:
        return None
    return float(rates.input), float(rates.output)


def _priced(offers: Sequence[Offer]) -> list[Offer]:
    """Keep the targets' own prices where all are known, else give all one price."""
    if all(offer.price_in >= 0.0 for offer in offers):
        return list(offers)
    same = {"price_in": PRICES[0], "price_out": PRICES[1]}
    return [msgspec.structs.replace(offer, **same) for offer in offers]
