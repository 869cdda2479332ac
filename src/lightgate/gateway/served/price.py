"""Price requests in whole numbers: pico-dollars per token, nano-dollars per request."""

from __future__ import annotations

import math
from decimal import ROUND_HALF_EVEN, Decimal
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from lightgate.clock.outcome import Outcome
from lightgate.clock.tokens import HEARD, Tokens
from lightgate.gateway.request.hosted import answer_kinds, offered_tools
from lightgate.price.rates import CHEAPER_TIERS, GROUNDED, USUAL_TIERS
from lightgate.route.plan.hedge import TargetPrice

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from lightgate.gateway.request.body import ClientRequest, Sound
    from lightgate.price.rates import LongRates, Rates, TierRates
    from lightgate.provider.call import Called

NANO: Final = 1_000_000_000
_PICO_PER_TOKEN: Final = 1_000_000  # one dollar per million tokens is a million pico-dollars each
MOST_ANSWERED: Final = 131_072  # tokens of one answer, of a model that nothing else is known of
USUAL_ANSWER: Final = 4096  # tokens reserved where neither client nor configuration names a limit


# Limits of what is believed: a provider's counts go into budgets, speeds and 64-bit words.
# Of sound, where nobody has counted: estimates, marked so in every bill.
BYTES_PER_SECOND: Final = 8000  # of a recording: 64 kbit/s
LEAST_BYTES_PER_SECOND_FACTOR: Final = 4  # for the least reservation: 16 kbit/s
WORST_BYTES_PER_SECOND: Final = 500  # 4 kbit/s, below the least of AMR (4.75), Opus (6) and MP3 (8)
TOKENS_PER_SECOND: Final = 17.0  # of a recording; OpenAI's prices by the minute and by the token
WORDS_PER_SECOND: Final = 4.0  # tokens of a transcript
WORST_WORDS_PER_SECOND: Final = 10.0  # tokens of a fast speaker's transcript, in any language
TOKENS_PER_CHARACTER: Final = 1.5  # of speech, which OpenAI counts at about 21 a second
WORST_TOKENS_PER_CHARACTER: Final = 12  # half a second: a digit or an ideograph is a word
WORST_BYTES_PER_TOKEN: Final = 2  # of text beside the sound, as in other requests
NO_PROMPT: Final = 2**62  # tokens; a price that does not rise with the prompt
SLACK: Final = 16  # tokens above the limit, which some providers add themselves
MOST_REASONED: Final = 200_000  # hidden tokens of reasoning in one answer
MOST_GIVEN: Final = 2_000_000  # tokens of pictures and files that are given by address


class Bill(msgspec.Struct, frozen=True, gc=False):
    """The cost of one attempt and its source; None where the price is unknown."""

    nano_usd: int | None
    source: str | None  # list, override, hourly, estimated
    as_of: str | None


_UNCOUNTED: Final = Tokens()
NO_BILL: Final = Bill(None, None, None)
FREE: Final = Bill(0, "list", None)  # of an endpoint that no provider charges for


class _Tier(NamedTuple):
    """Prices under one service tier, in pico-dollars per token."""

    input: int
    output: int
    cached: int
    cache_write: int

    @classmethod
    def of(cls, rates: TierRates) -> _Tier:
        plain = _pico(rates.input)
        cached = plain if rates.cached is None else _pico(rates.cached)
        written = plain if rates.cache_write is None else _pico(rates.cache_write)
        return cls(plain, _pico(rates.output), cached, written)


