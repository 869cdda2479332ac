"""The level of a request: the same in every dialect, explained, and never an exception."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightgate.route.cascade.asked import READ, asked_of
from lightgate.route.cascade.complexity import (
    COMPLEX_FROM,
    MEDIUM_FROM,
    WORTH,
    Complexity,
    _level,
    score,
    signs,
)
from lightgate.route.cascade.features import MOST_BYTES, RequestFeatures, features_of
from lightgate.route.cascade.verify import BUILT_IN
from lightgate.route.cascade.words import ANYWHERE, BY_HEAD, PHRASES, family_of
from lightgate.route.plan.plan import LEVELS, Level

DIALECTS = ("openai-chat", "openai-responses", "anthropic-messages", "gemini")
SCHEMA = {"type": "object", "properties": {f"f{n}": {"type": "string"} for n in range(12)}}


def fields_of(body: Any) -> dict[str, msgspec.Raw]:
    text = body if isinstance(body, str) else json.dumps(body)
    return msgspec.json.decode(text.encode(), type=dict[str, msgspec.Raw])


def body_of(dialect: str) -> dict[str, Any]:
    """One talk of two turns with a system text, three tools, a schema and a tool's result."""
    parameters = {"type": "object", "properties": {"a": {"type": "string"}}}
    names = ("find", "book", "cancel")
    if dialect == "openai-chat":
        return {
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "First."},
                {"role": "assistant", "content": "```x```"},
                {"role": "tool", "tool_call_id": "1", "content": "7"},
                {"role": "user", "content": [{"type": "text", "text": "Prove it."}]},
            ],
            "tools": [
                {"type": "function", "function": {"name": n, "parameters": parameters}}
                for n in names
            ],
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "n", "schema": SCHEMA},
            },
            "reasoning_effort": "high",
        }
    if dialect == "openai-responses":
        return {
            "instructions": "Be brief.",
            "input": [
                {"role": "user", "content": "First."},
                {"role": "assistant", "content": [{"type": "output_text", "text": "```x```"}]},
                {"type": "function_call_output", "call_id": "1", "output": "7"},
                {
                    "type": "message",
                    "role": "user",
                    "content": [{"type": "input_text", "text": "Prove it."}],
                },
            ],
            "tools": [{"type": "function", "name": n, "parameters": parameters} for n in names],
            "text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA}},
            "reasoning": {"effort": "high"},
        }
    if dialect == "anthropic-messages":
        return {
            "system": [{"type": "text", "text": "Be brief."}],
            "messages": [
                {"role": "user", "content": "First."},
                {"role": "assistant", "content": [{"type": "text", "text": "```x```"}]},
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": "1", "content": "7"},
                        {"type": "text", "text": "Prove it."},
                    ],
                },
            ],
            "tools": [{"name": n, "input_schema": parameters} for n in names],
            "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
            "thinking": {"type": "enabled", "budget_tokens": 2000},
        }
    return {
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "contents": [
            {"role": "user", "parts": [{"text": "First."}]},
            {"role": "model", "parts": [{"text": "```x```"}]},
            {
                "role": "user",
                "parts": [
                    {"functionResponse": {"name": "find", "response": {}}},
                    {"text": "Prove it."},
                ],
            },
        ],
        "tools": [{"functionDeclarations": [{"name": n, "parameters": parameters} for n in names]}],
        "generationConfig": {"responseJsonSchema": SCHEMA},
    }


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_gist_is_the_same_in_every_dialect(dialect: str) -> None:
    features = features_of(dialect, fields_of(body_of(dialect)))

    assert (features.text, features.system, features.turns) == ("Prove it.", "Be brief.", 2)
    assert (features.tools, features.steps, features.earlier_code) == (3, 1, True)
    assert features.schema > 200
    assert features.effort == ("" if dialect == "gemini" else "high")


