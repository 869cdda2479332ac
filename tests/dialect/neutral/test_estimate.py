"""The estimate of a request's tokens: by lengths, for what no provider counts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightgate.dialect.neutral.estimate import PICTURE_TOKENS, estimate_tokens

# A text and the tokens that OpenAI's o200k_base and Anthropic's documentation give for its kind.
ENGLISH = "The quick brown fox jumps over the lazy dog. " * 20  # 200 words: about 200 tokens
CHINESE = "\u706f\u5854\u5728\u591c\u91cc\u53d1\u5149\u3002" * 25  # 200 characters: about 150


def said(content: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": content}]}


@pytest.mark.parametrize(("text", "low", "high"), [(ENGLISH, 160, 280), (CHINESE, 100, 210)])
def test_texts(text: str, low: int, high: int) -> None:
    assert low <= estimate_tokens(said(text)) <= high


def test_a_picture_is_no_text() -> None:
    data = "A" * 2_000_000
    for part in (
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}},
        {"inlineData": {"mimeType": "image/png", "data": data}},
        {"type": "image", "source": {"type": "url", "url": "https://a.example/x.png"}},
    ):
        found = estimate_tokens(said([part, {"type": "text", "text": "What is it?"}]))
        assert PICTURE_TOKENS <= found <= 60_000, part


def test_settings_are_no_prompt() -> None:
    bare = estimate_tokens(said(ENGLISH))
    more = said(ENGLISH) | {"metadata": {"a": ENGLISH}, "thinking": {"budget_tokens": 9}}
    assert estimate_tokens(more) == bare


def test_tools_are_counted() -> None:
    tool = {"name": "look", "description": ENGLISH, "input_schema": {"type": "object"}}
    assert estimate_tokens(said("x") | {"tools": [tool]}) > 150


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=20),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=9), inner),
    )
)
def test_anything_has_an_estimate(value: Any) -> None:
    assert estimate_tokens(value) >= 1


@pytest.mark.parametrize(
    ("name", "text", "tokens"),
    [
        ("file_data", "data:application/pdf;base64," + "A" * 79_972, 2000),
        ("text", "data:application/pdf;base64," + "A" * 79_972, 2000),
        ("text", "data:,x", PICTURE_TOKENS),
        ("text", "data:image/png;base64," + "A" * 79_972, PICTURE_TOKENS),
        ("data", "A" * 80_000, 2000),
        ("data", "A" * 513, PICTURE_TOKENS),
        ("url", "https://a.test/x.pdf", PICTURE_TOKENS),
    ],
)
def test_a_file_is_counted_by_its_bytes(name: str, text: str, tokens: int) -> None:
    """Forty of them a token, and no fewer than a picture has."""
    assert estimate_tokens({name: text}) == tokens


@pytest.mark.parametrize(
    ("value", "tokens"),
    [
        ("a" * 400, 100),  # four letters a token
        ("\u024f" * 400, 100),  # the last of the Latin ones
        ("\u0250" * 300, 200),  # one and a half of all others
        ("a" * 200 + "\u4e00" * 150, 150),
        ([1, 2.5, 3], 3),
        ([None, True, False], 1),  # at least one
        ({"role": "user", "text": "a" * 40}, 13),  # and three for a turn
        ({"name": "a" * 40}, 13),
        ({"role": "user", "name": "a" * 40}, 13),  # which is one of both
        ({"text": "a" * 40}, 10),
        ({"data": "A" * 512}, 128),  # still a text
        ({"file_data": "A" * 513}, PICTURE_TOKENS),
    ],
)
def test_estimates_to_the_token(value: Any, tokens: int) -> None:
    assert estimate_tokens(value) == tokens


@pytest.mark.parametrize(
    "name",
    [
        *("model", "type", "role", "id", "call_id", "tool_use_id", "cache_control", "signature"),
        *("thoughtSignature", "encrypted_content", "media_type", "mimeType", "mime_type"),
        *("generationConfig", "generation_config", "metadata", "status", "safetySettings"),
        *("stream", "store", "include", "service_tier", "thinking", "reasoning", "detail"),
    ],
)
def test_a_setting_costs_nothing(name: str) -> None:
    assert estimate_tokens({"text": "a" * 40, name: "a" * 4000}) == (13 if name == "role" else 10)


@pytest.mark.parametrize("name", ["url", "file_url", "image_url", "fileUri", "file_uri", "file_id"])
def test_an_address_is_a_picture(name: str) -> None:
    assert estimate_tokens({name: "x"}) == PICTURE_TOKENS


def test_what_is_nested_too_deeply_is_not_counted() -> None:
    def nested(depth: int) -> Any:
        value: Any = "a" * 40
        for _ in range(depth):
            value = [value]
        return value

    assert (estimate_tokens(nested(64)), estimate_tokens(nested(65))) == (10, 1)
