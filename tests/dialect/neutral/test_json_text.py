"""JSON that is counted before it is read: how many values, how deeply nested."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightgate.dialect.neutral.json_text import DEEPEST, decoded, holds_more, too_deep
from lightgate.errors import UsageError
from lightgate.gateway.request.body import _take_apart

ANY = msgspec.json.Decoder()
SHAPES = {
    "lists": (b"[", b"]"),
    "objects": (b'{"a":', b"}"),
    "both": (b'[{"[{":', b"}]"),
    "texts that close": (b'["]}\\"]",', b"]"),
    "texts that open": (b'{"{[\\\\":', b"}"),
    "beside others": (b'[[],{"a":[[]]},', b"]"),
}


def nested(shape: str, levels: int) -> bytes:
    opens, closes = SHAPES[shape]
    more = 3 if shape == "beside others" else 0  # levels of what lies beside the innermost
    times, rest = divmod(max(levels - more, 1), 2 if shape == "both" else 1)
    inner = b"[" * rest + b'"' + b"x" * 2000 + b'"' + b"]" * rest
    return opens * times + inner + closes * times


@pytest.mark.parametrize("shape", SHAPES)
def test_nesting_has_a_limit_of_our_own(shape: str) -> None:
    """It does not depend on the interpreter's limit, nor on how deep the calls are now."""
    for levels in (1, DEEPEST - 1, DEEPEST):
        data = nested(shape, levels)
        assert not too_deep(data)
        assert decoded(ANY, data) == json.loads(data)
    for levels in (DEEPEST + 1, DEEPEST + 7, 5 * DEEPEST):
        assert too_deep(nested(shape, levels))
        assert decoded(ANY, nested(shape, levels)) is None


def test_many_values_and_brackets_in_texts_are_not_deep() -> None:
    wide: object = [[{"a": [], "b": {}} for _ in range(DEEPEST)] for _ in range(4)]
    text = {"a": "[" * 3 * DEEPEST, 'b"': '{"\\' * DEEPEST, "c": ["\\", '"', "}]"] * DEEPEST}
    for value in (wide, text):
        data = json.dumps(value).encode()
        assert not too_deep(data)
        assert decoded(ANY, data) == value


def test_a_body_that_is_nested_too_deeply_is_refused() -> None:
    deep = b'{"messages":' + nested("lists", DEEPEST) + b"}"
    with pytest.raises(UsageError, match="nested too deeply"):
        _take_apart(deep)
    assert set(_take_apart(b'{"messages":' + nested("lists", DEEPEST - 1) + b"}")) == {"messages"}


texts = st.text(alphabet='ab[]{}"\\,:')
values = st.recursive(
    texts | st.integers(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=30,
)


def count(value: object) -> int:
    if isinstance(value, dict):
        return 1 + sum(map(count, value.values()))
    return 1 + sum(map(count, value)) if isinstance(value, list) else 0


@given(values)
def test_objects_and_lists_are_counted_outside_of_texts(value: object) -> None:
    data, found = json.dumps(value).encode(), count(value)
    assert not holds_more(data, found)
    assert found == 0 or holds_more(data, found - 1)