@pytest.mark.parametrize(
    ("given", "system"),
    [
        ({"systemInstruction": "A.", "system_instruction": "B."}, "A."),
        ({"system_instruction": "B."}, "B."),
        ({"systemInstruction": "", "system_instruction": "B."}, ""),
        ({}, ""),
    ],
)
def test_of_two_spellings_of_the_instructions_the_first_counts(
    given: dict[str, str], system: str
) -> None:
    fields = {name: {"parts": [{"text": text}]} for name, text in given.items()}
    assert features_of("gemini", fields_of({"contents": [], **fields})).system == system


def test_a_mere_text_is_a_request_of_the_responses_endpoint() -> None:
    assert features_of("openai-responses", fields_of({"input": "Hello"})).text == "Hello"


def test_images_are_counted() -> None:
    parts = [{"type": "image_url", "image_url": {"url": "x"}}, {"type": "text", "text": "Look."}]

    features = features_of(
        "openai-chat", fields_of({"messages": [{"role": "user", "content": parts}]})
    )

    assert (features.images, features.text) == (1, "Look.")


def test_a_huge_request_is_judged_by_its_size() -> None:
    body = {"messages": [{"role": "user", "content": "x " * MOST_BYTES}]}

    features = features_of("openai-chat", fields_of(body))

    assert features.text == ""
    assert features.earlier > MOST_BYTES
    assert "earlier" in signs(features)


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("What is the capital of Mongolia?", "simple"),
        ("Übersetze ins Englische: Der Zug hat Verspätung.", "simple"),
        ("Write a Python function that returns the second largest number in a list.", "medium"),
        ("用 Python 写一个函数,统计一段文字里每个词出现的次数。", "medium"),
        (
            "Prove that every finite tree with two vertices or more has at least two leaves.",
            "complex",
        ),
        (
            "Conçois un système de paiement cohérent ; discute les compromis et justifie le choix.",
            "complex",
        ),
        ("Derive Stokes' theorem.", "complex"),
        ("Entwirf einen verteilten Cache.", "complex"),
    ],
)
def test_levels(text: str, level: Level) -> None:
    assert score(RequestFeatures(text=text)).level == level


PASTED = "Prove the theorem, design the architecture, justify the trade-offs. " * 6
ASKED = "Which language is this?"


@pytest.mark.parametrize(
    "text",
    [
        f"{ASKED}\n\n{PASTED}\n\n{PASTED}",
        f"{PASTED}\n\n{ASKED}",
        f"{ASKED}\n\n```\n{PASTED}\n```",
        f"```\n{PASTED}\n```\n{ASKED}",
        f'{ASKED} "{PASTED}"',
        f"> {PASTED}\n{ASKED}",
        f"Translate into Danish: {PASTED}",
        f"{ASKED}\n" + "2027-01-03 proof;design;analysis\n" * 9,
    ],
    ids=["before", "behind", "fenced", "behind a fence", "quoted", "cited", "colon", "lines"],
)
def test_material_is_not_read_for_words(text: str) -> None:
    verdict = score(RequestFeatures(text=text))

    assert verdict.level == "simple"
    assert "asks for a proof" not in signs(RequestFeatures(text=text))


def test_a_long_story_before_an_easy_question_changes_nothing() -> None:
    story = "My uncle designs bridges and argued with everyone about the proof of his theory. " * 8

    asked = asked_of(story + "How many legs has a spider?")

    assert asked.routine
    assert (asked.ask, asked.setting) == (len("How many legs has a spider?"), 0)
    assert asked.material >= len(story)


def test_a_setting_counts_where_the_question_is_no_routine() -> None:
    setting = "Our replicas deadlock every night, and no transaction may be lost. "
    asked = asked_of(setting + "What would you change?")

    assert not asked.routine
    assert "systems" in asked.around
    assert score(RequestFeatures(text=setting + "What would you change?")).score > (
        score(RequestFeatures(text="What would you change?")).score
    )


def test_what_is_read_of_a_text_is_bounded() -> None:
    long = "Is it so? " * READ

    assert sum(len(sentence) for sentence in asked_of(long).sentences) < READ
    assert asked_of(long).material > len(long) - READ


