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
