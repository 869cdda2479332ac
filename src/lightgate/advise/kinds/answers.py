"""Advice about what is asked and answered: caps, streaming, shorter prompts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from lightgate.advise.advice import FEWEST, Advice, Touched
from lightgate.advise.effect import Effect, change_of, evidence_of
from lightgate.advise.kinds.loops import in_loops
from lightgate.advise.words import model_lines, ms, quoted, seconds, usd
from lightgate.clock.compare import p_less
from lightgate.report.tables.caps import ENOUGH, ROOM, rounded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lightgate.advise.history import Floats, Wholes
    from lightgate.advise.scope import AdviceScope

BODIES: Final = (0.75, 0.8, 0.85, 0.9, 0.95)  # quantiles that may be the end of the usual answers
ABOVE: Final = 2.0  # times the end of the usual answers is where a cap may lie
LEVERAGE: Final = 3.0  # median answers that every cut answer has to save: else it is no runaway
# Times the cap that the median of the cut answers is long. The tail of usual answers is densest
# just above any cap (1.5 at most for lognormal ones); runaways are not.
APART: Final = 2.0
OTHER_WORK: Final = 0.75  # P(a long answer's prompt is longer, or shorter, than a usual one's)
MOST_CUT: Final = 0.2  # of answers that end normally that a cap may cut
RUNAWAYS: Final = 10  # that a cap has to stop; what is usual rests on ENOUGH answers beside them
SLOW_S: Final = 2.0  # a whole answer that takes longer is worth a stream
HALF: Final = 0.5  # of a prompt, in what a shorter one would save


def answer_advice(scope: AdviceScope, model: str) -> Iterator[Touched]:
    """Look at the answers and prompts of one model."""
    among = scope.history.of_model(model)
    yield from _caps(scope, model, among)
    yield from _streaming(scope, model, among)
    yield from _prompts(scope, model, among)


def _caps(scope: AdviceScope, model: str, among: Wholes) -> Iterator[Touched]:
    """Find a cap that stops runaway answers: of the model, else of the keys that have them."""
    history = scope.history
    keys = history.key[among]
    parts = {key: among[keys == key] for key in dict.fromkeys(keys.tolist())}
    caps = {
        key: cap_for(history.tokens_out[rows], history.cut[rows]) for key, rows in parts.items()
    }
    if not any(caps.values()):
        return
    room = [
        cap or rounded(ROOM * float(history.tokens_out[parts[key]].max()))
        for key, cap in caps.items()
    ]
    widest = max(room)
    if widest < float(history.tokens_out[among].max()):
        one = _capped(scope, (model, None), (among, among), widest)
        if one is not None and one.advice.change is not None:
            yield one
            if one.advice.change.dollars_share.low > 0 or one.advice.change.seconds_share.low > 0:
                return
    for key, cap in caps.items():
        if cap:
            one = _capped(scope, (model, key), (parts[key], among), cap)
            if one is not None:
                yield one


def cap_for(tokens: Wholes, cut: np.ndarray) -> int | None:
    """The cap that answers of one key suggest: it leaves usual ones alone; None without runaways.

    Where answers met their limit, they are cut already: a cap may stop them as soon as the
    finished ones have room. Else an answer is a runaway only if it is so long that each one that
    is cut saves several usual answers, and if there is a gap between it and the usual ones.
    """
    if len(tokens) < ENOUGH:
        return None
    done = tokens[~cut]
    if cut.mean() >= 0.01 and len(done) >= ENOUGH / 2:
        cap = rounded(ROOM * float(np.quantile(done, 0.99)))
        if cap < float(np.median(tokens[cut])):
            return cap
    usual = float(np.median(tokens))
    for body in BODIES:
        cap = rounded(ABOVE * float(np.quantile(tokens, body)))
        over = tokens[tokens > cap]
        if not len(over) or len(over) > MOST_CUT * len(tokens):
            continue
        if float(np.median(over)) < APART * cap:
            continue
        if float((over - cap).mean()) >= LEVERAGE * usual:
            return cap
    return None


def _capped(
    scope: AdviceScope, who: tuple[str, str | None], places: tuple[Wholes, Wholes], cap: int
) -> Touched | None:
    history, (model, key), (part, among) = scope.history, who, places
    rows = part[history.tokens_out[part] > cap]
    if not len(rows):
        return None
    gone = (history.tokens_out[rows] - cap).astype(np.float64)
    before = history.e2e_s[rows]
    each = np.where(
        np.isnan(history.token_s[rows]), before / history.tokens_out[rows], history.token_s[rows]
    )
    saved_s = np.minimum(gone * each, before)
    saved_usd = gone * _out_price(scope, rows)
    effect = Effect(
        rows, before, before - saved_s, history.usd[rows], history.usd[rows] - saved_usd, "counted"
    )
    unfinished = int((~history.cut[rows]).sum())
    median = float(np.median(history.tokens_out[part]))
    whose = model if key is None else f"{model} from the key {key or '(none)'}"
    change = change_of(history, effect, among)
    month = change.dollars_per_month
    other = _other_work(history.tokens_in[rows], history.tokens_in[np.setdiff1d(part, rows)])
    advice = Advice(
        id=f"cap:{model}" + ("" if key is None else f":{key or '(no key)'}"),
        kind="output cap",
        model=model,
        state="refused" if other and unfinished > len(rows) / 2 else "advised",
        because="long answers have prompts of another length: they seem to be other work" * other,
        finding=(
            f"{len(rows):,} of {len(part):,} answers of {whose} are longer than {cap:,} tokens, the"
            f" median is {median:,.0f}; the part beyond took"
            f" {seconds(float(saved_s.sum()) / len(rows))} each"
            f"{'' if month is None else f' and {usd(month.value)} a month'}."
        ),
        evidence=evidence_of(
            history, rows, f"model_asked = {quoted(model)} AND tokens_out > {cap}"
        ),
        change=change,
        worse=(
            f"{unfinished:,} answers that ended by themselves would be cut off"
            f" ({unfinished / len(part):.1%}). Shorter answers end sooner; no token comes faster."
        ),
        effort="config" if key is None else "code",
        apply=model_lines(scope, model, f"max_tokens = {cap}")
        if key is None
        else f'"max_tokens": {cap}    (in its requests, or a new key with --max-tokens {cap})',
        verify="lightgate models --caps --last 24h",
        expect=f"longest {cap:,} tokens",
    )
    return Touched(advice, rows, scope.weight(among), fewest=RUNAWAYS)


def _other_work(long: Wholes, usual: Wholes) -> bool:
    """Whether prompts tell which answers are long, as they do where they ask for long ones."""
    if not len(long) or not len(usual):
        return False
    longer = p_less(usual, long)
    return not 1.0 - OTHER_WORK < longer < OTHER_WORK


def _out_price(scope: AdviceScope, rows: Wholes) -> Floats:
    """Dollars of one more answer token, row by row; NaN where the price is unknown."""
    found = np.full(len(rows), np.nan)
    targets = scope.history.target[rows]
    for target in set(targets.tolist()):
        price = scope.prices.get(target)
        if price is not None:
            found[targets == target] = price.per_out
    return found


def _streaming(scope: AdviceScope, model: str, among: Wholes) -> Iterator[Touched]:
    """Whole answers to people, where streams of the same targets show when a first token comes."""
    history = scope.history
    rows = among[~history.streamed[among] & (history.e2e_s[among] >= SLOW_S)]
    rows = np.setdiff1d(rows, in_loops(scope))
    after = np.full(len(rows), np.nan)
    for target in dict.fromkeys(history.target[rows].tolist()):
        streams = np.flatnonzero((history.target == target) & ~np.isnan(history.ttft_s))
        if len(streams) < FEWEST:
            continue
        here = np.flatnonzero(history.target[rows] == target)
        times = scope.times(target)
        if times is not None:
            after[here] = times.draw(history, rows[here], seed=len(here))[0]
    known = ~np.isnan(after)
    rows, after = rows[known], after[known]
    if not len(rows):
        return
    before = history.e2e_s[rows]
    nothing = np.zeros(len(rows))
    effect = Effect(rows, before, after, nothing, nothing, "replayed", of="first token")
    advice = Advice(
        id=f"stream:{model}",
        kind="streaming",
        model=model,
        finding=(
            f"{len(rows):,} answers of {model} came whole after {seconds(before.mean())}; streams"
            f" of the same targets begin after {ms(after.mean())}."
        ),
        evidence=evidence_of(history, rows, f"model_asked = {quoted(model)} AND NOT streamed"),
        change=change_of(history, effect, among),
        worse="The client has to read a stream; the last token comes when it came before.",
        effort="code",
        apply='"stream": true    (in the requests)',
        verify="lightgate report --by alias --last 24h",
        expect=f"TTFT p50 near {ms(float(np.median(after)))}",
    )
    needs = "informative: whether somebody reads along is not in the ledger"
    yield Touched(advice, rows, scope.weight(among), needs)


def _prompts(scope: AdviceScope, model: str, among: Wholes) -> Iterator[Touched]:
    """What prompts of half the length would save; nothing here says what could be left out."""
    history = scope.history
    rows = among[history.tokens_in[among] > 0]
    if len(rows) < FEWEST:
        return
    gone = HALF * history.tokens_in[rows]
    slope_s, per_in = np.zeros(len(rows)), np.full(len(rows), np.nan)
    for target in dict.fromkeys(history.target[rows].tolist()):
        here, times = history.target[rows] == target, scope.times(target)
        slope_s[here] = 0.0 if times is None else times.slope_s
        price = scope.prices.get(target)
        per_in[here] = np.nan if price is None else price.per_in
    saved = np.minimum(gone * slope_s, history.e2e_s[rows])
    before, paid = history.e2e_s[rows], history.usd[rows]
    effect = Effect(rows, before, before - saved, paid, paid - gone * per_in, "modelled")
    each, cents = float(slope_s.mean()) * 1000.0, float(np.nanmean(np.append(per_in, 0.0))) * 1e6
    advice = Advice(
        id=f"prompts:{model}",
        kind="shorter prompts",
        model=model,
        finding=(
            f"Prompts of {model} have {history.tokens_in[rows].mean():,.0f} tokens on average;"
            f" 1,000 fewer bring the first token {ms(each)} sooner and save {usd(cents / 1000.0)}."
        ),
        evidence=evidence_of(history, rows, f"model_asked = {quoted(model)}"),
        change=change_of(history, effect, among),
        worse="The model knows less. Which part of a prompt it can do without, only you can say.",
        effort="code",
        apply=model_lines(scope, model, "trim = true"),
        verify="lightgate report --by alias --last 24h",
        expect="fewer prompt tokens a request",
    )
    needs = (
        "informative: the figures are for prompts of half the length; nothing shows what to omit"
    )
    yield Touched(advice, rows, scope.weight(among), needs)
