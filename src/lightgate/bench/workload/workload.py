"""The requests of a run: the same prompts for every target, sizes under control."""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple
from zlib import crc32

import msgspec

from lightgate.bench.workload.calibrate import PROBE_TOKENS, Calibration, calibrate, guess
from lightgate.bench.workload.cancel import Cancelling
from lightgate.bench.workload.lengths import DrawnLengths
from lightgate.bench.workload.prompts import INSTRUCTION, OwnPrompts, Prompts
from lightgate.dialect.request import Message, Request
from lightgate.errors import DeadlineMissed, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from lightgate.dialect.request import Tool
    from lightgate.provider.target import Target
    from lightgate.wire.client.client import Client

TOKENS_IN: Final = 512
TOKENS_OUT: Final = 512
IN_FILE: Final = "as in the file"
# The number of a request has parts: below SIZES its place in the run, then whether it counts, then
# whether it is one of a twin, then its load. Sizes go by the place alone.
SIZES: Final = 1 << 29
OF_TWIN: Final = 1 << 30
OF_LOAD: Final = 1 << 31
_PROBE_NUMBER: Final = 1 << 64  # probes use prompts that no request of the run uses
Kind = Literal["chat", "completion", "responses", "embedding", "speech"]
WORDLESS: Final = frozenset({"embedding", "speech"})  # answers without a word: nothing to cut off
Length = Literal["fixed", "capped"]


class WorkloadWish(msgspec.Struct, frozen=True, kw_only=True):
    """The wished workload; `extra` are body fields in the provider's own words.

    `tokens_in` counts all of a prompt, its template included. `own` replaces made prompts. Where
    lengths are drawn for each request, `tokens_in` and `tokens_out` are the largest.
    """

    tokens_in: int = TOKENS_IN
    tokens_out: int = TOKENS_OUT
    seed: int = 0
    cached: bool = False
    temperature: float | None = 0.0
    stream: bool = True
    kind: Kind = "chat"
    extra: dict[str, Any] = {}
    own: OwnPrompts | None = None
    lengths_in: DrawnLengths | None = None
    lengths_out: DrawnLengths | None = None
    cancel: Cancelling | None = None  # requests that the client cancels on purpose
    natural: bool = False  # answers end where the model ends them, or at the limit

    @property
    def streams(self) -> bool:
        """Whether answers are asked for in pieces; a vector comes whole, and sound by itself."""
        return self.stream and self.kind not in WORDLESS

    @property
    def instruction(self) -> str:
        """The wish for a long answer at the end of a made prompt, where answers have a length."""
        return "" if self.kind in WORDLESS else INSTRUCTION

    def size(self, number: int) -> Size:
        """The tokens of one request: those of the run, or drawn for it."""
        return Size(
            _drawn(self.lengths_in, f"{self.seed}/in/{number}") or self.tokens_in,
            _drawn(self.lengths_out, f"{self.seed}/out/{number}"),
        )

    def cancel_ns(self, number: int) -> int | None:
        """When the client cancels a request, in ns after its start; None: it does not."""
        if self.cancel is None:
            return None
        return self.cancel.draw(f"{self.seed}/cancel/{number % SIZES}")


def _drawn(lengths: DrawnLengths | None, key: str) -> int | None:
    return None if lengths is None else lengths.pick(key)


class Size(NamedTuple):
    """Tokens of one request, where they are not the run's: a trace's, for instance."""

    tokens_in: int | None = None
    tokens_out: int | None = None


class Tooling(NamedTuple):
    """The tools of one request, and whether one of them must be called."""

    tools: tuple[Tool, ...]
    choice: str | None = None


USUAL: Final = Size()


