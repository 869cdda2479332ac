"""Prompt sizes against endpoints whose tokenizer nobody knows."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from lightgate.bench.workload.calibrate import (
    CORRECTIONS,
    PROBE_TOKENS,
    Calibration,
    calibrate,
    guess,
)
from lightgate.bench.workload.prompts import CHARS_PER_WORD, INSTRUCTION, MIN_WORDS
from lightgate.bench.workload.workload import Size, Workload, WorkloadWish, calibrated
from lightgate.clock.outcome import Outcome
from lightgate.errors import HttpRefused
from lightgate.price.rates import Rates
from lightgate.wire.client.client import Client

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Callable

    from bench.conftest import Serve
    from lightgate.dialect.request import Request
    from lightgate.provider.target import Target

    NewTarget = Callable[[int], Target]


def words_in(body: dict[str, Any]) -> int:
    return sum(len(message["content"].split()) for message in body["messages"])


class Endpoint:
    """A chat endpoint with a made-up tokenizer; `bodies` are the requests that it got."""

    def __init__(self, tokens: Callable[[int], float]) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.usage_in_streams = True
        self.usage_in_wholes = True
        self.empty = False
        self.refuses: str = ""
        self._tokens = tokens

    def prompt_tokens(self, body: dict[str, Any]) -> int:
        return round(self._tokens(words_in(body)))

    async def script(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            fields = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:] if b": " in line)
            body = json.loads(await reader.readexactly(int(fields[b"content-length"])))
            self.bodies.append(body)
            status, kind, data = self._answer(body)
            writer.write(
                b"HTTP/1.1 %d X\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n"
                % (status, kind, len(data))
                + data
            )
            await writer.drain()

    def _answer(self, body: dict[str, Any]) -> tuple[int, bytes, bytes]:
        if self.refuses and self.refuses in body:
            error = {"error": {"message": f"Unsupported parameter: {self.refuses}."}}
            return 400, b"application/json", json.dumps(error).encode()
        usage = {"prompt_tokens": self.prompt_tokens(body), "completion_tokens": 2}
        text = "" if self.empty else "yes sir"
        if not body.get("stream"):
            whole: dict[str, Any] = {
                "choices": [{"message": {"content": text}, "finish_reason": "length"}]
            }
            if self.usage_in_wholes:
                whole["usage"] = usage
            return 200, b"application/json", json.dumps(whole).encode()
        chunks: list[dict[str, Any]] = [
            {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": "length"}]}
        ]
        if self.usage_in_streams:
            chunks.append({"choices": [], "usage": usage})
        lines = [*map(json.dumps, chunks), "[DONE]"]
        return 200, b"text/event-stream", "".join(f"data: {line}\n\n" for line in lines).encode()


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    client = Client(stamp="read")
    yield client
    await client.close()


async def line_of(client: Client, target: Target, tokens: int) -> Calibration:
    plain = Workload(WorkloadWish(tokens_in=tokens))

    def ask(number: int, words: int) -> Request:
        return plain.probe(target, number, words)

    return await calibrate(client, target, ask, tokens)


def made_up(words: int) -> float:
    """1.3 tokens a word and a template of 11."""
    return 1.3 * words + 11


TOKENIZERS = {
    "1.3 a word": made_up,
    "1 a word": lambda words: words + 4,
    "2.7 a word": lambda words: 2.7 * words + 90,
    "two words a token": lambda words: words / 2 + 8,
}


@pytest.mark.parametrize("tokens", [512, 2048])
@pytest.mark.parametrize("tokenizer", TOKENIZERS)
async def test_prompts_are_exact_by_the_endpoints_own_count(
    client: Client, serving: Serve, new_target: NewTarget, tokenizer: str, tokens: int
) -> None:
    endpoint = Endpoint(TOKENIZERS[tokenizer])
    async with serving(endpoint.script) as port:
        target = new_target(port)
        line = await line_of(client, target, tokens)
    assert line.calibrated
    assert line.probes == len(endpoint.bodies) == 3
    assert line.achieved == endpoint.prompt_tokens(endpoint.bodies[-1])
    assert line.off_by is not None
    allowed = 1 if tokenizer != "2.7 a word" else 2  # half a word cannot be sent
    assert abs(line.off_by) <= allowed
    # What the run then sends is as exact, for every request and for smaller sizes too.
    workload = Workload(WorkloadWish(tokens_in=tokens), {target.name: line})
    for size in (tokens, 512, 300):
        for number in range(5):
            request = workload.request(target, number, Size(tokens_in=size))
            body = {"messages": msgspec.to_builtins(request.messages)}
            assert abs(endpoint.prompt_tokens(body) - size) <= allowed, (size, number)


async def test_probes_are_short_and_unlike_each_other(
    client: Client, serving: Serve, new_target: NewTarget
) -> None:
    endpoint = Endpoint(made_up)
    async with serving(endpoint.script) as port:
        await line_of(client, new_target(port), 512)
    assert {body["max_tokens"] for body in endpoint.bodies} == {PROBE_TOKENS}
    starts = {body["messages"][0]["content"].split()[0] for body in endpoint.bodies}
    assert len(starts) == len(endpoint.bodies)


async def test_a_bent_line_is_corrected_at_the_wished_size(
    client: Client, serving: Serve, new_target: NewTarget
) -> None:
    # Beyond 300 words this tokenizer needs more for each: the first two probes mislead.
    endpoint = Endpoint(lambda words: words + 10 + 0.5 * max(0, words - 300))
    async with serving(endpoint.script) as port:
        line = await line_of(client, new_target(port), 512)
    assert line.probes > 3
    assert line.off_by is not None
    assert abs(line.off_by) <= 1


async def test_a_tokenizer_of_single_letters(
    client: Client, serving: Serve, new_target: NewTarget
) -> None:
    """Even the shortest probe is longer than what is wished for; none is much longer."""
    endpoint = Endpoint(lambda words: 6 * words + 130 + words % 7)
    async with serving(endpoint.script) as port:
        line = await line_of(client, new_target(port), 400)
    assert line.calibrated
    assert line.off_by is not None
    assert abs(line.off_by) <= 6
    assert max(endpoint.prompt_tokens(body) for body in endpoint.bodies) < 2 * 400


async def test_corrections_end(client: Client, serving: Serve, new_target: NewTarget) -> None:
    endpoint = Endpoint(lambda words: 2 * words if words % 2 else words)
    async with serving(endpoint.script) as port:
        line = await line_of(client, new_target(port), 512)
    assert line.probes <= 3 + CORRECTIONS
    assert line.achieved == endpoint.prompt_tokens(endpoint.bodies[-1])


async def test_usage_in_whole_answers_only(
    client: Client, serving: Serve, new_target: NewTarget
) -> None:
    endpoint = Endpoint(made_up)
    endpoint.usage_in_streams = False
    async with serving(endpoint.script) as port:
        line = await line_of(client, new_target(port), 512)
    assert line.calibrated
    assert line.probes == 4  # the first one was streamed, in vain
    assert [bool(body.get("stream")) for body in endpoint.bodies] == [True, False, False, False]


async def test_no_usage_at_all_is_a_guess_and_says_so(
    client: Client, serving: Serve, new_target: NewTarget
) -> None:
    endpoint = Endpoint(made_up)
    endpoint.usage_in_streams = endpoint.usage_in_wholes = False
    async with serving(endpoint.script) as port:
        line = await line_of(client, new_target(port), 512)
    assert not line.calibrated
    assert line.note == "the endpoint sends no usage"
    assert (line.achieved, line.off_by, line.failure) == (None, None, None)
    characters = line.words_for(512) * CHARS_PER_WORD + len(INSTRUCTION)
    assert characters / 4 == pytest.approx(512, abs=1)
    assert "a guess (the endpoint sends no usage)" in line.says()


async def test_a_count_that_never_grows_is_no_count(
    client: Client, serving: Serve, new_target: NewTarget
) -> None:
    async with serving(Endpoint(lambda _: 7).script) as port:
        line = await line_of(client, new_target(port), 512)
    assert not line.calibrated
    assert "do not grow" in line.note


async def test_an_empty_answer_still_counts_its_prompt(
    client: Client, serving: Serve, new_target: NewTarget
) -> None:
    endpoint = Endpoint(made_up)
    endpoint.empty = True  # a model that thought for all of its sixteen tokens
    async with serving(endpoint.script) as port:
        line = await line_of(client, new_target(port), 512)
    assert line.calibrated
    assert line.failure is None


async def test_a_refused_temperature_is_left_out_from_then_on(
    client: Client, serving: Serve, new_target: NewTarget
) -> None:
    endpoint = Endpoint(made_up)
    endpoint.refuses = "temperature"
    async with serving(endpoint.script) as port:
        target = new_target(port)
        line = await line_of(client, target, 512)
    assert line.calibrated
    assert not line.temperature
    assert ["temperature" in body for body in endpoint.bodies] == [True, False, False, False]
    assert Workload(WorkloadWish(), {target.name: line}).request(target, 0).temperature is None
    assert Workload(WorkloadWish()).request(target, 0).temperature == 0.0


async def test_a_failed_probe_is_told_not_raised(
    client: Client, serving: Serve, new_target: NewTarget
) -> None:
    endpoint = Endpoint(made_up)
    endpoint.refuses = "model"
    async with serving(endpoint.script) as port:
        line = await line_of(client, new_target(port), 512)
    assert not line.calibrated
    assert isinstance(line.failure, HttpRefused)
    assert line.failure.outcome == Outcome.HTTP_ERROR
    assert line.note.startswith("a probe failed: ")
    assert (line.probes, line.tokens_in) == (1, 0)
    assert line.cost_usd is None


async def test_the_probes_are_priced(client: Client, serving: Serve, new_target: NewTarget) -> None:
    endpoint = Endpoint(made_up)
    async with serving(endpoint.script) as port:
        rates = Rates(input=Decimal(2), output=Decimal(10), source="override")
        target = msgspec.structs.replace(new_target(port), rates=rates)
        line = await line_of(client, target, 512)
    prompts = sum(map(endpoint.prompt_tokens, endpoint.bodies))
    assert (line.tokens_in, line.tokens_out) == (prompts, 6)
    assert line.cost_usd == (2 * Decimal(prompts) + 10 * Decimal(6)) / 1_000_000
    assert f"3 probes, {prompts + 6} tokens for $0.00" in line.says()


async def test_the_halves_of_a_pair_share_their_probes(
    client: Client, serving: Serve, new_target: NewTarget
) -> None:
    endpoint = Endpoint(made_up)
    async with serving(endpoint.script) as port:
        target = new_target(port)
        twin = msgspec.structs.replace(target, name="x/m again")
        other = msgspec.structs.replace(target, name="x/n", model="n")
        workload = await calibrated(client, [target, twin, other], WorkloadWish(tokens_in=512))
    assert len(endpoint.bodies) == 6
    lines = workload.calibrations
    assert set(lines) == {"x/m", "x/m again", "x/n"}
    assert [lines[name].probes for name in lines] == [3, 0, 3]
    assert workload.request(target, 4).messages == workload.request(twin, 4).messages


def test_nothing_is_shorter_than_what_makes_a_prompt_unique() -> None:
    line = guess("x", 512)
    assert line.words_for(1) == MIN_WORDS
    assert line.shortest == round(line.tokens_of(MIN_WORDS))
    assert line.words_more(0) == 1
    assert line.words_more(100) == round(100 / line.per_word)
