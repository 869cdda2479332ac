"""Beginnings of prompts that were read before."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightgate.errors import ConfigError
from lightgate.sim.answer.script import TEXT
from lightgate.sim.capacity import PromptCache
from lightgate.sim.weather import NS
from lightgate.sim.world import WorldCache
from lightgate.sim.world_file import parse
from sim.conftest import QUICK

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sim.conftest import Sim

    Serve = Callable[..., Awaitable[Sim]]

SMALL = WorldCache(block=2, saves=0.5, keep_s=10, blocks=8)
NEWS = "eight of them!!!"  # four tokens, of which the last is always read anew


def test_a_beginning_is_reused_in_whole_blocks() -> None:
    cache = PromptCache(SMALL)
    assert cache.read("m", NEWS + "abcd" * 4, 0) == 0
    assert cache.read("m", NEWS + "efgh" * 4, 0) == 4
    assert cache.read("m", NEWS[:9] + "x" * 20, 0) == 2
    assert cache.read("m", "x" + NEWS, 0) == 0


def test_never_all_of_a_prompt() -> None:
    cache = PromptCache(SMALL)
    cache.read("m", NEWS, 0)
    assert cache.read("m", NEWS, 0) == 2
    assert cache.read("m", NEWS + "more", 0) == 2  # whose second block the first never finished
    assert cache.read("m", NEWS + "more", 0) == 4


def test_another_model_has_read_nothing() -> None:
    cache = PromptCache(SMALL)
    cache.read("m", NEWS, 0)
    assert cache.read("n", NEWS, 0) == 0


def test_what_nobody_asked_for_is_forgotten() -> None:
    cache = PromptCache(SMALL)
    cache.read("m", NEWS, 0)
    assert cache.read("m", NEWS, 10 * NS) == 2
    assert cache.read("m", NEWS, 20 * NS) == 2
    assert cache.read("m", NEWS, 31 * NS) == 0


def test_a_short_beginning_may_not_count() -> None:
    cache = PromptCache(WorldCache(block=2, least=4))
    cache.read("m", NEWS * 2, 0)
    assert cache.read("m", NEWS[:8] + "x" * 20, 0) == 0
    assert cache.read("m", NEWS + "x" * 20, 0) == 4


def test_the_first_token_comes_sooner() -> None:
    cache = PromptCache(SMALL)
    assert cache.faster(1000, 0, 100) == 1000
    assert cache.faster(1000, 50, 100) == 750
    assert cache.faster(1000, 100, 100) == 500


@given(st.lists(st.text(alphabet="ab", max_size=80), max_size=30))
def test_it_never_finds_more_than_was_there(prompts: list[str]) -> None:
    cache = PromptCache(WorldCache(block=1, blocks=10_000))
    seen: list[str] = []
    for prompt in prompts:
        cached = cache.read("m", prompt, 0)
        assert cached * 4 <= max(len(prompt) - 4, 0)
        common = max((_common(prompt, other) for other in seen), default=0)
        assert cached * 4 <= common
        seen.append(prompt)


def _common(one: str, other: str) -> int:
    alike = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    return len(list(alike))


def test_it_is_bounded() -> None:
    cache = PromptCache(SMALL)
    cache.read("m", NEWS, 0)
    cache.read("m", "y" * 8 * 9, 0)
    assert cache.read("m", NEWS, 0) == 0


@pytest.mark.parametrize("wrong", [{"saves": 1.5}, {"block": 0}, {"blocks": 0}])
def test_a_cache_that_makes_no_sense(wrong: dict[str, Any]) -> None:
    maker = {"cache": wrong, "models": {"m": {"exact": {"ttft_ms": 1, "gap_ms": 1}}}}
    with pytest.raises(ConfigError, match=r"providers\.lab\.cache"):
        parse({"name": "w", "title": "t", "source": "s", "providers": {"lab": maker}}, "w")


LONG = "word " * 80  # 100 tokens
SAY = [{"role": "user", "content": LONG}]
ASKS: dict[str, tuple[str, dict[str, Any]]] = {
    "lab": ("/lab/v1/chat/completions", {"messages": SAY}),
    "completions": ("/lab/v1/completions", {"prompt": LONG}),
    "responses": ("/lab/v1/responses", {"input": LONG}),
    "anthropic": ("/anthropic/v1/messages", {"messages": SAY, "max_tokens": 5}),
    "gemini": (
        "/gemini/v1beta/models/plain:generateContent",
        {"contents": [{"parts": [{"text": LONG}]}]},
    ),
}


@pytest.mark.parametrize("dialect", ASKS)
async def test_every_dialect_says_so_in_its_own_words(serve: Serve, dialect: str) -> None:
    path, body = ASKS[dialect]
    tree = json.loads(json.dumps(QUICK))
    tree["providers"]["lab"]["cache"] = {"block": 16}
    sim = await serve(parse(tree, "quick"))
    first, second = [
        (await sim.ask(path, {"model": "plain", "max_tokens": 5} | body)).json for _ in range(2)
    ]
    assert read_cached(dialect, first) == (100, 0)
    assert read_cached(dialect, second) == (100, 96)
    assert [entry.tokens_cached for entry in sim.server.log.entries] == [0, 96]


def read_cached(dialect: str, answer: dict[str, Any]) -> tuple[int, int]:
    """All tokens of the prompt, and those that were cached."""
    if dialect == "gemini":
        usage = answer["usageMetadata"]
        return usage["promptTokenCount"], usage.get("cachedContentTokenCount", 0)
    usage = answer["usage"]
    if dialect == "anthropic":
        cached = usage["cache_read_input_tokens"]
        return usage["input_tokens"] + cached, cached
    if dialect == "responses":
        return usage["input_tokens"], usage["input_tokens_details"]["cached_tokens"]
    return usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]


async def test_a_hit_is_planned_sooner(serve: Serve) -> None:
    lab = {
        "cache": {"block": 16, "saves": 0.5},
        "models": {"m": {"exact": {"ttft_ms": 50, "gap_ms": 0}}},
    }
    sim = await serve(lab=lab)
    for _ in range(2):
        await sim.chat("m", messages=SAY)
    cold, hit = sim.server.log.entries
    first_ns = [entry.script.at_ns[list(entry.script.kind).index(TEXT)] for entry in (cold, hit)]
    assert first_ns == [50_000_000, 50_000_000 - 50_000_000 * 96 // 200]


async def test_nothing_is_cached_where_the_world_says_nothing(serve: Serve) -> None:
    sim = await serve()
    for _ in range(2):
        await sim.chat(messages=SAY)
    assert [entry.tokens_cached for entry in sim.server.log.entries] == [0, 0]


async def test_a_request_that_is_refused_was_not_read(serve: Serve) -> None:
    sim = await serve(lab={"cache": {}})
    await sim.chat(messages=SAY, fault="status:500")
    await sim.chat(messages=SAY)
    assert [entry.tokens_cached for entry in sim.server.log.entries] == [0, 0]
