"""The most that a request can cost at the targets of its plan, for a key with a budget.

Everything that a provider can bill has an upper bound: text by its bytes, pictures, files and sound
by the catalogue, an answer by its limit or else the longest that its model gives, tools that the
provider carries out itself by their calls, a service tier by its price. A target at which something
of it has no known price is left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from lightgate.gateway.admit.overrides import forbidden
from lightgate.gateway.request.given import NOTHING
from lightgate.gateway.request.hosted import answer_kinds, billed_parts, offered_tools, refers
from lightgate.gateway.request.refusal import Refusal, Refusing
from lightgate.gateway.served.price import SLACK, USUAL_ANSWER, Ceiling

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lightgate.gateway.exchange.exchange import Exchange
    from lightgate.gateway.request.body import ClientRequest
    from lightgate.gateway.request.given import Given
    from lightgate.gateway.served.target import ServedTarget
    from lightgate.route.plan.plan import Plan, Step

BYTES_PER_TOKEN: Final = 2  # of any language; only runs of random characters have fewer
# Where a dialect names a tier, the dearer first; all others have `service_tier`.
_TIERS: Final = {
    "anthropic-messages": ("speed", "service_tier"),
    "gemini": ("serviceTier", "service_tier"),
}
_DOUBLED: Final = Refusal(
    status=400,
    message="A name stands twice in one object of the body. Which of the two a provider reads is"
    " not known, nor what it would bill to this key, which has a budget. Say it once.",
    code="doubled_name",
)
_tier: Final = msgspec.json.Decoder(str | None)


class Reservation(NamedTuple):
    """Nano-dollars: the most that an exchange may cost, and the least that it is begun with.

    They differ where no limit on the answer is named, or where the provider keeps the prompt.
    `unbounded`: parts of it are of a kind that is not known, and all that is left is reserved.
    `beside` are then the attempts that may be billed beside each other.
    """

    most: int
    least: int
    unbounded: bool = False
    beside: int = 1


class _Asked(NamedTuple):
    """What of a request can be billed."""

    request: ClientRequest
    out: int | None  # tokens of all answers together; None: no limit is named
    refers: bool  # it stands for a prompt that the provider keeps, of whatever length
    given: Given
    hour: bool  # the provider is to keep the prompt for so long
    tools: Mapping[str, int]
    tier: str | None
    kinds: frozenset[str]  # of answers that are no text: audio, image

    @property
    def is_text(self) -> bool:
        """Whether nothing is billed but the text of the request and that of its answer."""
        more = self.refers or self.hour or self.tools or self.tier is not None or self.kinds
        return not more and self.given == NOTHING


class _Lacking(NamedTuple):
    """What has no known price at a target: a word for headers, and a sentence."""

    word: str
    sentence: str


def reserve_plan(exchange: Exchange, out: int | None) -> Reservation:
    """The most that an exchange may cost; its plan is cut to what has a price.

    `out` are the tokens of all answers together, None where no limit is named: then each is as long
    as its model's can be. No attempt is billed above what is reserved for it.
    """
    request, plan, ceilings = exchange.request, exchange.plan, {}
    given, hour = billed_parts(request)
    if given.doubled:
        raise Refusing(_DOUBLED)
    tools, kept = offered_tools(request), refers(request)
    asked = _Asked(request, out, kept, given, hour, tools, _tier_of(request), answer_kinds(request))
    lacking: dict[str, _Lacking] = {}
    targets, text = exchange.served.targets, asked.is_text
    for name in dict.fromkeys(step.target for step in plan.steps):
        ceiling = _ceiling(targets[name], asked, text=text)
        if isinstance(ceiling, Ceiling):
            ceilings[name] = ceiling
        else:
            lacking[name] = ceiling
    if lacking:
        leave_out(exchange, {name: each.word for name, each in lacking.items()})
        if not exchange.plan.steps:
            sentence = next(iter(lacking.values())).sentence
            raise Refusing(forbidden(f"This key has a budget and {sentence} in lightgate.toml."))
    exchange.ceilings = ceilings
    steps, checked = exchange.plan.steps, bool(exchange.alias.verify)
    most = worst(steps, [ceilings[step.target].most for step in steps], checked=checked)
    paid = given.unknown and any(not targets[step.target].prices.hourly for step in steps)
    beside = worst(steps, [1] * len(steps), checked=checked) if paid else 1
    if out is not None and not kept:
        return Reservation(most, most, bool(paid), beside)
    expected = out or USUAL_ANSWER * request.answers
    usual = asked._replace(out=expected, refers=False)
    found = [_ceiling(targets[step.target], usual, text=text) for step in steps]
    least = [each.most if isinstance(each, Ceiling) else 0 for each in found]
    return Reservation(most, min(most, worst(steps, least, checked=checked)), bool(paid), beside)


def leave_out(exchange: Exchange, words: Mapping[str, str]) -> None:
    """Take targets out of the plan of an exchange, each for a reason that headers name."""
    exchange.plan = without(exchange.plan, words)
    exchange.skipped += tuple(words.items())


def without(plan: Plan, targets: Mapping[str, str]) -> Plan:
    """The plan without these targets: in each tier the others move up to their starts."""
    steps: list[Step] = []
    for tier in dict.fromkeys(step.tier for step in plan.steps):
        slots = [step for step in plan.steps if step.tier == tier]
        kept = [step.target for step in slots if step.target not in targets]
        moved = zip(kept, slots, strict=False)
        steps += [msgspec.structs.replace(slot, target=target) for target, slot in moved]
    if steps and steps[-1].ttft_ns is not None:
        steps[-1] = msgspec.structs.replace(steps[-1], ttft_ns=None)
    if steps and steps[0].target != plan.steps[0].target:
        plan = msgspec.structs.replace(
            plan,
            predicted_ttft_ns=None,
            predicted_low_ns=None,
            predicted_high_ns=None,
            in_flight=None,
            runner_up=None,
        )
    return msgspec.structs.replace(plan, steps=tuple(steps))


def worst(steps: Sequence[Step], costs: Sequence[int], *, checked: bool) -> int:
    """The dearest target's price, once for each attempt that runs beside another.

    Where answers are checked every tier from the first on may have to be paid.
    """
    start = steps[0].tier
    # A tier that starts ahead is among those that are climbed.
    fanout = len([step for step in steps if step.start_ns is not None and step.tier == start]) or 1
    if not checked:
        return fanout * max(costs)
    tiers: dict[int, int] = {}
    for step, cost in zip(steps, costs, strict=True):
        tiers[step.tier] = max(cost, tiers.get(step.tier, 0))
    climbed = sum(cost for tier, cost in tiers.items() if tier > start)
    return max(fanout * tiers[start] + climbed, *costs)


def _ceiling(target: ServedTarget, asked: _Asked, *, text: bool) -> Ceiling | _Lacking:
    """The most that a request can cost at a target, or what of it has no known price there.

    `text`: nothing else is billed, as of nearly every request.
    """
    out = asked.out
    if out is None:
        tokens = asked.request.endpoint.tokens  # a vector has none
        out = (target.longest_answer if tokens else USUAL_ANSWER) * asked.request.answers
    out += SLACK + target.target.provider.part_tokens.reasoning
    if text:
        found = target.prices.worst_text(len(asked.request.body) // BYTES_PER_TOKEN + 1, out)
        if found is not None:
            return found
    most = _cost(target, asked, out)
    if not isinstance(most, int):
        return most
    prompt, given = _cost(target, asked, 0), asked.given
    more = given.images or given.files or given.sounds or asked.refers or asked.hour or asked.tools
    return Ceiling(most, prompt if isinstance(prompt, int) else most, out, text=not more)


def _cost(target: ServedTarget, asked: _Asked, out: int) -> int | _Lacking:
    """The most that a request costs at a target with so many tokens of answers."""
    name, prices, each = target.target.name, target.prices, target.target.provider.part_tokens
    if not prices.known:
        return _Lacking("price", f"{name} has no known price. Add it under [prices]")
    calls = fees = 0
    for kind, count in asked.tools.items():
        if not target.carries_out(kind, asked.request.endpoint.dialect):
            continue
        fee = prices.worst_call(kind, count)
        if fee is None:
            return _Lacking(
                f"price:{kind}",
                f"what {name} bills for {kind!r} is not known. Add it to `calls` under [prices]",
            )
        calls += count
        fees += fee
    tokens_in = _tokens_in(asked, target) * (calls + 1) + calls * each.call
    cost = (
        prices.worst(tokens_in, out)
        if asked.tier is None
        else prices.worst_tier(tokens_in, out, asked.tier)
    )
    if cost is None:
        tier = asked.tier
        return _Lacking(
            "price:service_tier",
            f"the price of the service tier {tier!r} at {name} is not known."
            " Add it to `tiers` under [prices]",
        )
    dearer = _dearer(asked, target, tokens_in, out, calls + 1)
    if not isinstance(dearer, int):
        return dearer
    kept = prices.worst_kept(tokens_in) if asked.hour else 0
    return cost + fees + kept + dearer


def _dearer(
    asked: _Asked, target: ServedTarget, tokens_in: int, out: int, reads: int
) -> int | _Lacking:
    """What tokens of sound and pictures can cost beside their price as text, or what is unknown."""
    name, prices = target.target.name, target.prices
    if asked.given.sounds and not prices.hears and "audio" in target.target.model:
        # Models that are named for it charge more for sound than for text.
        return _Lacking(
            "price:sound",
            f"what {name} bills for sound is not known. Add `input_audio` under [prices]",
        )
    answered = prices.worst_answer(asked.kinds, tokens_in, out)
    if isinstance(answered, str):
        return _Lacking(
            f"price:{answered}",
            f"what {name} bills for an answer of the kind {answered!r} is not known."
            f" Add `output_{answered}` under [prices]",
        )
    return answered + prices.worst_heard(tokens_in, _parts_in(asked, target) * reads)


def _tokens_in(asked: _Asked, target: ServedTarget) -> int:
    """The most tokens of a prompt that a target can bill for reading it once."""
    size = max(0, len(asked.request.body) - asked.given.value_bytes)
    return size // BYTES_PER_TOKEN + 1 + _parts_in(asked, target)


def _parts_in(asked: _Asked, target: ServedTarget) -> int:
    """The most tokens of the parts of a prompt that are no text."""
    given, each = asked.given, target.target.provider.part_tokens
    files = given.files + asked.refers  # what a provider keeps is no longer than a file can be
    return given.images * each.image + files * each.file + given.sounds * each.sound


def _tier_of(request: ClientRequest) -> str | None:
    """The service tier that is asked for; Anthropic has a faster one under another name."""
    for name in _TIERS.get(request.endpoint.dialect, ("service_tier",)):
        raw = request.fields.get(name)
        try:
            word: str | None = None if raw is None else _tier.decode(raw)
        except ValueError:
            continue
        if word is not None and not (name == "speed" and word == "standard"):
            return word
    return None
