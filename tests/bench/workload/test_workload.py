"""Requests of a run: the same for all targets, of the wished size, hashed for the record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from lightgate.bench.run.order import targets as simulated
from lightgate.bench.workload.calibrate import Calibration
from lightgate.bench.workload.lengths import parse_lengths
from lightgate.bench.workload.prompts import OwnPrompt, OwnPrompts
from lightgate.bench.workload.workload import Size, Tooling, Workload, WorkloadWish, calibrated
from lightgate.clock.marks import Marks
from lightgate.clock.outcome import Outcome
from lightgate.dialect.quirks import Quirks
from lightgate.dialect.request import Message, Tool
from lightgate.errors import UsageError
from lightgate.provider.call import call
from lightgate.provider.catalogue import Provider
from lightgate.provider.prepare import prepare
from lightgate.provider.target import Target
from lightgate.sim.server.routes import base_urls
from lightgate.sim.server.serve import SimFacts
from lightgate.sim.server.server import SimServer
from lightgate.sim.world_file import parse
from lightgate.wire.client.client import Client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

URL = "http://127.0.0.1:1/v1"
VLLM = Quirks(min_tokens=True, ignore_eos=True)
EXACT = {"exact": {"ttft_ms": 1, "gap_ms": 0.01}}
WORLD: dict[str, Any] = {
    "name": "small",
    "title": "Three dialects",
    "source": "made up",
    "providers": {
        "lab": {
            "models": {
                "plain": EXACT,
                "short": EXACT | {"shape": {"tokens": 30}},
                "silent": EXACT | {"shape": {"usage": "absent"}},
            }
        },
        "anthropic": {"dialect": "anthropic", "models": {"plain": EXACT}},
        "gemini": {"dialect": "gemini", "models": {"plain": EXACT}},
    },
}


def target(name: str = "x/m", quirks: Quirks | None = None) -> Target:
    row = Provider(name="x", title="X", base_url=URL, auth="none", quirks=quirks or Quirks())
    return Target(name=name, provider=row, model="m", base_url=URL)


def line(name: str, per_word: float = 1.3, overhead: float = 30, **more: Any) -> Calibration:
    return Calibration(
        target=name, calibrated=True, overhead=overhead, per_word=per_word, wanted=512, **more
    )


def own(*texts: str, limit: int | None = None) -> OwnPrompts:
    made = [
        OwnPrompt(messages=(Message(role="user", content=text),), max_tokens=limit)
        for text in texts
    ]
    return OwnPrompts(source="p.txt", prompts=tuple(made))


def text_of(workload: Workload, where: Target, number: int) -> str:
    content = workload.request(where, number).messages[0].content
    assert isinstance(content, str)
    return content


def test_the_default_is_the_pinned_method() -> None:
    request = Workload(WorkloadWish()).request(target(), 0)
    assert (WorkloadWish().tokens_in, request.max_tokens, request.temperature) == (512, 512, 0.0)
    assert request.stream
    assert (request.min_tokens, request.ignore_eos) == (None, False)
    assert len(text_of(Workload(WorkloadWish()), target(), 0)) / 4 == pytest.approx(512, abs=2)


def test_every_target_of_a_block_gets_the_same_text() -> None:
    workload = Workload(WorkloadWish(seed=3), {"a": line("a"), "b": line("b")})
    for number in range(3):
        assert text_of(workload, target("a"), number) == text_of(workload, target("b"), number)
    assert text_of(workload, target("a"), 0) != text_of(workload, target("a"), 1)


def test_other_tokenizers_get_more_or_less_of_the_same_text() -> None:
    workload = Workload(WorkloadWish(), {"a": line("a", 1.3), "b": line("b", 1.0)})
    short, long = (text_of(workload, target(name), 0).split("\n\n")[0] for name in "ab")
    assert long.startswith(short)
    assert (len(short.split()), len(long.split())) == (round(482 / 1.3), 482)


def test_a_trace_names_the_size_of_each_request() -> None:
    workload = Workload(WorkloadWish(), {"a": line("a", 1.0, 0)})
    request = workload.request(target("a"), 0, Size(tokens_in=100, tokens_out=7))
    assert len(str(request.messages[0].content).split("\n\n")[0].split()) == 100
    assert request.max_tokens == 7
    assert workload.request(target("a"), 0, Size(tokens_out=7)).messages == (
        workload.request(target("a"), 0).messages
    )


def test_the_length_is_fixed_where_the_endpoint_knows_how() -> None:
    workload, vllm = Workload(WorkloadWish(tokens_out=40)), target(quirks=VLLM)
    request = workload.request(vllm, 0)
    assert (request.min_tokens, request.ignore_eos, request.max_tokens) == (40, True, 40)
    assert workload.length(vllm) == "fixed"
    assert workload.length(target()) == "capped"
    llamacpp = target(quirks=Quirks(ignore_eos=True))
    assert workload.request(llamacpp, 0).min_tokens is None
    assert workload.length(llamacpp) == "fixed"
    sized = workload.request(vllm, 0, Size(tokens_out=9))
    assert (sized.min_tokens, sized.max_tokens) == (9, 9)


def test_own_words_may_fix_the_length_too() -> None:
    said = Workload(WorkloadWish(extra={"ignore_eos": True}))
    assert said.length(target()) == "fixed"
    assert b'"ignore_eos":true' in prepare(target(), said.request(target(), 0)).payload
    assert Workload(WorkloadWish(extra={"min_tokens": 512})).length(target()) == "fixed"
    assert Workload(WorkloadWish(extra={"min_tokens": 5})).length(target()) == "capped"
    assert Workload(WorkloadWish(kind="responses")).length(target(quirks=VLLM)) == "capped"
    assert not Workload(WorkloadWish(kind="responses")).request(target(quirks=VLLM), 0).ignore_eos


def test_a_tool_call_is_never_stretched() -> None:
    request = Workload(WorkloadWish()).ask(
        target(quirks=VLLM),
        (Message(role="user", content="x"),),
        20,
        Tooling((Tool(name="t"),), "required"),
    )
    assert (request.min_tokens, request.ignore_eos) == (None, False)
    assert (request.tool_choice, request.tools[0].name) == ("required", "t")


def test_a_probe_is_not_stretched_and_is_no_request_of_the_run() -> None:
    workload = Workload(WorkloadWish(extra={"user": "u"}))
    probe = workload.probe(target(quirks=VLLM), 0, 50)
    assert (probe.max_tokens, probe.min_tokens, probe.ignore_eos) == (16, None, False)
    assert probe.extra == {"user": "u"}
    starts = {tuple(text_of(workload, target(), number).split()[:4]) for number in range(200)}
    assert tuple(str(probe.messages[0].content).split()[:4]) not in starts


def test_a_completion_is_one_text() -> None:
    request = Workload(WorkloadWish(kind="completion")).request(target(), 0)
    assert request.messages == ()
    assert request.prompt is not None
    assert b"POST /v1/completions " in prepare(target(), request).payload
    chat = OwnPrompt(messages=(Message(role="user", content="a"),) * 2)
    wish = WorkloadWish(kind="completion", own=OwnPrompts(source="p", prompts=(chat,)))
    with pytest.raises(UsageError, match="one text"):
        Workload(wish).request(target(), 0)


def test_own_prompts_are_sent_as_they_are() -> None:
    workload = Workload(WorkloadWish(own=own("a", "b", limit=9), tokens_out=50))
    assert [text_of(workload, target(), number) for number in range(3)] == ["a", "b", "a"]
    assert workload.request(target(), 0).max_tokens == 9
    assert workload.request(target(), 0, Size(tokens_out=3)).max_tokens == 3
    assert Workload(WorkloadWish(own=own("a"), tokens_out=50)).request(target(), 0).max_tokens == 50
    assert "p.txt has 2 prompts for 5 requests" in workload.notes(5)[0]
    assert workload.notes(2) == ()


def test_wishes_that_cannot_be() -> None:
    with pytest.raises(UsageError, match="common beginning"):
        Workload(WorkloadWish(own=own("a"), cached=True))
    with pytest.raises(UsageError, match="at least one token"):
        Workload(WorkloadWish(tokens_out=0))
    with pytest.raises(UsageError, match="at least one token"):
        Workload(WorkloadWish(tokens_in=0))


def test_the_hash_is_that_of_the_prompts() -> None:
    one, same = Workload(WorkloadWish(seed=1)), Workload(WorkloadWish(seed=1, tokens_out=9))
    assert one.hash(target(), 5) == same.hash(target(), 5)
    others = [
        WorkloadWish(seed=2),
        WorkloadWish(seed=1, cached=True),
        WorkloadWish(seed=1, tokens_in=400),
    ]
    hashes = {Workload(wish).hash(target(), 5) for wish in others}
    assert len(hashes | {one.hash(target(), 5), one.hash(target(), 6)}) == 5


def test_the_record_of_the_workload() -> None:
    lines = {"a": line("a", achieved=513), "b": line("b", achieved=512)}
    facts = Workload(WorkloadWish(seed=4), lines).facts([target("a"), target("b", VLLM)], 3)
    assert facts["prompts_sha256"] == Workload(WorkloadWish(seed=4), lines).hash(target("a"), 3)
    assert (facts["prompts"], facts["tokens_in"], facts["seed"]) == ("made", "512", "4")
    assert (facts["length a"], facts["length b"]) == ("capped", "fixed")
    assert (facts["calibrated a"], facts["off_by_tokens a"]) == ("true", "1")
    lines["b"] = line("b", per_word=1.0)
    facts = Workload(WorkloadWish(), lines).facts([target("a"), target("b")], 3)
    assert facts["prompts_sha256 a"] != facts["prompts_sha256 b"]
    assert "prompts_sha256" not in facts
    assert Workload(WorkloadWish(own=own("a"))).facts([target()], 1)["prompts"] == "p.txt"
    assert msgspec.convert(facts, dict[str, str]) == facts


def test_what_the_reader_is_told() -> None:
    guessed = msgspec.structs.replace(line("a"), calibrated=False, note="the endpoint is mute")
    notes = Workload(WorkloadWish(), {"a": guessed, "b": line("b")}).notes(10)
    assert len(notes) == 1
    assert "a guess (the endpoint is mute)" in notes[0]
    notes = Workload(WorkloadWish(tokens_in=20), {"b": line("b")}).notes(10)
    assert notes == ("b: the shortest prompt is 35 tokens, above the wished 20.",)


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    client = Client(stamp="read")
    yield client
    await client.close()


@pytest.fixture
async def sims() -> AsyncIterator[dict[str, Target]]:
    """The small world's targets, by name."""
    world = parse(WORLD, "small")
    server = SimServer(world, seed=1)
    port = await server.start("127.0.0.1", 0)
    facts = SimFacts(
        port=port,
        host="127.0.0.1",
        pid=0,
        world="small",
        seed=1,
        providers=base_urls(world, "127.0.0.1", port, {}),
        trouble_ports={},
    )
    yield {found.name: found for found in simulated(facts, world)}
    await server.close()


