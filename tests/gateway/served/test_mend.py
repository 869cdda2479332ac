"""A client's own body at providers of its dialect: quirks are met, the rest keeps its bytes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightgate.dialect.errors import Untranslatable
from lightgate.gateway.request.body import read_request_body
from lightgate.gateway.request.endpoint import find
from lightgate.gateway.served.price import TokenPrices
from lightgate.gateway.served.target import ServedTarget
from lightgate.provider.catalogue import catalogue, own_provider
from lightgate.provider.target import Target

if TYPE_CHECKING:
    from lightgate.dialect.quirks import Quirks

ROWS = [row for row in catalogue().values() if row.dialect == "openai" and "chat" in row.kinds]
PLAIN = own_provider("mine", "http://127.0.0.1:9/v1")
# Fields that some quirk is about, and the model: all others stay as they are.
CONCERNED = {
    "model", "messages", "stream_options", "max_tokens", "max_completion_tokens", "seed",
    "random_seed", "response_format", "reasoning_effort",
}  # fmt: skip
TALK = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
SCHEMA = {
    "type": "json_schema",
    "json_schema": {"name": "x", "strict": True, "schema": {"type": "object", "title": "T"}},
}


def served(name: str) -> ServedTarget:
    row = PLAIN if name == "mine" else catalogue()[name]
    target = Target(name=f"{name}/m", provider=row, model="m", base_url="http://127.0.0.1:9/v1")
    return ServedTarget(target, TokenPrices(None), abort_stops_billing=False)


def told(
    name: str, body: bytes | dict[str, Any], *, cap: int | None = None, untold: str = "drop"
) -> tuple[dict[str, msgspec.Raw], tuple[str, ...]]:
    """What a provider gets of a chat body, field by field, and what it is not told."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    found = find(b"/v1/chat/completions")
    assert found is not None
    request = read_request_body(found.endpoint, raw)
    prepared = served(name).prepare(request, cap, b"", untranslatable=untold)  # type: ignore[arg-type]
    sent = prepared.payload.partition(b"\r\n\r\n")[2]
    return msgspec.json.decode(sent, type=dict[str, msgspec.Raw]), prepared.dropped


def plain(fields: dict[str, msgspec.Raw]) -> dict[str, Any]:
    return {name: json.loads(bytes(value)) for name, value in fields.items()}


ASKED: dict[str, Any] = {
    "model": "a", "messages": TALK, "stream": True, "stream_options": {"include_usage": True},
    "max_completion_tokens": 9, "seed": 7, "user": "u-1", "temperature": 0.5,
}  # fmt: skip


def test_mistral_gets_only_what_it_takes() -> None:
    fields, dropped = told("mistral", ASKED)
    assert plain(fields) == {
        "model": "m",
        "messages": [{"role": "system", "content": "Be brief."}, TALK[1]],
        "stream": True,
        "max_tokens": 9,
        "random_seed": 7,
        "temperature": 0.5,
    }
    assert set(dropped) == {"stream_options", "user"}


def test_cohere_is_not_sent_stream_options() -> None:
    fields, dropped = told("cohere", ASKED)
    sent = plain(fields)
    assert "stream_options" not in sent
    assert sent["max_tokens"] == 9
    assert sent["messages"] == TALK  # it knows the role
    assert dropped == ("stream_options",)
    fields, dropped = told("cohere", {"model": "a", "messages": TALK, "stream": True})
    assert "stream_options" not in fields  # nor ours
    assert dropped == ()


def test_together_gets_the_system_role_and_the_old_name_of_the_limit() -> None:
    fields, dropped = told("together", ASKED)
    sent = plain(fields)
    assert sent["messages"][0]["role"] == "system"
    assert sent["max_tokens"] == 9
    assert "max_completion_tokens" not in sent
    assert sent["seed"] == 7
    assert sent["stream_options"] == {"include_usage": True}
    assert dropped == ()


def test_deepseek_is_asked_for_a_schema_in_words() -> None:
    body = {"model": "a", "messages": TALK, "response_format": SCHEMA}
    fields, dropped = told("deepseek", body)
    sent = plain(fields)
    assert sent["response_format"] == {"type": "json_object"}
    first, *rest = sent["messages"]
    assert first["role"] == "system"
    assert "JSON" in first["content"]
    assert '{"type":"object","title":"T"}' in first["content"]
    assert [turn["role"] for turn in rest] == ["system", "user"]
    assert dropped == ("response_format.json_schema.strict",)
    with pytest.raises(Untranslatable, match="strict"):
        told("deepseek", body, untold="refuse")
    for form in ({"type": "json_object"}, {"type": "text"}, None, {"type": "json_schema"}):
        fields, dropped = told("deepseek", {"model": "a", "messages": [], "response_format": form})
        assert plain(fields)["response_format"] == form
        assert dropped == ()