class TokenPrices:
    """The prices of one target; a target paid by the hour costs nothing per request."""

    __slots__ = (
        "_above",
        "_audio",
        "_cached",
        "_character",
        "_in",
        "_long",
        "_media_in",
        "_out",
        "_request",
        "_second",
        "_tiers",
        "_written",
        "_written_1h",
        "as_of",
        "calls",
        "hears",
        "hourly",
        "known",
        "media",
        "plain",
        "source",
        "unpriced",
    )

    def __init__(self, rates: Rates | None, *, hourly: bool = False) -> None:
        self.hourly = hourly
        # The prices of longer prompts, the longest first, and the tokens from which there are some.
        steps = () if hourly or rates is None else rates.long[::-1]
        self._long = [(step.above, TokenPrices(_of_length(rates, step))) for step in steps]
        self._above = self._long[-1][0] if self._long else NO_PROMPT
        self.known = hourly or (rates is not None and rates.input is not None)
        self.source = "hourly" if hourly else rates.source if rates is not None else None
        self.as_of = rates.as_of if rates is not None and not hourly else None
        self.unpriced = Bill(None, self.source, None)  # of a target whose price nobody knows
        free = hourly or rates is None
        self._in = 0 if free or rates is None else _pico(rates.input)
        self._out = 0 if free or rates is None else _pico(rates.output)
        self._cached = self._in
        self._written = self._in
        if rates is not None and not free:
            self._cached = self._in if rates.cached is None else _pico(rates.cached)
            self._written = self._in if rates.cache_write is None else _pico(rates.cache_write)
        own = None if free else rates
        self._written_1h = self._written
        self.calls: dict[str, int] = {}  # nano-dollars of one call of a provider's own tool
        if own is not None:
            if own.cache_write_1h is not None:
                self._written_1h = _pico(own.cache_write_1h)
            self.calls = {kind: _pico(price) for kind, price in own.calls.items()}
        self._request = self.calls.pop("request", 0)  # of the request itself
        self._tiers = {} if own is None else {k: _Tier.of(v) for k, v in own.tiers.items()}
        self._audio = None if own is None or own.input_audio is None else _pico(own.input_audio)
        # Of tokens that are no text, in pico-dollars each: of answers by kind, of prompts the most.
        self.media = {} if own is None else _answer_prices(own)
        heard = () if own is None else (own.input_audio, own.input_image, own.input_video)
        self._media_in = max([0, *map(_pico, heard)])
        self.hears = hourly or (own is not None and own.input_audio is not None)
        # Whether a good answer costs its tokens and nothing else.
        self.plain = self.known and not self.media and not self.calls
        # Of sound, in pico-dollars: for a character that is spoken, for a second of a recording.
        self._character = self._second = None
        if own is not None and own.characters is not None:
            self._character = _pico(own.characters)
        if own is not None and own.audio_hour is not None:
            self._second = int(own.audio_hour * 1_000_000_000_000 / 3600)

    def bill(self, tokens: Tokens) -> Bill:
        """The cost of counted tokens; None where a count or the price is missing."""
        if self.hourly:
            return Bill(None, self.source, None)
        if not self.known or tokens.tokens_in is None or tokens.out is None:
            return NO_BILL
        if tokens.tokens_in > self._above:
            return self._of(tokens.tokens_in).bill(tokens)
        pico = tokens.tokens_in * self._in
        if tokens.cached or tokens.cache_write or tokens.tier is not None:
            cached, written = tokens.cached or 0, tokens.cache_write or 0
            fresh = tokens.tokens_in - cached - written
            if fresh < 0:
                return NO_BILL  # the provider's counts contradict each other
            if tokens.tier not in USUAL_TIERS:
                return self._tiered(tokens, fresh)
            pico = fresh * self._in + cached * self._cached + written * self._written
            if tokens.cache_write_1h:
                pico += min(written, tokens.cache_write_1h) * (self._written_1h - self._written)
        source = "estimated" if tokens.source == "estimate" else self.source
        if tokens.media:
            pico += self._above_text(tokens)
        nano = (pico + tokens.out * self._out + 500) // 1000 + self._request
        return Bill(nano + self.called(tokens) if tokens.calls else nano, source, self.as_of)

    def _of(self, tokens_in: int) -> TokenPrices:
        """The prices of a prompt of so many tokens, which is a longer one."""
        return next(prices for above, prices in self._long if tokens_in > above)

    def called(self, tokens: Tokens) -> int:
        """The cost of the calls of a provider's own tools, in nano-dollars; unknown ones: none."""
        return sum(self.calls.get(kind, 0) * count for kind, count in tokens.calls)

    def worst_call(self, kind: str, count: int) -> int | None:
        """The most that so many calls of a tool can cost, in nano-dollars; None where unknown."""
        if self.hourly:
            return 0
        if kind == "web_search" and GROUNDED in self.calls:
            return self.calls[GROUNDED]
        each = self.calls.get(kind)
        return None if each is None else each * count

    def _above_text(self, tokens: Tokens) -> int:
        """The pico-dollars that tokens of sound and pictures cost beside their price as text."""
        fresh = max(0, (tokens.tokens_in or 0) - (tokens.cached or 0))
        pico = 0
        for kind, count in tokens.media:
            if kind == HEARD:
                pico += min(count, fresh) * max(0, (self._audio or 0) - self._in)
            else:
                price = self.media.get(kind, self._out)
                pico += min(count, tokens.out or 0) * (price - self._out)
        return pico

    def worst_answer(self, kinds: Collection[str], tokens_in: int, out: int) -> int | str:
        """The most that an answer can cost beside its price as text; a kind without a price.

        `kinds` are those that were asked for. A model that draws may do so without being asked.
        """
        if self.hourly:
            return 0
        if tokens_in > self._above:
            return self._of(tokens_in).worst_answer(kinds, tokens_in, out)
        for kind in sorted(kinds):
            if kind not in self.media:
                return kind
        asked = [price for kind, price in self.media.items() if kind in kinds or kind != "audio"]
        return -(-out * max(0, max(asked, default=0) - self._out) // 1000)

    def in_kind(self, bill: Bill, request: ClientRequest, out: int) -> Bill:
        """The bill of an answer that was to be sound or a picture and says no count of them."""
        kinds = answer_kinds(request) if self.media and bill.nano_usd is not None else None
        more = self.worst_answer(kinds, request.tokens_in, out) if kinds else 0
        if not isinstance(more, int) or not more:
            return bill
        return Bill((bill.nano_usd or 0) + more, "estimated", bill.as_of)

    def worst_heard(self, tokens_in: int, count: int) -> int:
        """The most that so many tokens of sound and pictures cost beside their price as text."""
        if tokens_in > self._above:
            return self._of(tokens_in).worst_heard(tokens_in, count)
        return -(-count * max(0, self._media_in - max(self._in, self._written)) // 1000)

    def _tiered(self, tokens: Tokens, fresh: int) -> Bill:
        """The cost under another service tier; without its price the usual one is an estimate."""
        tier = self._tiers.get(tokens.tier or "")
        estimated = tier is None or tokens.source == "estimate"
        if tier is None:
            tier = _Tier(self._in, self._out, self._cached, self._written)
        cached, written = tokens.cached or 0, tokens.cache_write or 0
        pico = fresh * tier.input + cached * tier.cached + written * tier.cache_write
        source = "estimated" if estimated else self.source
        if tokens.media:
            pico += self._above_text(tokens)
        nano = (pico + (tokens.out or 0) * tier.output + 500) // 1000 + self._request
        return Bill(nano + self.called(tokens), source, self.as_of)

    def spoken(self, tokens: Tokens, sound: Sound) -> Bill:
        """The cost of an answer of an endpoint for sound; None where the price is unknown.

        What the provider counted is exact. A length that nobody told is estimated.
        """
        if self.hourly:
            return Bill(None, self.source, None)
        found = self._sound(tokens, sound)
        if found is None:
            return NO_BILL
        pico, exact = found
        return Bill((pico + 500) // 1000, self.source if exact else "estimated", self.as_of)

    def worst_spoken(self, sound: Sound) -> int | None:
        """The most that a request for sound can cost, in nano-dollars; None where unknown."""
        if self.hourly:
            return 0
        seconds = sound.size / WORST_BYTES_PER_SECOND
        if sound.characters is not None and self._character is not None:
            pico = sound.characters * self._character
        elif sound.characters is None and self._second is not None:
            pico = math.ceil(seconds * self._second)
        elif not self.known:
            return None
        else:
            pico = (sound.text // WORST_BYTES_PER_TOKEN + 1) * self._in
            spoken = (sound.characters or 0) * WORST_TOKENS_PER_CHARACTER * sound.slower
            pico += math.ceil(spoken) * self._spoken_out()
            pico += math.ceil(seconds * TOKENS_PER_SECOND) * max(self._in, self._audio or 0)
            pico += math.ceil(seconds * WORST_WORDS_PER_SECOND) * self._out
        return -(-pico // 1000)

    def least_spoken(self, sound: Sound) -> int:
        """What a request for sound usually costs at most, in nano-dollars."""
        slow = sound._replace(size=sound.size * LEAST_BYTES_PER_SECOND_FACTOR)
        found = self._sound(_UNCOUNTED, slow)
        return 0 if found is None or self.hourly else -(-found[0] // 1000)

    def _spoken_out(self) -> int:
        """The pico-dollars of a token of speech."""
        return self.media.get("audio", self._out)

    def _sound(self, tokens: Tokens, sound: Sound) -> tuple[int, bool] | None:
        """Pico-dollars, and whether they are exact; None where the price is unknown."""
        seconds, counted = tokens.seconds, tokens.tokens_in is not None and tokens.out is not None
        length = sound.size / BYTES_PER_SECOND if seconds is None else seconds
        if sound.characters is not None:
            if self._character is not None:
                return sound.characters * self._character, True
            tokens_in, out = (
                sound.characters // 4 + 1,
                round(sound.characters * TOKENS_PER_CHARACTER),
            )
        elif self._second is not None:
            return round(length * self._second), seconds is not None
        else:
            tokens_in, out = round(length * TOKENS_PER_SECOND), round(length * WORDS_PER_SECOND)
        if not self.known:
            return None
        if counted and tokens.tokens_in is not None and tokens.out is not None:
            tokens_in, out = tokens.tokens_in, tokens.out
        heard = (
            tokens_in if tokens.audio is None and sound.characters is None else tokens.audio or 0
        )
        rate = self._in if self._audio is None else self._audio
        each = self._out if sound.characters is None else self._spoken_out()
        return heard * rate + max(tokens_in - heard, 0) * self._in + out * each, counted

    def estimate(self, tokens_in: int, tokens_out: int) -> Bill:
        """The cost of tokens that were estimated, not counted."""
        if not self.known or self.hourly:
            return Bill(None, self.source, None)
        if tokens_in > self._above:
            return self._of(tokens_in).estimate(tokens_in, tokens_out)
        pico = tokens_in * self._in + tokens_out * self._out
        return Bill((pico + 500) // 1000 + self._request, "estimated", self.as_of)

    def price(self, *, abort_stops: bool) -> TargetPrice | None:
        """Nano-dollars per token, for the router; zero for a target paid by the hour."""
        if not self.known:
            return None
        return TargetPrice(self._in / 1000, self._out / 1000, self._cached / 1000, abort_stops)

    def worst(self, tokens_in: int, tokens_out: int | None) -> int:
        """The most that a request can cost, in nano-dollars; zero where no price is known."""
        if tokens_in > self._above:
            return self._of(tokens_in).worst(tokens_in, tokens_out)
        out = USUAL_ANSWER if tokens_out is None else tokens_out
        pico = tokens_in * max(self._in, self._written) + out * self._out
        return -(-pico // 1000) + self._request

    def worst_text(self, tokens_in: int, out: int) -> Ceiling | None:
        """The most that a request of nothing but text can cost; None where that is not all of it.

        So for a long prompt, which has prices of its own, and a model that may draw unasked.
        """
        if tokens_in > self._above or self.media or not self.known:
            return None
        dearest = max(self._in, self._written)
        pico, request = tokens_in * dearest, self._request
        most = -(-(pico + out * self._out) // 1000) + request
        return Ceiling(most, -(-pico // 1000) + request, out, text=True)

    def worst_kept(self, tokens_in: int) -> int:
        """The most that a prompt costs beside its usual worst case if it is kept for an hour."""
        if tokens_in > self._above:
            return self._of(tokens_in).worst_kept(tokens_in)
        return -(-tokens_in * max(0, self._written_1h - max(self._in, self._written)) // 1000)

    def worst_tier(self, tokens_in: int, tokens_out: int | None, tier: str) -> int | None:
        """The most that a request can cost that asks for a service tier; None where unknown.

        A provider may answer under another tier than was asked for: the dearest that is known
        counts. What `flex` and the like cost less than the usual price is not relied on.
        """
        usual = self.worst(tokens_in, tokens_out)
        if tier not in USUAL_TIERS and tier not in CHEAPER_TIERS and tier not in self._tiers:
            return 0 if self.hourly else None
        out = USUAL_ANSWER if tokens_out is None else tokens_out
        costs = [
            -(-(tokens_in * max(each.input, each.cache_write) + out * each.output) // 1000)
            for each in self._tiers.values()
        ]
        return max([usual, *(cost + self._request for cost in costs)])


class Ceiling(msgspec.Struct, frozen=True, gc=False):
    """The most that an attempt at one target can cost, in nano-dollars.

    `prompt` of it is for the prompt and for tools that the provider carries out, the rest for an
    answer of `out` tokens. `text`: the prompt is nothing else, and its bytes tell what it costs.
    """

    most: int
    prompt: int
    out: int
    text: bool = False

    def after(self, seen: int) -> int:
        """The most that an attempt can cost of whose answer so many tokens were made."""
        if seen >= self.out:
            return self.most
        return self.prompt - (self.prompt - self.most) * seen // self.out


class BillFacts(NamedTuple):
    """What the bill of an attempt depends on; `called` says how it ended.

    `sent`: the request went out. `stops`: closing it stops the bill. `limit` is on the tokens of
    one answer. `ceiling` is what was reserved, where the client of a key with a budget broke off.
    """

    prices: TokenPrices
    request: ClientRequest
    called: Called
    dialect: str  # of the target
    sent: bool
    stops: bool
    limit: int | None
    ceiling: Ceiling | None
    carries_out: Callable[[str, str], bool]  # a tool, for a client of this dialect

    def tools(self) -> dict[str, int]:
        """The tools that the provider may carry out itself, with the most calls of each."""
        offered, asked = offered_tools(self.request), self.request.endpoint.dialect
        return {kind: most for kind, most in offered.items() if self.carries_out(kind, asked)}


def billed(facts: BillFacts) -> Bill:
    """What the provider will charge, as far as it can be known.

    An answer that broke off has no usage: closed by us it is billed by the provider's abort
    policy, broken by the provider by what came of it.
    """
    prices, request, called = facts.prices, facts.request, facts.called
    if not request.endpoint.tokens and (request.endpoint.free or request.endpoint.sound):
        return _billed_otherwise(facts)
    if called.error is None:
        if not prices.known:
            return prices.unpriced
        bill = prices.bill(called.tokens)
        if bill.nano_usd is None and not prices.hourly:
            bill = prices.estimate(request.tokens_in, called.tokens.out or 0)
        if prices.media and not called.tokens.media:
            bill = prices.in_kind(bill, request, called.tokens.out or 0)
        return bill if not prices.calls else _with_calls(facts, bill)
    if not facts.sent or (called.status is not None and called.status != 200):
        return NO_BILL
    return _broken_off(facts)


def _broken_off(facts: BillFacts) -> Bill:
    """The bill of an attempt without an end: what came, or all where closing does not stop it.

    Some providers count the prompt at the beginning. Where none did and the client of a key with a
    budget broke off, a prompt that is more than text costs the most that it can: else pictures,
    files and searches would be had for their bytes.
    """
    prices, request, ceiling = facts.prices, facts.request, facts.ceiling
    called, seen = facts.called, facts.called.tokens.out or 0
    if called.outcome in {Outcome.CANCELLED, Outcome.TIMEOUT} and not facts.stops:
        if facts.limit is None and ceiling is not None:
            seen = ceiling.out
        else:
            seen = max(seen, (facts.limit or USUAL_ANSWER) * request.answers)
    tokens = msgspec.structs.replace(called.tokens, out=seen, source="estimate")
    bill = prices.bill(tokens) if tokens.tokens_in else NO_BILL
    if bill.nano_usd is None:
        bill = prices.estimate(request.tokens_in, seen)
    elif ceiling is not None and not facts.tools():
        ceiling = None  # the provider has counted all that was given to it
    bill = prices.in_kind(bill, request, seen)
    if ceiling is None or ceiling.text or bill.nano_usd is None:
        return bill
    return Bill(max(bill.nano_usd, ceiling.after(seen)), bill.source, bill.as_of)


def _with_calls(facts: BillFacts, bill: Bill) -> Bill:
    """The bill with the calls of tools that providers of OpenAI's chat bill and do not count.

    The others say in each answer what was called.
    """
    if facts.called.tokens.calls or facts.dialect != "openai-chat" or bill.nano_usd is None:
        return bill
    worst = facts.prices.worst_call
    fees = sum([worst(kind, count) or 0 for kind, count in facts.tools().items()])
    return Bill(bill.nano_usd + fees, "estimated", bill.as_of) if fees else bill


def _billed_otherwise(facts: BillFacts) -> Bill:
    """What an endpoint costs that is not paid by the token of a text."""
    request = facts.request
    if request.endpoint.free:
        return FREE
    if not facts.sent or facts.called.status not in {None, 200}:
        return NO_BILL
    bill, ceiling = facts.prices.spoken(facts.called.tokens, request.sound), facts.ceiling
    if ceiling is None or bill.nano_usd is None or request.sound.characters is not None:
        return bill
    return Bill(ceiling.most, "estimated", bill.as_of)  # nobody has told how long it was


def _answer_prices(rates: Rates) -> dict[str, int]:
    """The prices of answers that are no text, by kind, in pico-dollars per token."""
    prices = {
        "audio": rates.output_audio,
        "image": rates.output_image,
        "video": rates.output_video,
    }
    return {kind: _pico(price) for kind, price in prices.items() if price is not None}


def _of_length(rates: Rates | None, step: LongRates) -> Rates | None:
    """The prices of a step as if there were no others; calls and tiers stay as they are."""
    if rates is None:
        return None
    changed = {name: getattr(step, name) for name in step.__struct_fields__ if name != "above"}
    return msgspec.structs.replace(rates, long=(), **changed)


def believed(tokens: Tokens, asked: int | None, received: int, sent: int) -> Tokens:
    """Token counts, cut down to what can be true.

    `asked` is the limit on all answers together (None: none was set), `received` and `sent` are
    bytes. An answer is no longer than its limit, a visible token has at least a byte, and a count
    that is cut down becomes an estimate.
    """
    out, reasoning = tokens.out, tokens.reasoning or 0
    if (  # what nearly every answer says
        not reasoning
        and (out or 0) <= (USUAL_ANSWER if asked is None else asked)
        and (tokens.streamed or 0) <= received
        and (tokens.tokens_in or 0) <= MOST_GIVEN
        and not tokens.cached
        and not tokens.cache_write
    ):
        return tokens
    changes: dict[str, Any] = {}
    if out is not None:
        ceiling = max(received, USUAL_ANSWER) if asked is None else asked
        ceiling += SLACK + min(reasoning, MOST_REASONED)
        if out > ceiling:
            changes = {"out": ceiling - SLACK, "source": "estimate"}
    if changes or (tokens.streamed or 0) > received:
        changes |= {"streamed": None, "first_burst": None}
    if reasoning > MOST_REASONED:
        changes["reasoning"] = None
    given = tokens.tokens_in, tokens.cached, tokens.cache_write
    if any(count is not None and count > sent + MOST_GIVEN for count in given):
        changes |= {"tokens_in": None, "cached": None, "cache_write": None}
    return msgspec.structs.replace(tokens, **changes) if changes else tokens


def dollars(nano_usd: int) -> str:
    """Nano-dollars as dollars, with all digits."""
    whole, rest = divmod(nano_usd, NANO)
    return f"{whole}.{rest:09d}".rstrip("0") if rest else str(whole)


def _pico(rate: Decimal | None) -> int:
    scaled = (rate or Decimal(0)) * _PICO_PER_TOKEN
    return int(scaled.to_integral_value(ROUND_HALF_EVEN))