@pytest.mark.parametrize("tokens", [512, 2048])
async def test_simulated_providers_of_every_dialect_count_the_wished_size(
    client: Client, sims: dict[str, Target], tokens: int
) -> None:
    names = ("lab/plain", "anthropic/plain", "gemini/plain")
    chosen = [sims[name] for name in names]
    workload = await calibrated(client, chosen, WorkloadWish(tokens_in=tokens, tokens_out=20))
    for where in chosen:
        found = workload.calibrations[where.name]
        assert found.calibrated, found
        assert abs(found.off_by or 0) <= 1
        for number in range(3):
            request = workload.request(where, number)
            called = await call(where, request, Marks(), client=client)
            assert called.outcome is Outcome.OK
            assert called.tokens.out == 20
            assert abs((called.tokens.tokens_in or 0) - tokens) <= 1
    hashes = {workload.hash(where, 4) for where in chosen}
    assert len(hashes) == 1


async def test_ignore_eos_makes_a_short_speaker_talk_on(
    client: Client, sims: dict[str, Target]
) -> None:
    where = sims["lab/short"]
    plain = msgspec.structs.replace(where.provider, quirks=Quirks())
    where = msgspec.structs.replace(where, provider=plain)
    capped = await call(where, Workload(WorkloadWish()).request(where, 0), Marks(), client=client)
    wish = WorkloadWish(extra={"ignore_eos": True})
    fixed = await call(where, Workload(wish).request(where, 0), Marks(), client=client)
    assert (capped.tokens.out, fixed.tokens.out) == (30, 512)


