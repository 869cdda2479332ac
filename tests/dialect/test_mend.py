"""A client's own body at a provider that deviates from their dialect: field by field."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from lightgate.dialect.errors import Untranslatable
from lightgate.dialect.mend import mender
from lightgate.dialect.neutral.omit import MOST, Omissions, listed
from lightgate.dialect.quirks import Quirks

CHAT, COMPLETIONS = "openai-chat", "openai-completions"
PLAIN = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "temperature": 0.5}


def mended(
    quirks: Quirks, body: dict[str, Any] | bytes, dialect: str = CHAT, *, refuses: bool = False
) -> tuple[dict[str, Any], tuple[str, ...]]:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    fields = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    out = Omissions(refuses=refuses)
    one = mender(quirks, dialect)
    assert one is not None
    assert not one.idle
    one.mend(fields, out)
    return {name: json.loads(bytes(value)) for name, value in fields.items()}, out.paths


def test_a_provider_without_quirks_needs_no_mender() -> None:
    assert mender(Quirks(), CHAT) is None
    assert mender(Quirks(), COMPLETIONS) is None
    for dialect in ("openai-responses", "anthropic-messages", "gemini", "openai-embeddings"):
        assert mender(Quirks(seed_field=None, stream_usage=False), dialect) is None


@pytest.mark.parametrize(
    "quirks",
    [
        Quirks(max_tokens_only=True),
        Quirks(developer_role=False),
        Quirks(schema=False),
        Quirks(reasoning_style="none"),
    ],
)
def test_quirks_of_messages_mean_nothing_for_completions(quirks: Quirks) -> None:
    assert mender(quirks, COMPLETIONS) is None
    assert mender(quirks, CHAT) is not None


@pytest.mark.parametrize("quirks", [Quirks(seed_field=None), Quirks(stream_usage=False)])
def test_other_quirks_hold_for_both(quirks: Quirks) -> None:
    assert mender(quirks, COMPLETIONS) is not None
    assert mender(quirks, CHAT) is not None


@pytest.mark.parametrize("known", ["max_tokens", "max_completion_tokens"])
def test_a_limit_is_said_under_the_one_name_that_is_known(known: str) -> None:
    quirks = Quirks(max_tokens_field=known, max_tokens_only=True)
    (other,) = {"max_tokens", "max_completion_tokens"} - {known}
    assert mended(quirks, PLAIN | {other: 5}) == (PLAIN | {known: 5}, ())
    assert mended(quirks, PLAIN | {known: 6}) == (PLAIN | {known: 6}, ())
    assert mended(quirks, PLAIN | {known: 6, other: 5}) == (PLAIN | {known: 6}, ())
    assert mended(quirks, PLAIN) == (PLAIN, ())


def test_a_seed_has_the_providers_name_or_none() -> None:
    named = Quirks(seed_field="random_seed")
    assert mended(named, PLAIN | {"seed": 7}) == (PLAIN | {"random_seed": 7}, ())
    assert mended(named, PLAIN | {"seed": None}) == (PLAIN, ())
    none = Quirks(seed_field=None)
    assert mended(none, PLAIN | {"seed": 7}, COMPLETIONS) == (PLAIN, ("seed",))
    assert mended(none, PLAIN | {"seed": None}) == (PLAIN, ())
    with pytest.raises(Untranslatable) as caught:
        mended(none, PLAIN | {"seed": 7}, refuses=True)
    assert caught.value.field == "seed"


def test_options_of_a_stream_are_left_out_and_named_where_they_say_something() -> None:
    quirks = Quirks(stream_usage=False)
    options = {"stream_options": {"include_usage": True}}
    assert mended(quirks, PLAIN | options) == (PLAIN, ("stream_options",))
    assert mended(quirks, PLAIN | options, refuses=True) == (PLAIN, ("stream_options",))
    for nothing in ("null", "{}", "false"):
        silent = {"stream_options": json.loads(nothing)}
        assert mended(quirks, PLAIN | silent) == (PLAIN, ())


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("user", "u", True),
        ("user", "", False),
        ("user", None, False),
        ("store", True, True),
        ("store", False, False),
        ("metadata", {}, False),
        ("metadata", {"a": "b"}, True),
        ("service_tier", "auto", False),
        ("service_tier", "flex", True),
        ("frequency_penalty", 0, False),
        ("frequency_penalty", 0.0, False),
        ("frequency_penalty", 0.5, True),
        ("parallel_tool_calls", True, False),
        ("parallel_tool_calls", False, True),
        ("parallel_tool_calls", None, False),
        ("prediction", [], False),
    ],
)
def test_a_refused_hint_is_left_out_and_named_where_it_says_something(
    field: str, value: object, named: bool
) -> None:
    quirks = Quirks(refuses=(field,))
    assert mended(quirks, PLAIN | {field: value}) == (PLAIN, (field,) if named else ())
    if named:
        with pytest.raises(Untranslatable):
            mended(quirks, PLAIN | {field: value}, refuses=True)


def test_a_refused_field_that_the_answer_hangs_on_leads_past_the_target() -> None:
    quirks = Quirks(refuses=("logit_bias", "n"))
    with pytest.raises(Untranslatable) as caught:
        mended(quirks, PLAIN | {"logit_bias": {"1": 2}})
    assert caught.value.field == "logit_bias"
    assert mended(quirks, PLAIN | {"logit_bias": {}, "n": 1}) == (PLAIN, ())
    with pytest.raises(Untranslatable):
        mended(quirks, PLAIN | {"n": 2})


def test_reasoning_that_a_provider_does_not_know_is_dropped() -> None:
    quirks = Quirks(reasoning_style="none")
    effort = {"reasoning_effort": "high"}
    assert mended(quirks, PLAIN | effort) == (PLAIN, ("reasoning_effort",))
    for known in ("effort", "object"):
        assert mender(Quirks(reasoning_style=known), CHAT) is None


def test_developers_messages_become_the_systems_and_all_others_keep_their_bytes() -> None:
    quirks = Quirks(developer_role=False)
    other = b'{"role": "user",  "content": "I am a \\"developer\\"."}'
    named = b'{"role":"user","name":"developer","content":"x"}'
    developer = b'{"content": "Be brief.", "role":  "developer"}'
    raw = b'{"messages": [' + b", ".join((other, developer, named)) + b"]}"
    fields = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    one = mender(quirks, CHAT)
    assert one is not None
    one.mend(fields, Omissions(refuses=True))
    turns = msgspec.json.decode(bytes(fields["messages"]), type=list[msgspec.Raw])
    assert [bytes(turns[0]), bytes(turns[2])] == [other, named]
    assert json.loads(bytes(turns[1])) == {"content": "Be brief.", "role": "system"}


@pytest.mark.parametrize("messages", [b'"developer"', b'[["developer"]]', b'[3, "developer"]'])
def test_what_are_no_messages_is_left_to_the_provider(messages: bytes) -> None:
    body = b'{"messages": ' + messages + b"}"
    assert mended(Quirks(developer_role=False), body) == (json.loads(body), ())


def test_plain_messages_keep_their_bytes() -> None:
    one = mender(Quirks(developer_role=False), CHAT)
    assert one is not None
    fields = {"messages": msgspec.Raw(b'[ {"role": "user"} ]')}
    one.mend(fields, Omissions(refuses=True))
    assert bytes(fields["messages"]) == b'[ {"role": "user"} ]'


def schema_format(**more: object) -> dict[str, Any]:
    asked = {"name": "x", "schema": {"type": "object", "title": "Thing"}, **more}
    return {"response_format": {"type": "json_schema", "json_schema": asked}}


def test_a_schema_is_said_in_words_where_it_cannot_be_given() -> None:
    quirks = Quirks(schema=False)
    body, dropped = mended(quirks, PLAIN | schema_format(description="All of it."))
    assert dropped == ()
    assert body["response_format"] == {"type": "json_object"}
    told, *rest = body["messages"]
    assert rest == PLAIN["messages"]
    assert told["role"] == "system"
    assert '"title":"Thing"' in told["content"]
    assert "All of it." in told["content"]
    strict = mended(quirks, PLAIN | schema_format(strict=True))
    assert strict[1] == ("response_format.json_schema.strict",)
    assert mended(quirks, PLAIN | schema_format(strict=False, description=3))[1] == ()
    with pytest.raises(Untranslatable) as caught:
        mended(quirks, PLAIN | schema_format(strict=True), refuses=True)
    assert caught.value.field == "response_format.json_schema.strict"


@pytest.mark.parametrize(
    "more",
    [
        {"response_format": {"type": "json_object"}},
        {"response_format": {"type": "text"}},
        {"response_format": 3},
        {"response_format": {"type": "json_schema"}},
        {"response_format": {"type": "json_schema", "json_schema": 3}},
        {"response_format": {"type": "json_schema", "json_schema": {"schema": 3}}},
        {"messages": 3, **schema_format()},
    ],
)
def test_another_form_of_answer_is_left_as_it_is(more: dict[str, Any]) -> None:
    assert mended(Quirks(schema=False), PLAIN | more) == (PLAIN | more, ())


def test_a_schema_without_messages_is_left_as_it_is() -> None:
    assert mended(Quirks(schema=False), schema_format()) == (schema_format(), ())


# Names in a header


def test_paths_that_differ_by_an_index_become_one() -> None:
    assert listed(["a[0].b", "c", "a[1].b", "d[2]"]) == b"a[*].b, c, d[2]"
    assert listed([]) == b""


def test_only_what_a_header_can_hold_is_listed() -> None:
    assert listed(["a b,c\u00e9\r\n"]) == b"a?b?c???"
    assert listed(["x" * 121, "y" * 120]) == b"x" * 120 + b", " + b"y" * 120
    many = [f"f{n}" for n in range(MOST)]
    assert listed(many).decode().split(", ") == many
    assert listed([*many, "g", "h"]).decode().split(", ") == [*many, "+2"]
