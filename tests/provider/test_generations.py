"""Generations of models: each name finds its row, and wishes are put into the words of the row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lightgate.dialect.generation import EFFORTS, Generation, effort_of
from lightgate.dialect.registry import Family, dialect_for
from lightgate.dialect.request import Message, Request, Tool
from lightgate.provider.generations import UNKNOWN, generation_of, generations

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "generations.md"
HELLO = Message(role="user", content="Hi.")


def words(row: Generation) -> str:
    """Say what a row has for thinking, in a few words."""
    if row.efforts:
        said = f"{row.thinking}: {', '.join(row.efforts)}"
    elif row.thinking == "budget":
        said = f"budget from {row.least or 1} to {row.most or 'below max_tokens'}"
    else:
        said = row.thinking
    return said if row.off else f"{said}; always on"


def page_rows(family: str) -> list[str]:
    def yes(flag: bool) -> str:
        return "yes" if flag else "no"

    return [
        f"| {', '.join(f'`{name}`' for name in row.match)} | {words(row)} | {row.sampling} |"
        f" {yes(row.schema)} | {yes(row.schema_with_tools)} | {row.max_tokens or 'not known'} |"
        for row in generations()[family]
    ]


@pytest.mark.parametrize("family", ["anthropic", "gemini", "openai"])
def test_the_page_has_every_row(family: str) -> None:
    section = PAGE.read_text("utf-8").split(f"\n## {family}\n")[1].split("\n## ")[0]
    assert [line for line in section.splitlines() if line.startswith("| `")] == page_rows(family)


def body(family: Family, model: str, /, **facts: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Build a chat client's request for a model; its body, and what was dropped."""
    request = Request(
        model=model,
        messages=(HELLO,),
        stream=False,
        client="any",
        untranslatable="drop",
        generation=generation_of(family, model),
        **facts,
    )
    built = dialect_for(family, "chat").build(request)
    return json.loads(built.body), built.dropped


@pytest.mark.parametrize(
    "model",
    [
        "claude-haiku-4-5",
        "claude-sonnet-4-5-20250929",
        "claude-opus-4-5",
        "claude-opus-4-1-20250805",
        "claude-3-7-sonnet-latest",
        "us.anthropic.claude-haiku-4-5-20251001-v1:0",
    ],
)
def test_older_claudes_are_told_a_number(model: str) -> None:
    found, dropped = body("anthropic", model, reasoning="medium", max_tokens=32_000)
    assert found["thinking"] == {"type": "enabled", "budget_tokens": 8192}
    assert "output_config" not in found
    assert dropped == ()


@pytest.mark.parametrize("model", ["claude-opus-4-6", "claude-sonnet-4-6", "claude-opus-4-8"])
def test_newer_claudes_are_told_an_effort(model: str) -> None:
    for wish, effort in (("medium", "medium"), (9000, "medium"), ("minimal", "low")):
        found, _ = body("anthropic", model, reasoning=wish, max_tokens=32_000)
        assert found["thinking"] == {"type": "adaptive"}
        assert found["output_config"] == {"effort": effort}


def test_a_budget_is_at_least_the_least_and_below_the_cap() -> None:
    model = "claude-haiku-4-5"
    for wish, cap, tokens in ((100, 9000, 1024), (20_000, 9000, 4500), ("low", 1500, 1024)):
        found, _ = body("anthropic", model, reasoning=wish, max_tokens=cap)
        assert found["thinking"]["budget_tokens"] == tokens
    found, dropped = body("anthropic", model, reasoning="low", max_tokens=1024)
    assert "thinking" not in found
    assert dropped == ("reasoning",)
    found, _ = body("anthropic", model, reasoning="high")
    assert found["thinking"]["budget_tokens"] == 24_576 < found["max_tokens"]


def test_thinking_is_dropped_where_it_cannot_be() -> None:
    forced: dict[str, Any] = {"tools": (Tool(name="f"),), "tool_choice": "required"}
    for model, facts in (("claude-3-5-haiku-latest", {}), ("claude-haiku-4-5", forced)):
        found, dropped = body("anthropic", model, reasoning="low", **facts)
        assert "thinking" not in found
        assert dropped == ("reasoning",)


