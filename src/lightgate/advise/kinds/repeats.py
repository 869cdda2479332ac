"""Advice about requests that came again: a cache for those after an answer, one call for the rest.

Equal requests of one key have equal fingerprints. The cache is played over the history: the first
request calls, later ones within the time to live are hits, and those that come while it is under
way join it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from lightgate.advise.advice import FEWEST, Advice, Evidence, Touched
from lightgate.advise.effect import Effect, change_of, evidence_of
from lightgate.advise.words import model_lines, quoted, seconds, usd

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lightgate.advise.history import PastTraffic, Wholes
    from lightgate.advise.scope import AdviceScope

NS: Final = 1_000_000_000
LIVES: Final = (("10m", 600), ("1h", 3600), ("24h", 86_400))  # times to live that are tried
ENOUGH: Final = 0.9  # of the longest time to live's hits, with which a shorter one will do
EXACT: Final = 1  # the bit of a fingerprint that says: temperature 0
MOSTLY: Final = 0.9  # of repeats at temperature 0, from which on the exact mode is enough
HIT_S: Final = 0.005  # what an answer from the cache takes


class Played(NamedTuple):
    """The places of requests that would have been hits, and that would have joined; their calls."""

    hits: Wholes
    joins: Wholes
    leads: Wholes  # of each join, the row that it would have joined


def repeat_advice(scope: AdviceScope, model: str) -> Iterator[Touched]:
    """Play a cache over the requests of one model."""
    history = scope.history
    among = history.of_model(model)
    known = [at for at in among.tolist() if history.rows[at].fingerprint is not None]
    if model in history.cached:
        yield Touched(_not(scope, model, among, "its cache is on already"), among)
        return
    if len(known) < FEWEST:
        why = "no fingerprints: requests of before this version, or too large, or of a run"
        yield Touched(_not(scope, model, among, why), among)
        return
    plays = {name: play(history, known, life_s) for name, life_s in LIVES}
    most = len(plays[LIVES[-1][0]].hits)
    ttl = next(name for name, _ in LIVES if len(plays[name].hits) >= ENOUGH * most)
    played = plays[ttl]
    yield _cache(scope, model, (among, np.array(known)), (ttl, played))
    yield _single_flight(scope, model, among, played)


def play(history: PastTraffic, known: list[int], life_s: float) -> Played:
    """Play a cache with one time to live over the rows at `known`, in their order."""
    last: dict[int, int] = {}  # the row whose answer is kept, or on its way
    hits, joins, leads = [], [], []
    for at in known:
        row = history.rows[at]
        print_ = row.fingerprint or 0
        lead = last.get(print_)
        if lead is not None and row.start_ns < history.rows[lead].end_ns:
            joins.append(at)
            leads.append(lead)
        elif lead is not None and row.start_ns < history.rows[lead].end_ns + int(life_s * NS):
            hits.append(at)
        else:
            last[print_] = at
    as_rows = [np.array(found, dtype=np.int64) for found in (hits, joins, leads)]
    return Played(*as_rows)


def _not(scope: AdviceScope, model: str, among: Wholes, why: str) -> Advice:
    history = scope.history
    return Advice(
        id=f"cache:{model}",
        kind="caching",
        model=model,
        state="refused",
        because=why,
        finding=f"Repeats of {model} cannot be counted.",
        evidence=Evidence(
            since=history.since.isoformat(),
            until=history.until.isoformat(),
            n=len(among),
            query=f"model_asked = {quoted(model)} AND fingerprint IS NOT NULL",
        ),
    )


def _mode(history: PastTraffic, rows: Wholes) -> str:
    """The cache mode that the repeats need."""
    exact = [bool((history.rows[int(at)].fingerprint or 0) & EXACT) for at in rows]
    return "exact" if exact and np.mean(exact) >= MOSTLY else "any"


def _cache(
    scope: AdviceScope, model: str, places: tuple[Wholes, Wholes], chosen: tuple[str, Played]
) -> Touched:
    history, (among, known), (ttl, played) = scope.history, places, chosen
    rows, mode = played.hits, _mode(scope.history, played.hits)
    before = history.e2e_s[rows]
    after = np.minimum(before, HIT_S)
    effect = Effect(rows, before, after, history.usd[rows], np.zeros(len(rows)), "counted")
    change = change_of(history, effect, among)
    month = change.dollars_per_month
    varies = "" if mode == "exact" else " Repeats at a temperature above 0 no longer vary."
    advice = Advice(
        id=f"cache:{model}",
        kind="caching",
        model=model,
        finding=(
            f"{len(rows):,} of {len(known):,} requests for {model} ({len(rows) / len(known):.0%})"
            f" were asked by the same key within {ttl} before; they took"
            f" {seconds(float(before.sum()))}"
            f"{'' if month is None else f' and cost {usd(month.value)} a month'}."
        ),
        evidence=evidence_of(history, rows, f"model_asked = {quoted(model)}, equal fingerprints"),
        change=change,
        worse=f"Answers are up to {ttl} old, and are kept on disk.{varies}",
        effort="config",
        apply=model_lines(scope, model, f'cache = {{ mode = "{mode}", ttl = "{ttl}" }}'),
        verify="lightgate advise --last 24h --all",
        expect=f"about {len(rows) / len(known):.0%} of requests with x-lightgate-cache: hit",
    )
    return Touched(advice, rows, scope.weight(among))


def _single_flight(scope: AdviceScope, model: str, among: Wholes, played: Played) -> Touched:
    history, rows = scope.history, played.joins
    mode = _mode(history, rows)
    own_end, shared_end = history.end_ns[rows], history.end_ns[played.leads]
    saved = np.maximum((own_end - shared_end) / NS, 0.0)
    before = history.e2e_s[rows]
    effect = Effect(
        rows, before, np.maximum(before - saved, 0.0), history.usd[rows], np.zeros(len(rows)),
        "counted",
    )  # fmt: skip
    advice = Advice(
        id=f"single-flight:{model}",
        kind="single flight",
        model=model,
        finding=(
            f"{len(rows):,} requests for {model} came while an equal one of the same key was under"
            " way; they could have had its answer."
        ),
        evidence=evidence_of(history, rows, f"model_asked = {quoted(model)}, equal fingerprints"),
        change=change_of(history, effect, among),
        worse="Requests that are equal get one answer.",
        effort="config",
        apply=model_lines(scope, model, f'cache = {{ mode = "{mode}", ttl = "10m" }}'),
        verify="lightgate advise --last 24h --all",
        expect="x-lightgate-cache: join on requests that come together",
    )
    return Touched(advice, rows, scope.weight(among))
