"""Requests that differ in anything a model could see have different keys; all others share one."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightgate.route.prompt.cache_key import KEY_BYTES, Beside, Mode, cache_key, cacheable

FULL: dict[str, Any] = {
    "model": "fast",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Hi"},
                {"type": "image_url", "image_url": {"url": "data:,x", "detail": "low"}},
            ],
        },
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "7"},
    ],
    "temperature": 0,
    "top_p": 0.9,
    "top_k": 40,
    "seed": 3,
    "max_tokens": 12,
    "max_completion_tokens": 13,
    "stop": ["\n", "END"],
    "presence_penalty": 0.5,
    "frequency_penalty": 0.25,
    "logit_bias": {"50256": -100},
    "logprobs": True,
    "top_logprobs": 2,
    "tools": [
        {
            "type": "function",
            "function": {
                "name": "f",
                "description": "d",
                "strict": True,
                "parameters": {
                    "type": "object",
                    "properties": {"a": {"type": "number"}, "b": {"type": "string"}},
                },
            },
        }
    ],
    "tool_choice": "auto",
    "parallel_tool_calls": False,
    "response_format": {
        "type": "json_schema",
        "json_schema": {
            "name": "n",
            "schema": {"type": "object", "properties": {"x": {"const": 1.0}, "y": {}}},
        },
    },
    "reasoning_effort": "low",
    "service_tier": "auto",
    "stream_options": {"include_usage": True},
    "a_new_vendor_field": {"deep": [1, {"er": "x"}]},
}
FRAME = Beside(streamed=True, targets=("a/m", "b/m"))
LABELS = ("user", "safety_identifier", "metadata", "prompt_cache_key", "prompt_cache_retention")


def fields_of(body: Any) -> dict[str, msgspec.Raw]:
    text = body if isinstance(body, str) else json.dumps(body)
    return msgspec.json.decode(text.encode(), type=dict[str, msgspec.Raw])


def key(
    body: Any = None,
    *,
    tenant: str = "t",
    dialect: str = "openai-chat",
    model: str = "fast",
    beside: Beside = FRAME,
) -> bytes:
    return cache_key(tenant, dialect, model, fields_of(FULL if body is None else body), beside)


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(value, dict):
        return [leaf for name, inner in value.items() for leaf in leaves(inner, (*path, name))]
    if isinstance(value, list):
        return [leaf for at, inner in enumerate(value) for leaf in leaves(inner, (*path, at))]
    return [path]


def put(body: Any, path: tuple[Any, ...], value: Any) -> Any:
    changed = json.loads(json.dumps(body))
    inner = changed
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    return changed


def without(body: Any, path: tuple[Any, ...]) -> Any:
    changed = json.loads(json.dumps(body))
    inner = changed
    for step in path[:-1]:
        inner = inner[step]
    del inner[path[-1]]
    return changed


def shuffled(value: Any, draw: Any) -> Any:
    """The same, its members in another order; not where the model reads the order."""
    if isinstance(value, dict):
        names = draw(st.permutations(list(value)))
        kept = {"parameters", "schema"}
        return {n: value[n] if n in kept else shuffled(value[n], draw) for n in names}
    return [shuffled(inner, draw) for inner in value] if isinstance(value, list) else value


LEAVES = [path for path in leaves(FULL) if path != ("model",)]


@pytest.mark.parametrize("path", LEAVES, ids=[".".join(map(str, path)) for path in LEAVES])
def test_every_leaf_changes_the_key(path: tuple[Any, ...]) -> None:
    assert key(put(FULL, path, "something else")) != key()
    assert key(put(FULL, path, None)) != key() or path[-1] == "content"
    assert key(without(FULL, path)) != key()


@given(
    st.sampled_from(LEAVES),
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
        ),
        max_leaves=6,
    ),
)
def test_another_value_is_another_key(path: tuple[Any, ...], value: Any) -> None:
    was: Any = FULL
    for step in path:
        was = was[step]
    same = was == value and isinstance(was, bool) == isinstance(value, bool)
    if not same:
        assert key(put(FULL, path, value)) != key()


@given(st.data())
def test_order_and_white_space_do_not_matter(data: st.DataObject) -> None:
    body = shuffled(FULL, data.draw)
    indent = data.draw(st.sampled_from([None, 0, 1, 7]))
    text = json.dumps(body, indent=indent, ensure_ascii=data.draw(st.booleans()))
    assert key(text) == key()


@pytest.mark.parametrize("spelling", ["0", "0.0", "-0.0", "0e5", "0.000"])
def test_a_number_has_one_spelling(spelling: str) -> None:
    assert key(f'{{"temperature": {spelling}}}') == key('{"temperature": 0}')


def test_other_numbers_stay_apart() -> None:
    texts = [
        "1",
        "true",
        '"1"',
        "1.5",
        "9007199254740993",
        "9007199254740992",
        "1e400",
        "1e401",
        "123456789012345678901234567890",
        "123456789012345678901234567891",
    ]
    assert len({key(f'{{"seed": {text}}}') for text in texts}) == len(texts)


def test_spelling_of_strings_does_not_matter() -> None:
    assert key(r'{"stop": "\u0041\/"}') == key('{"stop": "A/"}')
    assert key('{"stop": "a b"}') != key('{"stop": "a  b"}')


@pytest.mark.parametrize(
    "swap",
    [
        '{"tools": [{"function": {"parameters": {"properties": {%s}}}}]}',
        '{"response_format": {"json_schema": {"schema": {"properties": {%s}}}}}',
        '{"tools": [{"input_schema": {"properties": {%s}}}]}',
        '{"messages": [{"content": [{"type": "tool_use", "input": {%s}}]}]}',
        '{"generationConfig": {"responseSchema": {"properties": {%s}}}}',
    ],
)
def test_what_the_model_reads_keeps_its_order(swap: str) -> None:
    assert key(swap % '"a": 1, "b": 2') != key(swap % '"b": 2, "a": 1')
    assert key(swap % '"a": 1, "b": 2') != key(swap % '"a": 1.0, "b": 2')
    assert key(swap % '"a": 1, "b": 2') == key(swap % '"a" :1,"b":2 ')


@pytest.mark.parametrize("label", LABELS)
def test_labels_do_not_matter(label: str) -> None:
    assert key(FULL | {label: "u1"}) == key()


def test_who_asks_for_what_and_how_matters() -> None:
    frames = [
        FRAME,
        Beside(streamed=False, targets=FRAME.targets),
        Beside(streamed=True, targets=("b/m", "a/m")),
        Beside(streamed=True, targets=FRAME.targets, cap=5),
        Beside(streamed=True, targets=FRAME.targets, policy="voice"),
        Beside(streamed=True, targets=FRAME.targets, extra=b"anthropic-beta: x\r\n"),
    ]
    keys = [key(beside=frame) for frame in frames]
    keys += [
        key(tenant="u"),
        key(tenant=""),
        key(dialect="openai-completions"),
        key(model="faster"),
    ]
    assert len(set(keys)) == len(keys)
    assert {len(one) for one in keys} == {KEY_BYTES}
    # Parts do not run together.
    assert key(tenant="ab", dialect="c") != key(tenant="a", dialect="bc")


def test_stream_is_said_beside() -> None:
    assert key(FULL | {"stream": True}) == key()


# Said in two ways

HI = {"role": "user", "content": "Hi"}


def hi(content: Any, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content}]} | more


@pytest.mark.parametrize(
    ("dialect", "one", "other"),
    [
        ("openai-chat", hi("Hi"), hi([{"type": "text", "text": "Hi"}])),
        ("openai-chat", hi("Hi"), hi([{"text": "Hi", "type": "text"}], n=1)),
        ("openai-chat", hi("Hi", max_tokens=5), hi("Hi", max_completion_tokens=5)),
        ("openai-chat", hi("Hi", max_tokens=5), hi("Hi", max_completion_tokens=5, max_tokens=None)),
        ("openai-chat", hi("Hi"), hi("Hi", presence_penalty=0, frequency_penalty=0.0)),
        ("openai-chat", hi("Hi"), hi("Hi", logprobs=False, response_format={"type": "text"})),
        ("openai-chat", hi("Hi"), hi("Hi", stop=None, seed=None, tools=None, logit_bias={})),
        ("openai-chat", hi("Hi", temperature=0), hi("Hi", temperature=0.0, top_p=1.0)),
        ("openai-completions", {"prompt": "Hi"}, {"prompt": "Hi", "best_of": 1, "n": 1}),
        ("anthropic-messages", hi("Hi"), hi([{"type": "text", "text": "Hi"}])),
        (
            "anthropic-messages",
            hi("Hi", system="Be brief."),
            hi("Hi", system=[{"type": "text", "text": "Be brief."}]),
        ),
        ("openai-responses", {"input": "Hi"}, {"input": [HI]}),
        ("openai-responses", {"input": "Hi"}, {"input": [HI | {"type": "message"}]}),
        (
            "openai-responses",
            {"input": "Hi"},
            {"input": [{"role": "user", "content": [{"type": "input_text", "text": "Hi"}]}]},
        ),
        (
            "gemini",
            {"contents": [], "generationConfig": {"temperature": 0}},
            {"contents": [], "generationConfig": {"candidateCount": 1, "temperature": 0.0}},
        ),
    ],
)
def test_what_a_dialect_defines_as_equal_shares_a_key(dialect: str, one: Any, other: Any) -> None:
    assert key(one, dialect=dialect) == key(other, dialect=dialect)


@pytest.mark.parametrize(
    ("dialect", "one", "other"),
    [
        (
            "openai-chat",
            hi("ab"),
            hi([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]),
        ),
        ("openai-chat", hi("Hi"), hi([{"type": "text", "text": "Hi", "cache_control": {}}])),
        ("openai-chat", hi("Hi"), hi([{"type": "input_text", "text": "Hi"}])),
        ("openai-chat", hi("Hi"), hi([{"type": "text", "text": None}])),
        ("openai-chat", hi("Hi"), hi("Hi", temperature=1)),
        ("openai-chat", hi("Hi", temperature=1), hi("Hi", temperature=1, top_p=1)),
        ("openai-chat", hi("Hi"), hi("Hi", top_p=1)),
        ("openai-chat", hi("Hi", temperature=0), hi("Hi", temperature=0, top_p=0.9)),
        ("openai-chat", hi("Hi"), hi("Hi", n=True)),
        ("openai-chat", hi("Hi"), hi("Hi", logprobs=True)),
        ("openai-chat", hi("Hi"), hi("Hi", response_format={"type": "json_object"})),
        ("openai-chat", hi("Hi", max_tokens=5), hi("Hi", max_tokens=5, max_completion_tokens=6)),
        ("openai-chat", hi("Hi", max_tokens=5), hi("Hi", max_completion_tokens=6)),
        ("openai-chat", hi("Hi"), hi("Hi", a_vendors_field=None)),
        ("openai-completions", {"prompt": "Hi"}, {"prompt": ["Hi"]}),
        ("openai-completions", {"prompt": "Hi"}, {"prompt": "Hi", "logprobs": 0}),
        ("openai-responses", {"input": "Hi"}, {"input": [HI | {"role": "system"}]}),
        ("openai-responses", {"input": "Hi"}, {"input": [HI | {"id": "m1"}]}),
        ("openai-responses", {"input": "Hi"}, {"input": [HI, HI]}),
        (
            "gemini",
            {"contents": [], "generationConfig": {}},
            {"contents": [], "generationConfig": {"candidateCount": 2}},
        ),
    ],
)
def test_what_may_be_answered_otherwise_has_another_key(dialect: str, one: Any, other: Any) -> None:
    assert key(one, dialect=dialect) != key(other, dialect=dialect)


def test_what_cannot_be_read_is_taken_as_it_is() -> None:
    deep = '{"x": ' + "[" * 5000 + "]" * 5000 + "}"
    raw = {"x": msgspec.Raw(deep[6:-1].encode())}
    one = cache_key("t", "openai-chat", "m", raw, FRAME)
    assert one == cache_key("t", "openai-chat", "m", raw, FRAME)
    assert one != key(model="m", body={"x": []})


# What may be kept


def ok(body: dict[str, Any], mode: Mode = "exact", dialect: str = "openai-chat") -> bool:
    return cacheable(dialect, fields_of(body), mode)


@pytest.mark.parametrize(
    ("temperature", "exact"),
    [(0, True), (0.0, True), (1, False), (0.01, False), (None, False), (False, False)],
)
def test_exact_wants_temperature_0(temperature: Any, exact: bool) -> None:
    assert ok({"temperature": temperature}) is exact
    assert ok({"temperature": temperature}, "any")
    assert not ok({"temperature": temperature}, "off")
    gemini = {"generationConfig": {"temperature": temperature}}
    assert ok(gemini, dialect="gemini") is exact


def test_no_temperature_needs_an_opt_in() -> None:
    assert not ok({})
    assert ok({}, "any")
    assert ok({"input": "x"}, dialect="openai-embeddings")
    assert not ok({"input": "x"}, "off", "openai-embeddings")


@pytest.mark.parametrize(
    "body",
    [
        {"n": 2},
        {"best_of": 3},
        {"tools": [{"type": "web_search"}]},
        {"tools": [{"type": "code_interpreter"}]},
        {"tools": [{"type": "function"}, {"type": "mcp", "server_url": "u"}]},
        {"tools": "x"},
        {"tools": ["x"]},
        {"tools": [{"type": "function"}, "x"]},
        {"tools": {}},
        {"tools": [{"type": 5}]},
        {"web_search_options": {}},
        {"background": True},
        {"store": True},
        {"mcp_servers": [{}]},
        {"conversation": "c"},
    ],
)
@pytest.mark.parametrize("mode", ["exact", "any"])
def test_the_outside_world_is_never_kept(body: dict[str, Any], mode: Mode) -> None:
    assert not ok({"temperature": 0} | body, mode)


@pytest.mark.parametrize(
    "body",
    [
        {"n": 1},
        {"n": None},
        {"tools": None},
        {"tools": [{"type": "function", "function": {"name": "f"}}]},
        {"tools": [{"name": "f", "input_schema": {}}]},
        {"background": False},
        {"store": False},
        {"web_search_options": None},
    ],
)
def test_the_rest_is(body: dict[str, Any]) -> None:
    assert ok({"temperature": 0} | body)


def test_dialects_have_their_own_reasons() -> None:
    zero = {"generationConfig": {"temperature": 0}}
    assert ok(zero | {"tools": [{"functionDeclarations": []}]}, dialect="gemini")
    assert not ok(zero | {"tools": [{"googleSearch": {}}]}, dialect="gemini")
    assert not ok({"generationConfig": {"temperature": 0, "candidateCount": 2}}, dialect="gemini")
    assert not ok({"temperature": 0, "prompt": {"id": "p"}}, dialect="openai-responses")
    assert ok({"temperature": 0, "prompt": "Once"}, dialect="openai-completions")
    assert not ok(
        {"temperature": 0, "tools": [{"type": "web_search_20250305"}]}, dialect="anthropic-messages"
    )


def test_a_body_that_is_too_much_work_is_not_looked_into() -> None:
    assert not ok({"temperature": 0, "x": [0] * 200_000})
    assert ok({"temperature": 0, "x": "a" * 1_000_000})
    assert not ok({"temperature": 0, "x": "a" * 5_000_000})