def test_reasons_are_in_the_order_of_their_weight() -> None:
    verdict = score(RequestFeatures(text="Prove the theorem.", tools=2))

    assert verdict.reasons[0] == "asks for a proof"
    assert verdict.reasons[-1] == "may call tools"


def test_reasons_speak_for_the_level() -> None:
    easy = score(RequestFeatures(text="What is the capital of the country of the kangaroos?"))
    hard = score(RequestFeatures(text="Prove the theorem and list the lemmas, please."))

    assert WORTH["ask"][1] not in easy.reasons
    assert WORTH["pick"][1] not in hard.reasons
    assert {"ask", "easy"} <= set(signs(RequestFeatures(text="What is the capital of France?")))


def test_an_unknown_script_is_never_simple() -> None:
    assert score(RequestFeatures(text="Ποια είναι η πρωτεύουσα;")).level == "medium"
    assert score(RequestFeatures(text="What is \u03b1?")).level == "simple"


def test_more_of_anything_but_routine_makes_nothing_simpler() -> None:
    plain = score(RequestFeatures(text="Explain this.")).score
    for more in (
        {"tools": 6},
        {"schema": 900},
        {"images": 1},
        {"effort": "high"},
        {"steps": 5},
        {"earlier": 90_000},
        {"earlier_code": True},
        {"system": "x" * 4000},
    ):
        assert score(RequestFeatures(text="Explain this.", **more)).score > plain, more


def test_every_cue_belongs_to_a_family_that_is_known() -> None:
    families = {family for found in BY_HEAD.values() for _, _, family in found}
    families |= set(ANYWHERE.values())
    families |= {family for found in PHRASES.values() for _, family in found}

    assert families - {"make"} <= set(WORTH)  # `make` counts where something hard is to be made


def test_cues_go_through_their_endings_and_not_further() -> None:
    assert family_of("проанализируйте") == family_of("analysis") == "analysis"
    assert family_of("prove") == "proof"
    assert family_of("proverb") is None
    assert family_of("planet") is None


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["role", "content", "parts", "type", "text", "x"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)
NAMES = ("messages", "input", "contents", "system", "instructions", "systemInstruction", "tools")
MORE = ("response_format", "text", "generationConfig", "reasoning", "thinking", "prompt")


@given(
    dialect=st.sampled_from([*DIALECTS, "openai-completions", "openai-embeddings"]),
    body=st.dictionaries(st.sampled_from([*NAMES, *MORE]), json_values, max_size=6),
)
def test_hostile_fields_never_raise(dialect: str, body: dict[str, Any]) -> None:
    verdict = score(features_of(dialect, fields_of(body)))

    assert verdict.level in LEVELS


@given(dialect=st.sampled_from(DIALECTS), raw=st.binary(max_size=40), deep=st.booleans())
def test_fields_that_are_no_json_never_raise(dialect: str, raw: bytes, deep: bool) -> None:
    bad = msgspec.Raw(b"[" * 5000 if deep else raw)
    names = (*NAMES, *MORE)

    assert isinstance(score(features_of(dialect, dict.fromkeys(names, bad))), Complexity)


@given(text=st.text(max_size=400), system=st.text(max_size=50), tools=st.integers(0, 300))
def test_any_text_has_one_level_and_it_is_the_same_twice(
    text: str, system: str, tools: int
) -> None:
    features = RequestFeatures(text=text, system=system, tools=tools)

    assert score(features) == score(features)


# The labelled prompts, and what is said about them

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "guides" / "cascade.md").read_text("utf-8")
README = (ROOT / "benchmarks" / "README.md").read_text("utf-8")