class Workload:
    """Makes the requests of a run; request `number` is the same text at every target.

    The texts are exactly the same where the targets count words alike; where their tokenizers
    differ, one text is the beginning of the other and both have the wished number of tokens.
    """

    def __init__(
        self, wish: WorkloadWish, calibrations: Mapping[str, Calibration] | None = None
    ) -> None:
        if wish.tokens_in < 1 or wish.tokens_out < 1:
            raise UsageError("A prompt and an answer have at least one token.")
        if wish.own is not None and wish.cached:
            raise UsageError(
                "Own prompts are sent as they are, so they cannot be given a common beginning.",
                hint="Leave out --cached, or let the prompts be made.",
            )
        self.wish = wish
        self.prompts = Prompts(wish.seed, cached=wish.cached)
        self.calibrations = dict(calibrations or {})
        self._words: dict[tuple[str, int], int] = {}  # by target and tokens of a prompt
        drawn = wish.lengths_in is not None or wish.lengths_out is not None
        self._usual = None if drawn else wish.size(0)  # of every request, where none is drawn

    def calibration(self, target: str) -> Calibration:
        """The target's line from words to tokens; a guess where nobody probed."""
        wish = self.wish
        line = self.calibrations.get(target)
        return line or guess(target, wish.tokens_in, wish=wish.instruction)

    def length(self, target: Target) -> Length:
        """Whether answers have the asked length, or only at most that.

        Answers that are only capped must be compared by their length.
        """
        quirks, extra = target.provider.quirks, self.wish.extra
        if self.wish.natural:
            return "capped"
        if extra.get("ignore_eos") is True or extra.get("min_tokens") == self.wish.tokens_out:
            return "fixed"
        known = self.wish.kind != "responses" and (quirks.ignore_eos or quirks.min_tokens)
        return "fixed" if known else "capped"

    def request(self, target: Target, number: int, size: Size = USUAL) -> Request:
        """Request `number` of the run for one target."""
        usual = self._usual if self._usual is not None else self.wish.size(number % SIZES)
        key = (target.name, size.tokens_in or usual.tokens_in or self.wish.tokens_in)
        words = self._words.get(key)
        if words is None:
            words = self._words[key] = self.calibration(key[0]).words_for(key[1])
        messages, limit = self._messages(number, words)
        limit = size.tokens_out or usual.tokens_out or limit
        return self.ask(target, messages, limit or self.wish.tokens_out)

    def first_number(self, load: str, *, twin: bool) -> int:
        """The number from which the requests of a load are counted.

        No two loads share a made prompt: the later one would find it in a provider's cache. So it
        is with the two halves of an A/A pair. Prompts of a file are the same for every load.
        """
        own = OF_TWIN if twin else 0
        return own if self.wish.own is not None else own + OF_LOAD * crc32(load.encode())

    def ask(
        self,
        target: Target,
        messages: tuple[Message, ...],
        tokens_out: int,
        tooling: Tooling | None = None,
    ) -> Request:
        """A request with these messages and everything else as the run wishes it.

        The length is not fixed where a tool may be called: it would break the call's JSON.
        """
        wish, quirks = self.wish, target.provider.quirks
        if wish.kind in WORDLESS:
            return Request(
                model=target.model, kind=wish.kind, inputs=(_text(messages),), extra=wish.extra
            )
        fixing = tooling is None and wish.kind != "responses" and not wish.natural
        line = self.calibrations.get(target.name)
        choosable = line is None or line.temperature
        return Request(
            model=target.model,
            kind=wish.kind,
            messages=() if wish.kind == "completion" else messages,
            prompt=_text(messages) if wish.kind == "completion" else None,
            stream=wish.stream,
            max_tokens=tokens_out,
            min_tokens=tokens_out if fixing and quirks.min_tokens else None,
            ignore_eos=fixing and quirks.ignore_eos,
            temperature=wish.temperature if choosable else None,
            tools=() if tooling is None else tooling.tools,
            tool_choice=None if tooling is None else tooling.choice,
            extra=wish.extra,
        )

    def probe(self, target: Target, number: int, words: int) -> Request:
        """A request that calibrates: a prompt of so many words, hardly any answer."""
        text = self.prompts.text(_PROBE_NUMBER + number, words, self.wish.instruction)
        request = self.ask(target, (Message(role="user", content=text),), PROBE_TOKENS)
        return msgspec.structs.replace(request, min_tokens=None, ignore_eos=False)

    def notes(self, requests: int) -> tuple[str, ...]:
        """List what a reader of the results should know about the prompts."""
        if self.wish.own is not None:
            note = self.wish.own.note(requests)
            return () if note is None else (note,)
        guessed = [line.says() for line in self.calibrations.values() if not line.calibrated]
        floors = [
            f"{line.target}: the shortest prompt is {line.shortest} tokens, above the wished"
            f" {self.wish.tokens_in}."
            for line in self.calibrations.values()
            if line.shortest > self.wish.tokens_in
        ]
        return (*guessed, *floors)

    def facts(self, targets: Iterable[Target], requests: int) -> dict[str, str]:
        """Describe the workload for run.json; one hash of the prompts, or one for each target."""
        wish, targets = self.wish, tuple(targets)
        facts = {
            "prompts": "made" if wish.own is None else wish.own.source,
            "tokens_in": _said(wish.tokens_in, wish.lengths_in) if wish.own is None else IN_FILE,
            "tokens_out": "none"
            if wish.kind in WORDLESS
            else _said(wish.tokens_out, wish.lengths_out),
            "cached": str(wish.cached).lower(),
            "seed": str(wish.seed),
            "kind": wish.kind,
        }
        if wish.cancel is not None:
            facts["cancelled"] = wish.cancel.text
        sizes = {t.name: self.calibration(t.name).words_for(wish.tokens_in) for t in targets}
        example = {sizes[target.name]: target for target in targets}
        by_size = {size: self.hash(target, requests) for size, target in example.items()}
        hashes = {name: by_size[size] for name, size in sizes.items()}
        if len(set(hashes.values())) == 1:
            facts["prompts_sha256"] = next(iter(hashes.values()))
        else:
            facts |= {f"prompts_sha256 {name}": value for name, value in hashes.items()}
        for target in targets if wish.kind not in WORDLESS else ():
            facts[f"length {target.name}"] = self.length(target)
        for name, line in self.calibrations.items():
            facts[f"calibrated {name}"] = str(line.calibrated).lower()
            if line.off_by is not None:
                facts[f"off_by_tokens {name}"] = str(line.off_by)
        return facts

    def hash(self, target: Target, requests: int) -> str:
        """SHA-256 over the messages of the first requests; equal hashes are equal prompts.

        Of conversations all turns are taken.
        """
        digest = hashlib.sha256()
        line = self.calibration(target.name)
        usual = line.words_for(self.wish.tokens_in)
        for number in range(requests):
            words = usual
            if self.wish.lengths_in is not None:
                words = line.words_for(self.wish.size(number).tokens_in or self.wish.tokens_in)
            messages, _ = self._messages(number, words)
            encoded = msgspec.json.encode(messages)
            if self.wish.own is not None and (turns := self.wish.own.pick(number).turns):
                encoded += msgspec.json.encode(turns)
            digest.update(b"%d:" % len(encoded))
            digest.update(encoded)
        return digest.hexdigest()

    def _messages(self, number: int, words: int) -> tuple[tuple[Message, ...], int | None]:
        if self.wish.own is not None:
            own = self.wish.own.pick(number)
            return own.messages, own.max_tokens
        text = self.prompts.text(number, words, self.wish.instruction)
        return (Message(role="user", content=text),), None