async def test_a_simulated_provider_without_usage_is_guessed(
    client: Client, sims: dict[str, Target]
) -> None:
    workload = await calibrated(client, [sims["lab/silent"]], WorkloadWish())
    assert not workload.calibration("lab/silent").calibrated
    assert workload.facts([sims["lab/silent"]], 1)["calibrated lab/silent"] == "false"


async def test_own_prompts_need_no_probe(client: Client) -> None:
    workload = await calibrated(client, [target()], WorkloadWish(own=own("a")))
    assert workload.calibrations == {}


def test_drawn_lengths_are_the_same_at_every_target() -> None:
    wish = WorkloadWish(
        tokens_in=900,
        tokens_out=64,
        seed=5,
        lengths_in=parse_lengths("--prompt-tokens", "uniform:100..900"),
        lengths_out=parse_lengths("--max-tokens", "mix:50%*8,50%*64"),
    )
    workload = Workload(wish, {name: line(name) for name in ("x/m", "y/m")})
    asked = [
        [workload.request(target(name), number) for number in range(40)] for name in ("x/m", "y/m")
    ]
    assert [one.messages for one in asked[0]] == [one.messages for one in asked[1]]
    assert {one.max_tokens for one in asked[0]} == {8, 64}
    assert len({len(str(one.messages[0].content)) for one in asked[0]}) > 20
    facts = workload.facts([target("x/m"), target("y/m")], 40)
    assert (facts["tokens_in"], facts["tokens_out"]) == ("uniform:100..900", "mix:50%*8,50%*64")
    assert "prompts_sha256" in facts


def test_no_two_loads_and_no_twins_share_a_made_prompt() -> None:
    lengths = parse_lengths("--prompt-tokens", "uniform:100..900")
    workload = Workload(WorkloadWish(tokens_in=900, seed=5, lengths_in=lengths))
    texts: set[str] = set()
    sizes: set[tuple[int, ...]] = set()
    for load in ("c=1", "c=8", "c=32", "20/s poisson"):
        for twin in (False, True):
            first = workload.first_number(load, twin=twin)
            asked = [workload.request(target(), first + number) for number in range(8)]
            texts |= {str(one.messages[0].content) for one in asked}
            sizes.add(tuple(len(str(one.messages[0].content)) for one in asked))
    assert len(texts) == 8 * 8
    assert len(sizes) == 1  # the same place of a run has the same size everywhere


def test_prompts_of_a_file_are_the_same_at_every_load() -> None:
    workload = Workload(WorkloadWish(own=own("a", "b", "c")))
    firsts = {workload.first_number(load, twin=False) for load in ("c=1", "c=8")}
    assert firsts == {0}