def module_of(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    for name in ("cascade", "cascade_made", "cascade_fit"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    module_of("cascade_made")
    return module_of("cascade")


def test_the_labelled_prompts_are_many_balanced_and_different(bench: Any) -> None:
    prompts = bench.prompts()

    assert len(prompts) >= 200
    assert len({prompt.text for prompt in prompts}) == len(prompts)
    assert len({prompt.id for prompt in prompts}) == len(prompts)
    assert {prompt.set for prompt in prompts} == set(bench.SETS)
    for name in bench.SETS:
        counts = Counter(prompt.level for prompt in prompts if prompt.set == name)
        assert len(counts) == len(LEVELS)
        assert max(counts.values()) < 1.25 * min(counts.values())


def test_what_is_kept_out_shares_no_sentence_with_the_fit(bench: Any) -> None:
    def sentences(names: tuple[str, ...]) -> set[str]:
        found = [prompt.text for prompt in bench.prompts() if prompt.set in names]
        return {
            part for text in found for part in re.split(r"(?<=[.?!])\s+|\n", text) if len(part) > 30
        }

    kept_out = tuple(name for name in bench.SETS if name not in bench.FIT_SETS)
    assert not sentences(bench.FIT_SETS) & sentences(kept_out)


def test_the_points_in_the_code_are_those_of_the_fit(bench: Any) -> None:
    fit = module_of("cascade_fit")
    worth, bounds = fit.fit(fit.rows_of())

    assert {name: round(value, 2) for name, value in worth.items()} == {
        name: value for name, (value, _) in WORTH.items()
    }
    assert [round(bound, 2) for bound in bounds] == [MEDIUM_FROM, COMPLEX_FROM]


def test_prompts_that_were_kept_out_are_told_better_than_by_length(bench: Any) -> None:
    everything = bench.prompts()
    found = [(prompt, bench.told(prompt, place)) for place, prompt in enumerate(everything)]
    rivals = bench.rivals_of(everything)

    for name, part in bench.parts_of(found).items():
        assert bench.report(name, part, rivals) >= bench.MARGIN, name


def test_the_printed_figures_are_those_of_the_rules(bench: Any) -> None:
    found = [(prompt, bench.told(prompt, place)) for place, prompt in enumerate(bench.prompts())]
    for name, part in bench.parts_of(found).items():
        mine = [(prompt.level, level) for prompt, level in part]
        right = f"{sum(label == level for label, level in mine) / len(mine):.1%}".replace("%", " %")
        below = sum(LEVELS.index(level) < LEVELS.index(label) for label, level in mine) / len(mine)
        low = f"{below:.1%}".replace("%", " %")
        row = next(line for line in GUIDE.splitlines() if line.startswith(f"| {name} |"))
        assert row.split(" | ")[1:3] == [str(len(mine)), right]
        assert row.split(" | ")[4] == low
        assert f"| {len(mine)} | {right} " in README
    late = Counter((prompt.level, level) for prompt, level in found if prompt.set == "late")
    for label in LEVELS:
        assert f"| {label} | {' | '.join(str(late[label, told]) for told in LEVELS)} |" in GUIDE


def test_the_guides_examples_are_true() -> None:
    rows = [line.strip("| ").split(" | ") for line in GUIDE.splitlines() if line.count(" | ") == 3]
    examples = [cells for cells in rows if cells[1] in LEVELS]
    assert len(examples) == 3
    for text, level, points, reasons in examples:
        verdict = score(RequestFeatures(text=text))
        assert (verdict.level, verdict.score) == (level, float(points))
        assert "; ".join(verdict.reasons) == reasons
    assert f"below {MEDIUM_FROM:g} is simple, from {COMPLEX_FROM:g} on complex" in GUIDE


def test_every_check_has_its_row() -> None:
    section = GUIDE.split("\n## Checks\n")[1].split("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == list(BUILT_IN)


def test_a_level_begins_with_its_first_point() -> None:
    """The guide says below and from: the bound itself is of the higher level."""
    totals = (MEDIUM_FROM - 0.01, MEDIUM_FROM, COMPLEX_FROM - 0.01, COMPLEX_FROM)
    assert [_level(total) for total in totals] == ["simple", "medium", "medium", "complex"]