def _said(tokens: int, lengths: DrawnLengths | None) -> str:
    return str(tokens) if lengths is None else lengths.text


class Calibrating(NamedTuple):
    """Wishes for a calibration: `on_done` is called with each target that is through with it.

    A target that takes longer than `patience_s` gets the failure of a missed deadline.
    """

    on_done: Callable[[str], None] = lambda _: None
    patience_s: float | None = None


async def calibrated(
    client: Client,
    targets: Iterable[Target],
    wish: WorkloadWish,
    calibrating: Calibrating = Calibrating(),  # noqa: B008 - immutable
) -> Workload:
    """A workload whose prompts have the wished size at every target, after a few probes of each.

    The two halves of an A/A pair share one calibration, and with it their texts. Own prompts have
    the size that they have: nothing is probed.
    """
    plain = Workload(wish)
    if wish.own is not None:
        return plain
    groups: dict[tuple[str, str, str], list[Target]] = {}
    for target in targets:
        place = (target.base_url, target.provider.dialect, target.model)
        groups.setdefault(place, []).append(target)
    lines = await asyncio.gather(
        *(_line(client, plain, same[0], calibrating) for same in groups.values())
    )
    found: dict[str, Calibration] = {}
    for line, (first, *twins) in zip(lines, groups.values(), strict=True):
        found[first.name] = line
        found |= {twin.name: line.shared_with(twin.name) for twin in twins}
    return Workload(wish, found)


async def _line(
    client: Client, plain: Workload, target: Target, calibrating: Calibrating
) -> Calibration:
    wish = plain.wish

    def ask(number: int, words: int) -> Request:
        return plain.probe(target, number, words)

    try:
        async with asyncio.timeout(calibrating.patience_s):
            line = await calibrate(client, target, ask, wish.tokens_in, wish.instruction)
    except TimeoutError:
        line = guess(target.name, wish.tokens_in, "its probes took too long", wish.instruction)
        late = DeadlineMissed(f"{target.name} did not answer its probes in time.", phase="total")
        line = msgspec.structs.replace(line, failure=late)
    calibrating.on_done(target.name)
    return line


def _text(messages: tuple[Message, ...]) -> str:
    """Return the one text of a request that is no chat."""
    if len(messages) != 1 or not isinstance(messages[0].content, str):
        raise UsageError("This endpoint takes one text, not a conversation.")
    return messages[0].content
