"""Quirks of providers: what becomes of a plain body of chat, switch by switch."""

from __future__ import annotations

from typing import Any

import pytest

from lightgate.dialect.errors import Untranslatable
from lightgate.dialect.neutral.omit import Omissions
from lightgate.dialect.quirks import HINTS, Quirks

UNKNOWN = "this provider does not know it"


def adapted(body: dict[str, Any], **switches: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    left = Omissions(refuses=False)
    Quirks(**switches).adapt(body, left)
    return body, left.paths


def test_the_defaults_fit_a_plain_server() -> None:
    plain = Quirks()
    assert plain == Quirks(
        max_tokens_field="max_tokens",
        stream_usage=True,
        obfuscation=False,
        min_tokens=False,
        ignore_eos=False,
        system_role="system",
        seed_field="seed",
        reasoning_style="effort",
        schema=True,
        max_tokens_only=False,
        developer_role=True,
        refuses=(),
        hosted=(),
        raw_predict="",
    )
    body = {"messages": [{"role": "user"}], "max_tokens": 3, "seed": 1, "reasoning_effort": "low"}
    assert adapted(dict(body)) == (body, ())


@pytest.mark.parametrize(
    ("switches", "body", "expected", "dropped"),
    [
        ({"seed_field": "random_seed"}, {"seed": 1}, {"random_seed": 1}, ()),
        ({"seed_field": None}, {"seed": 1}, {}, ("seed",)),
        ({"seed_field": None}, {}, {}, ()),
        ({}, {"min_tokens": 1, "ignore_eos": True}, {}, ("min_tokens", "ignore_eos")),
        (
            {"min_tokens": True},
            {"min_tokens": 1, "ignore_eos": True},
            {"min_tokens": 1},
            ("ignore_eos",),
        ),
        (
            {"ignore_eos": True},
            {"min_tokens": 1, "ignore_eos": True},
            {"ignore_eos": True},
            ("min_tokens",),
        ),
        ({"max_tokens_field": "x"}, {"max_tokens": 3}, {"max_tokens": 3}, ()),  # of completions
        (
            {"max_tokens_field": "x"},
            {"messages": [], "max_tokens": 3},
            {"messages": [], "x": 3},
            (),
        ),
        ({"stream_usage": False}, {"stream": True}, {"stream": True}, ()),
        ({}, {"stream": True}, {"stream": True, "stream_options": {"include_usage": True}}, ()),
        ({"obfuscation": True}, {"stream": False}, {"stream": False}, ()),
        (
            {"obfuscation": True},
            {"stream": True},
            {
                "stream": True,
                "stream_options": {"include_usage": True, "include_obfuscation": False},
            },
            (),
        ),
        (
            {"reasoning_style": "object"},
            {"reasoning_effort": "low"},
            {"reasoning": {"effort": "low"}},
            (),
        ),
        (
            {"reasoning_style": "object"},
            {"reasoning_effort": 500},
            {"reasoning": {"max_tokens": 500}},
            (),
        ),
        ({"reasoning_style": "none"}, {"reasoning_effort": "low"}, {}, ("reasoning",)),
        (
            {"refuses": ("user", "seed")},
            {"user": "u", "seed": 1, "n": 2},
            {"n": 2},
            ("user", "seed"),
        ),
        ({"refuses": ("reasoning_effort",)}, {"reasoning_effort": "low"}, {}, ("reasoning",)),
        ({"refuses": ("logit_bias",)}, {"logit_bias": None}, {}, ()),
    ],
)
def test_one_switch(
    switches: dict[str, Any],
    body: dict[str, Any],
    expected: dict[str, Any],
    dropped: tuple[str, ...],
) -> None:
    assert adapted(body, **switches) == (expected, dropped)


@pytest.mark.parametrize("role", ["system", "developer"])
def test_the_role_of_system_texts(role: Any) -> None:
    told = [{"role": one} for one in ("system", "developer", "user", "assistant")]
    body, _ = adapted({"messages": told}, system_role=role)
    assert [turn["role"] for turn in body["messages"]] == [role, role, "user", "assistant"]
    quirks = Quirks(system_role=role)
    assert [quirks.role(one) for one in ("system", "developer", "user")] == [role, role, "user"]


def test_a_refused_field_that_means_something_leads_past_the_target() -> None:
    left = Omissions(refuses=False, dialect="D")
    with pytest.raises(Untranslatable, match=f"'logit_bias': {UNKNOWN}"):
        Quirks(refuses=("logit_bias",)).adapt({"logit_bias": {}}, left)
    strict = Omissions(refuses=True, dialect="D")
    with pytest.raises(Untranslatable, match="'seed': this provider has none"):
        Quirks(seed_field=None).adapt({"seed": 1}, strict)
    for field in ("min_tokens", "ignore_eos"):
        with pytest.raises(Untranslatable, match=f"'{field}': {UNKNOWN}"):
            Quirks().adapt({field: 1}, strict)
    with pytest.raises(Untranslatable, match=f"'reasoning': {UNKNOWN}"):
        Quirks(reasoning_style="none").adapt({"reasoning_effort": "low"}, strict)


@pytest.mark.parametrize(
    "field",
    [
        "user",
        "store",
        "metadata",
        "service_tier",
        "safety_identifier",
        "prompt_cache_key",
        "prompt_cache_retention",
        "parallel_tool_calls",
        "prediction",
        "verbosity",
        "seed",
        "frequency_penalty",
        "presence_penalty",
    ],
)
def test_fields_without_which_an_answer_says_the_same(field: str) -> None:
    assert adapted({field: 1}, refuses=(field,)) == ({}, (field,))
    assert field in HINTS
