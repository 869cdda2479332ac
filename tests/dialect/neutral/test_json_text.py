"""JSON that is counted before it is read: how many values, how deeply nested."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightgate.dialect.neutral.json_text import (
    DEEPEST,
    DEEPEST_WITHIN,
    MOST,
    MOST_WITHIN,
    Count,
    as_json,
    decoded,
    dict_of,
    dicts_of,
    dumped,
    event,
    holds_more,
    name_count,
    named,
    object_within,
    too_deep,
    value_of,
)
from lightgate.errors import UsageError
from lightgate.gateway.request.body import _take_apart

ANY: msgspec.json.Decoder[Any] = msgspec.json.Decoder()
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


OBJECTS = {
    '{ "a" : [ 1 , {} ] }\n': b'{"a":[1,{}]}',
    '{"a":"one\\ntwo \u2028 \\"x\\""}': b'{"a":"one\\ntwo \xe2\x80\xa8 \\"x\\""}',
    '{"n":[1.50,1e999,12345678901234567890]}': b'{"n":[1.50,1e999,12345678901234567890]}',
    '{"half":"\\ud83d"}': b'{"half":"\\ud83d"}',
    '{"half":"\ud83d"}': b'{"half":"\\ud83d"}',
    '{"no":[NaN,-Infinity,"NaN"]}': b'{"no":[null,null,"NaN"]}',
}


@pytest.mark.parametrize("text", OBJECTS)
def test_an_object_in_a_text_is_one_line_of_the_same_values(text: str) -> None:
    found = object_within(text)
    assert found is not None
    assert bytes(found) == OBJECTS[text]
    # It stands among other values, also beside a text that has to be written as escapes.
    assert json.loads(dumped({"a": found})) == {"a": json.loads(OBJECTS[text])}
    beside = json.loads(dumped({"a": found, "b": "\ud83d"}), parse_constant=pytest.fail)
    values = json.loads(OBJECTS[text].replace(b"1e999", b"null"))  # no float is as large as that
    assert beside == {"a": values, "b": "\ud83d"}


def test_a_number_of_thousands_of_digits_is_null_where_values_are_made() -> None:
    found = object_within('{"n":%s}' % ("9" * 5000))
    assert found is not None
    assert len(found) > 5000
    assert dumped({"a": found, "b": "\ud83d"}) == b'{"a":{"n":null},"b":"\\ud83d"}'
    assert as_json({"n": float("inf"), "m": [float("nan")], "h": "\ud83d"}) == (
        '{"n":null,"m":[null],"h":"\ud83d"}'
    )


@pytest.mark.parametrize("text", ['\ufeff{"a":1}', "{\0}\0", "\0{\0}"])
def test_a_text_is_not_taken_for_bytes_of_another_encoding(text: str) -> None:
    assert object_within(text) is None


@pytest.mark.parametrize("text", OBJECTS)
def test_an_object_without_odd_values_is_the_same_for_a_request(text: str) -> None:
    odd = "half" in text or "NaN" in text
    assert object_within(text, odd=False) == (None if odd else object_within(text))


@pytest.mark.parametrize("text", ["[{}]", '"{}"', "", "{", "{} {}", "{'a':1}", '{"a":01}', "no"])
def test_other_texts_hold_no_object(text: str) -> None:
    assert object_within(text) is None


@pytest.mark.parametrize("odd", ["", '"\\ud83d",'])
def test_an_object_in_a_text_has_limits(odd: str) -> None:
    """Of its depth, and of what a turn of the loop looks at; brackets in its texts do not count."""
    levels = DEEPEST_WITHIN - 1
    assert object_within('{"a":[' + odd + "[" * (levels - 1) + "]" * (levels - 1) + "]}")
    assert object_within('{"a":[' + odd + "[" * levels + "]" * levels + "]}") is None
    most = 5000 if odd else MOST_WITHIN - 2
    assert object_within('{"a":[' + odd + "{}," * most + "1]}")
    assert object_within('{"a":[' + odd + "{}," * (MOST_WITHIN - 1) + "1]}") is None
    assert object_within('{"a":[' + '"{}[](){",' * MOST_WITHIN + "1]}")


def names(value: object) -> int:
    if isinstance(value, dict):
        return len(value) + sum(map(names, value.values()))
    return sum(map(names, value)) if isinstance(value, list) else 0


@given(values)
def test_names_are_counted_outside_of_texts(value: object) -> None:
    assert name_count(json.dumps(value).encode()) == names(value)


def test_a_name_that_stands_twice_is_counted_twice() -> None:
    assert name_count(b'{"a": 1, "a": {"b\\\\": ":"}, "c\\"": 2}') == 4


HALF = "\\ud83d"  # of an emoji: what has it is read a second time, with care for its counts


Bill = dict[str, Count | dict[str, Count]] | None


class Billed(msgspec.Struct):
    x: Any = None
    y: Any = None
    usage: Bill = None
    usageMetadata: Bill = None  # noqa: N815 - Gemini's own spelling
    message: Billed | None = None
    response: Billed | None = None
    x_groq: Billed | None = None


BILLED = msgspec.json.Decoder(Billed)


@pytest.mark.parametrize(
    ("said", "count"),
    [
        ("0", 0),
        ("7", 7),
        ("7.0", 7),
        ("7.5", None),
        ("true", None),
        ("-1", None),
        (str(MOST), MOST),
        (str(MOST + 1), None),
        ('"7"', None),
    ],
)
def test_what_is_no_token_count_is_left_out_of_an_answer(said: str, count: int | None) -> None:
    for name in ("usage", "usageMetadata"):
        text = f'{{"x": "{HALF}", "{name}": {{"n": {said}, "x_details": {{"n": {said}}}}}}}'
        found = decoded(BILLED, text.encode())
        assert found is not None
        assert found.x == "\ud83d"
        assert getattr(found, name) == {"n": count, "x_details": {"n": count}}


@pytest.mark.parametrize("holder", ["message", "response", "x_groq"])
def test_counts_are_left_out_in_each_object_that_holds_them_and_nowhere_else(holder: str) -> None:
    text = f'{{"x": "{HALF}", "{holder}": {{"usage": {{"n": -1}}}}, "y": {{"usage": {{"n": -1}}}}}}'
    alone = decoded(BILLED, text.encode())
    listed = decoded(msgspec.json.Decoder(list[Billed]), f"[{text}]".encode())
    assert alone is not None
    assert listed == [alone]
    assert getattr(alone, holder).usage == {"n": None}
    assert alone.y == {"usage": {"n": -1}}


def test_nothing_else_of_a_bill_is_left_out() -> None:
    """Half an emoji is no reason to read less of it, or more than there is."""
    bill = {"n": -1, "tier": "batch", "details": [1]}
    for one in ({"usage": bill}, {"message": {"usage": bill, "a": {}}}, {"a": 1}):
        assert decoded(ANY, json.dumps({"x": "\ud83d", **one}).encode()) == {"x": "\ud83d", **one}
    found = decoded(BILLED, b'{"usage": {"n": -1}}')
    assert found == Billed(usage={"n": None})


def test_a_value_is_read_and_what_is_no_json_is_nothing() -> None:
    assert (value_of(b'{"a": [1]}'), value_of("2"), value_of(None)) == ({"a": [1]}, 2, None)
    assert (value_of("{"), value_of("[" * 100_000)) == (None, None)


def test_arguments_are_written_without_spaces_and_with_their_own_letters() -> None:
    assert as_json({"a": [1, "\u00e9"], "b": 2}) == '{"a":[1,"\u00e9"],"b":2}'
    endless: list[object] = []
    for _ in range(200_000):
        endless = [endless]
    assert as_json(endless) == ""


def test_objects_are_taken_and_everything_else_is_none() -> None:
    assert (dict_of({"a": 1}), dict_of([1]), dict_of(None)) == ({"a": 1}, {}, {})
    assert (dicts_of([{"a": 1}, 2, {}]), dicts_of({"a": 1})) == ([{"a": 1}, {}], [])


def test_no_text_inside_an_event_ends_a_line_or_loses_half_an_emoji() -> None:
    assert dumped({"a": "x\u0085\u2028\u2029\u00e9"}) == (
        b'{"a":"x\\u0085\\u2028\\u2029' + "\u00e9".encode() + b'"}'
    )
    assert dumped({"a": "\ud83d", "b": 1}) == b'{"a":"\\ud83d","b":1}'
    assert event([1]) == b"data: [1]\n\n"
    assert named(b"e", [1]) == b"event: e\ndata: [1]\n\n"


def test_nothing_is_not_tried_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of empty events come in one read."""

    def never(_: str) -> None:
        raise AssertionError("it was tried again")

    monkeypatch.setattr(json, "loads", never)
    assert decoded(msgspec.json.Decoder(dict), b"") is None
