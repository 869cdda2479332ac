"""What a body says that is paid for: how many answers, how long, and under which names."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from lightgate.errors import UsageError
from lightgate.gateway.request.body import read_request_body, with_cap
from lightgate.gateway.request.endpoint import find

CHAT, TEXTS, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/messages"
GEMINI = "/v1beta/models/m:generateContent"


def read(path: str, **fields: Any) -> Any:
    found = find(path.encode())
    assert found is not None
    named = {} if path == GEMINI else {"model": "m"}
    return read_request_body(found.endpoint, msgspec.json.encode({**named, **fields}))


@pytest.mark.parametrize(
    ("path", "fields", "answers"),
    [
        (CHAT, {}, 1), (CHAT, {"n": 3}, 3), (CHAT, {"n": 2, "best_of": 5}, 5),
        (CHAT, {"n": None}, 1), (CHAT, {"n": 3, "prompt": ["a", "b"]}, 3),
        (TEXTS, {"prompt": "a"}, 1), (TEXTS, {"prompt": ["a", "b", "c"]}, 3),
        (TEXTS, {"prompt": ["a", "b", "c"], "n": 4}, 12), (TEXTS, {"prompt": [1, 2, 3]}, 1),
        (TEXTS, {"prompt": [[1], [2, 3]], "best_of": 2}, 4), (TEXTS, {"prompt": []}, 1),
        (TEXTS, {"prompt": "a", "n": 2}, 2),
        (MESSAGES, {"n": 3}, 1),
        (GEMINI, {"generationConfig": {"candidateCount": 4}}, 4),
        (GEMINI, {"generationConfig": None}, 1), (GEMINI, {}, 1),
    ],
)  # fmt: skip
def test_answers_are_counted(path: str, fields: dict[str, Any], answers: int) -> None:
    assert read(path, **fields).answers == answers


@pytest.mark.parametrize("field", ["n", "best_of"])
def test_as_many_answers_as_a_thousand_and_no_more(field: str) -> None:
    for path in (CHAT, TEXTS):
        assert read(path, **{field: 1024}).answers == 1024
        with pytest.raises(UsageError, match=f"`{field}` is above 1024"):
            read(path, **{field: 1025})
        with pytest.raises(UsageError, match=f"`{field}` is below 1"):
            read(path, **{field: 0})


def test_as_many_candidates_as_a_thousand_and_no_more() -> None:
    assert read(GEMINI, generationConfig={"candidateCount": 1024}).answers == 1024
    for count, why in ((1025, "above 1024"), (0, "below 1")):
        with pytest.raises(UsageError, match=f"`candidateCount` is {why}"):
            read(GEMINI, generationConfig={"candidateCount": count})


def test_a_limit_is_a_number_of_tokens_and_of_two_the_larger_counts() -> None:
    assert read(CHAT, max_tokens=2**31).max_tokens == 2**31
    with pytest.raises(UsageError, match="is above 2147483648"):
        read(CHAT, max_tokens=2**31 + 1)
    for pair in ((5, 9), (9, 5), (9, None), (None, 9)):
        asked = read(CHAT, max_tokens=pair[0], max_completion_tokens=pair[1])
        assert asked.max_tokens == 9


def test_prompts_are_counted_up_to_a_limit() -> None:
    most = 49_999  # two quotation marks each, and the bracket around them
    assert read(TEXTS, prompt=["a"] * most).answers == most
    with pytest.raises(UsageError, match="too many prompts"):
        read(TEXTS, prompt=["a"] * (most + 1))


@pytest.mark.parametrize(
    ("name", "path"), [("Model", CHAT), ("STREAM", CHAT), ("Max_Tokens", CHAT), ("N", TEXTS)]
)
def test_a_name_that_some_providers_would_read_is_written_small(name: str, path: str) -> None:
    with pytest.raises(UsageError, match=f"Write the field '{name}' as `{name.casefold()}`"):
        read(path, **{name: 1})
    assert read(path, **{f"{name}_of_ours": 1}).answers == 1


def test_a_body_has_so_many_fields_and_no_more() -> None:
    many = {f"f{number}": 0 for number in range(255)}
    assert read(CHAT, **many).model == "m"
    with pytest.raises(UsageError, match="more than 256 fields"):
        read(CHAT, **many, one_more=0)


@pytest.mark.parametrize(
    ("dialect", "given", "capped"),
    [
        ("openai-chat", {}, {"max_completion_tokens": 7}),
        ("openai-chat", {"max_tokens": 9}, {"max_tokens": 7}),
        ("openai-chat", {"max_tokens": 9, "max_completion_tokens": 8},
         {"max_tokens": 7, "max_completion_tokens": 7}),
        ("anthropic-messages", {}, {"max_tokens": 7}),
        ("openai-responses", {"x": 1}, {"x": 1, "max_output_tokens": 7}),
        ("gemini", {}, {"generationConfig": {"maxOutputTokens": 7}}),
        ("gemini", {"generationConfig": None}, {"generationConfig": {"maxOutputTokens": 7}}),
        ("gemini", {"generationConfig": {"topK": 1, "maxOutputTokens": 9}},
         {"generationConfig": {"topK": 1, "maxOutputTokens": 7}}),
    ],
)  # fmt: skip
def test_a_cap_is_put_where_the_dialect_has_it(
    dialect: str, given: dict[str, Any], capped: dict[str, Any]
) -> None:
    fields = {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in given.items()}
    made = with_cap(dialect, fields, 7, "max_completion_tokens")
    assert {name: msgspec.json.decode(raw) for name, raw in made.items()} == capped
