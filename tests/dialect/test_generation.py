"""Wishes for reasoning in the words, tokens and limits that a generation of models takes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lightgate.dialect.errors import Untranslatable
from lightgate.dialect.generation import EFFORTS, Generation, effort_of
from lightgate.dialect.registry import dialect_for
from lightgate.dialect.request import Message, Request

HI = (Message(role="user", content="Hi."),)


@pytest.mark.parametrize(
    ("tokens", "effort"),
    [
        (-1, "none"),
        (0, "none"),
        (1, "low"),
        (4096, "low"),
        (4097, "medium"),
        (16384, "medium"),
        (16385, "high"),
        (28672, "high"),
        (28673, "xhigh"),
        (49152, "xhigh"),
        (49153, "max"),
    ],
)
def test_the_effort_of_a_number_of_tokens(tokens: int, effort: str) -> None:
    assert effort_of(tokens) == effort
    assert Generation().effort(tokens) == effort


@pytest.mark.parametrize(
    ("efforts", "wish", "effort"),
    [
        ((), "max", "max"),
        (("low", "high"), "low", "low"),
        (("low", "high"), "medium", "low"),  # the lesser one comes first
        (("low", "high"), "max", "high"),
        (("low", "high"), "minimal", "low"),  # no lesser one: the least
        (("low", "high"), "none", "low"),
        (("none", "low"), "minimal", "low"),  # not at all is another wish
        (("none", "low"), "none", "none"),
        (("minimal", "high"), "low", "minimal"),
        (("low", "medium", "high"), "xhigh", "high"),
        (("low", "high"), "huge", "huge"),  # a word of the provider's own
        (("low", "high"), 20_000, "high"),
        (("low", "high"), 10_000, "low"),
    ],
)
def test_the_nearest_effort_that_is_taken(
    efforts: tuple[str, ...], wish: str | int, effort: str
) -> None:
    assert Generation(efforts=efforts).effort(wish) == effort


@pytest.mark.parametrize(
    ("facts", "wish", "tokens"),
    [
        ({}, "none", 0),
        ({}, "minimal", 1024),
        ({}, "low", 1024),
        ({}, "medium", 8192),
        ({}, "high", 24576),
        ({}, "xhigh", 32768),
        ({}, "max", 65536),
        ({}, "another", 8192),
        ({}, 500, 500),
        ({"least": 1024}, 500, 1024),
        ({"least": 1024}, 1024, 1024),
        ({"most": 2000}, "high", 2000),
        ({"most": 2000}, 2000, 2000),
        ({"least": 128}, 0, 0),
        ({"least": 128, "off": False}, 0, 128),
        ({"least": 128, "off": False}, "none", 128),
        ({"off": False}, 0, 0),
    ],
)
def test_tokens_of_a_wish_within_the_limits(
    facts: dict[str, Any], wish: str | int, tokens: int
) -> None:
    assert Generation(**facts).tokens(wish) == tokens


def test_a_limit_is_no_higher_than_the_longest_answer() -> None:
    assert [Generation().cap(9), Generation(max_tokens=5).cap(9)] == [9, 5]
    assert [Generation(max_tokens=5).cap(5), Generation(max_tokens=5).cap(4)] == [5, 4]
    assert list(EFFORTS) == ["none", "minimal", "low", "medium", "high", "xhigh", "max"]


def body(**facts: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    asked = Request(model="m", messages=HI, **facts)
    made = dialect_for("openai", "responses").build(asked)
    return json.loads(made.body), made.dropped


@pytest.mark.parametrize(
    ("facts", "reasoning"),
    [
        ({}, None),
        ({"reasoning": "low"}, {"effort": "low"}),
        ({"reasoning": 10_000}, {"effort": "medium"}),
        ({"reasoning": "low", "thoughts": "auto"}, {"effort": "low", "summary": "auto"}),
        ({"thoughts": "detailed"}, {"summary": "detailed"}),
        ({"thoughts": "omitted"}, None),
        (
            {"reasoning": "max", "generation": Generation(thinking="effort", efforts=("low",))},
            {"effort": "low"},
        ),
        ({"reasoning": 0, "generation": Generation(thinking="none")}, None),
        ({"reasoning": "none", "generation": Generation(thinking="none")}, None),
        ({"thoughts": "auto", "generation": Generation(thinking="none")}, None),
    ],
)
def test_reasoning_of_a_response(facts: dict[str, Any], reasoning: dict[str, Any] | None) -> None:
    made, dropped = body(**facts)
    assert (made.get("reasoning"), dropped) == (reasoning, ())


def test_a_model_that_does_not_think_is_not_told_to() -> None:
    never = Generation(thinking="none")
    made, dropped = body(reasoning="low", generation=never, untranslatable="drop")
    assert ("reasoning" in made, dropped) == (False, ("reasoning",))
    with pytest.raises(Untranslatable, match="this model does not think"):
        body(reasoning="low", generation=never)


def test_a_response_asked_for_in_full() -> None:
    made, _ = body(
        max_tokens=9, temperature=0.0, top_p=0.5, logprobs=True, top_logprobs=2, json_object=True,
        verbosity="low", parallel_tool_calls=False, stream=False,
    )  # fmt: skip
    assert made == {
        "model": "m",
        "input": made["input"],
        "max_output_tokens": 9,
        "temperature": 0.0,
        "top_p": 0.5,
        "include": ["message.output_text.logprobs"],
        "top_logprobs": 2,
        "text": {"format": {"type": "json_object"}, "verbosity": "low"},
        "parallel_tool_calls": False,
    }
    streamed, _ = body()
    assert streamed["stream"] is True
    assert set(streamed) == {"model", "input", "stream"}
    kept, dropped = body(hosted=("web_search",), untranslatable="drop")
    assert ("tools" in kept, dropped) == (False, ("hosted.web_search",))