@pytest.mark.parametrize(
    ("name", "field", "value", "said"),
    [
        ("groq", "logprobs", True, "refused"),
        ("groq", "n", 2, "refused"),
        ("groq", "n", 1, "nothing"),
        ("groq", "logprobs", False, "nothing"),
        ("groq", "logit_bias", None, "nothing"),
        ("mistral", "store", False, "nothing"),
        ("mistral", "store", True, "dropped"),
        ("cohere", "parallel_tool_calls", False, "dropped"),
        ("cohere", "parallel_tool_calls", True, "nothing"),
        ("cohere", "metadata", {"a": "b"}, "dropped"),
        ("cohere", "n", 3, "refused"),
        ("openai", "logprobs", True, "passed"),
        ("mine", "store", True, "passed"),
    ],
)
def test_a_field_that_a_provider_refuses(name: str, field: str, value: Any, said: str) -> None:
    body = {"model": "a", "messages": TALK, field: value}
    if said == "refused":
        with pytest.raises(Untranslatable) as caught:
            told(name, body)
        assert caught.value.field == field
        return
    fields, dropped = told(name, body)
    assert (field in fields) == (said == "passed")
    assert dropped == ((field,) if said == "dropped" else ())


def test_a_cap_is_said_under_the_name_that_is_known() -> None:
    for asked in ({"max_completion_tokens": 99}, {"max_tokens": 99}, {},
                  {"max_completion_tokens": 99, "max_tokens": 98}):  # fmt: skip
        fields, _ = told("mistral", {"model": "a", "messages": TALK, **asked}, cap=5)
        sent = plain(fields)
        assert sent["max_tokens"] == 5
        assert "max_completion_tokens" not in sent


def test_a_provider_without_quirks_costs_nothing() -> None:
    assert served("mine").writer._menders == {}
    assert served("openai").writer._menders == {}
    assert served("fireworks").writer._menders == {}
    assert set(served("mistral").writer._menders) == {"openai-chat", "openai-completions"}


def test_a_word_in_a_message_is_no_role() -> None:
    body = b'{"model":"a","messages":[ {"role" : "user","content":"\\"developer\\" \\u00e9"} ,7]}'
    fields, _ = told("together", body)
    inner = msgspec.json.decode(fields["messages"], type=list[msgspec.Raw])
    assert bytes(inner[0]) == b'{"role" : "user","content":"\\"developer\\" \\u00e9"}'
    body = b'{"model":"a","messages":"\\"developer\\""}'
    assert bytes(told("together", body)[0]["messages"]) == b'"\\"developer\\""'


names = st.text(st.characters(codec="ascii", categories=["Ll"]), min_size=1, max_size=12)
leaves = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=12)
)  # fmt: skip
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
known = st.sampled_from(
    ["user", "store", "temperature", "top_p", "tools", "stop", "logit_bias", "logprobs", "metadata",
     "parallel_tool_calls", "n", "service_tier", "top_k", "reasoning"]
)  # fmt: skip
turns = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["developer", "system", "user"]), "content": values}
    ),
    max_size=3,
)


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """Write a chat body as nobody's encoder would, but valid."""
    fields: dict[str, Any] = draw(st.dictionaries(names | known, values, max_size=6))
    fields |= {"model": "asked", "messages": draw(turns)}
    fields["stream"] = draw(st.booleans())
    fields["n"] = 1
    for name, strategy in (
        ("seed", st.integers(0, 9)),
        ("max_tokens", st.integers(1, 99)),
        ("max_completion_tokens", st.integers(1, 99)),
        ("stream_options", st.fixed_dictionaries({"include_usage": st.booleans()})),
        ("response_format", st.just(SCHEMA) | st.just({"type": "json_object"})),
    ):
        fields.pop(name, None)
        if draw(st.booleans()):
            fields[name] = draw(strategy)
    fields.pop("prompt", None)
    marks = draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,", " :  ")]))
    return json.dumps(fields, ensure_ascii=draw(st.booleans()), separators=marks).encode()


def same_turns(
    quirks: Quirks, asked: dict[str, msgspec.Raw], fields: dict[str, msgspec.Raw]
) -> None:
    """Messages keep their bytes, but for the role of the developer's."""
    before = msgspec.json.decode(asked["messages"], type=list[msgspec.Raw])
    after = msgspec.json.decode(fields["messages"], type=list[msgspec.Raw])
    if quirks.schema or json.loads(bytes(asked.get("response_format", b"null"))) != SCHEMA:
        assert len(after) == len(before)
    for old, new in zip(reversed(before), reversed(after), strict=False):
        if quirks.developer_role or b'"developer"' not in bytes(old):
            assert bytes(new) == bytes(old)
        else:
            assert json.loads(bytes(new))["content"] == json.loads(bytes(old))["content"]


@settings(max_examples=400, deadline=None)
@given(body=bodies(), name=st.sampled_from(["mine", *(row.name for row in ROWS)]))
def test_everything_but_what_a_quirk_demands_keeps_its_bytes(body: bytes, name: str) -> None:
    asked = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    quirks = (PLAIN if name == "mine" else catalogue()[name]).quirks
    refused = ""
    try:
        fields, dropped = told(name, body)
    except Untranslatable as error:
        refused = error.field
    if refused:
        assert refused in quirks.refuses
        return
    sent = {field: bytes(raw) for field, raw in fields.items()}
    assert sent["model"] == b'"m"'
    touched = CONCERNED | set(quirks.refuses)
    for field, raw in asked.items():
        if field not in touched:
            assert sent[field] == bytes(raw)
    assert set(sent) - set(asked) <= {"stream_options", "max_tokens", "random_seed"}
    assert {path.partition(".")[0] for path in dropped} <= touched
    same_turns(quirks, asked, fields)
    if name == "mine":  # no quirk: only the model and the wish for usage
        for field, raw in asked.items():
            if field not in {"model", "stream_options"}:
                assert sent[field] == bytes(raw)
        assert dropped == ()