def test_sampling_beside_thinking_and_by_generation() -> None:
    wishes: dict[str, Any] = {"temperature": 0.5, "top_p": 0.9, "top_k": 40}
    found, dropped = body("anthropic", "claude-haiku-4-5", reasoning="low", **wishes)
    assert dropped == ("temperature", "top_k", "top_p")
    assert not set(wishes) & set(found)
    found, dropped = body("anthropic", "claude-haiku-4-5", **wishes)
    assert (found["temperature"], found["top_k"], dropped) == (0.5, 40, ("top_p",))
    # What gemini-cli sends: a temperature of 1 is no wish.
    found, dropped = body("anthropic", "claude-haiku-4-5", temperature=1, top_p=0.95)
    assert (found.get("temperature"), found["top_p"], dropped) == (None, 0.95, ())
    found, dropped = body("anthropic", "claude-opus-4-8", temperature=1, top_p=0.95)
    assert (found.get("temperature"), found.get("top_p"), dropped) == (None, None, ("top_p",))
    found, dropped = body("openai", "gpt-5.1", temperature=0.2, presence_penalty=0.5)
    assert "temperature" not in found
    assert dropped == ("temperature", "presence_penalty")
    assert body("openai", "gpt-4o", temperature=0.2)[0]["temperature"] == 0.2


@pytest.mark.parametrize(
    ("model", "wish", "config"),
    [
        ("gemini-2.5-pro", "none", {"includeThoughts": True, "thinkingBudget": 128}),
        ("gemini-2.5-pro", 90_000, {"includeThoughts": True, "thinkingBudget": 32_768}),
        ("gemini-2.5-flash", "none", {"thinkingBudget": 0}),
        ("gemini-2.5-flash", "xhigh", {"includeThoughts": True, "thinkingBudget": 24_576}),
        ("gemini-2.5-flash-lite", 10, {"includeThoughts": True, "thinkingBudget": 512}),
        ("gemini-3-pro-preview", "medium", {"includeThoughts": True, "thinkingLevel": "low"}),
        ("gemini-3.1-pro-preview", 9000, {"includeThoughts": True, "thinkingLevel": "medium"}),
        ("gemini-3-flash-preview", "none", {"includeThoughts": True, "thinkingLevel": "minimal"}),
        ("gemini-3-flash-preview", "max", {"includeThoughts": True, "thinkingLevel": "high"}),
    ],
)
def test_gemini_is_told_a_number_or_a_level(model: str, wish: Any, config: Any) -> None:
    found, dropped = body("gemini", model, reasoning=wish)
    assert found["generationConfig"]["thinkingConfig"] == config
    assert dropped == ()


@pytest.mark.parametrize(
    ("model", "wish", "effort"),
    [
        ("gpt-5", "none", "minimal"),
        ("gpt-5.1", "none", "none"),
        ("gpt-5.1", "minimal", "low"),
        ("gpt-5.2", "xhigh", "xhigh"),
        ("gpt-5", 20_000, "high"),
        ("o3", "minimal", "low"),
        ("openai/gpt-oss-120b", "xhigh", "high"),
    ],
)
def test_models_of_openai_that_think_are_told_an_effort(model: str, wish: Any, effort: str) -> None:
    assert body("openai", model, reasoning=wish)[0]["reasoning_effort"] == effort


@pytest.mark.parametrize("model", ["gpt-4o", "gpt-4.1-mini", "llama-3.3-70b-versatile", "m"])
def test_models_that_do_not_think_are_not_told_to(model: str) -> None:
    found, dropped = body("openai", model, reasoning="high")
    assert "reasoning_effort" not in found
    assert dropped == ("reasoning",)
    assert body("openai", model, reasoning="none")[1] == ()  # they do not, as it was asked


def test_a_cap_is_no_higher_than_the_longest_answer() -> None:
    assert body("openai", "gpt-4o", max_tokens=64_000)[0]["max_tokens"] == 16_384
    assert body("anthropic", "claude-3-haiku-20240307")[0]["max_tokens"] == 4096
    assert body("anthropic", "new")[0]["max_tokens"] == 32_000


def test_efforts_and_tokens_are_each_others_inverse() -> None:
    plain = Generation()
    for effort in ("none", "low", "medium", "high", "xhigh", "max"):
        assert effort_of(plain.tokens(effort)) == effort
    order = [EFFORTS.index(effort_of(tokens)) for tokens in (0, 1, 5000, 20_000, 40_000, 99_999)]
    assert order == sorted(order)


def test_a_name_that_no_row_has_takes_what_it_is_told() -> None:
    assert generation_of("anthropic", "our-own") is UNKNOWN
    assert generation_of("gemini", "our-own") is UNKNOWN
    assert generation_of("openai", "our-own").thinking == "none"
