"""What a scanner hears in one event or one whole answer, dialect by dialect, to the last count."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from lightgate.clock.tokens import Usage
from lightgate.dialect.errors import NOT_UTF8, Fault
from lightgate.dialect.kinds import AUDIO, NONE, REASONING, REFUSAL, TEXT, TOOL
from lightgate.dialect.openai_responses import events
from lightgate.dialect.registry import DIALECTS

if TYPE_CHECKING:
    from lightgate.dialect.scanner import Scanner


def heard(dialect: str, *events: Any, name: bytes = b"") -> Scanner:
    """A scanner after these events."""
    scanner = DIALECTS[dialect].scanner()
    for event in events:
        data = event if isinstance(event, bytes) else json.dumps(event).encode()
        kind = event.get("type") if dialect.startswith(("anth", "openai-resp")) else None
        scanner.event(name or (kind or "").encode(), data)
    return scanner


def whole(dialect: str, answer: Any) -> Scanner:
    scanner = DIALECTS[dialect].scanner()
    scanner.whole(answer if isinstance(answer, bytes) else json.dumps(answer).encode())
    return scanner


def choice(delta: Any = None, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta or {}, **more}]}


def call(**more: Any) -> dict[str, Any]:
    return {"tool_calls": [{"index": 0, "id": "c", **more}]}


@pytest.mark.parametrize(
    ("delta", "kinds", "chars"),
    [
        ({"content": "abc"}, TEXT, 3),
        ({"content": ""}, NONE, 0),
        ({"content": None}, NONE, 0),
        ({"content": 3}, NONE, 0),
        ({"reasoning_content": "ab"}, REASONING, 2),
        ({"reasoning": "ab"}, REASONING, 2),
        ({"reasoning_content": "ab", "reasoning": "ab"}, REASONING, 2),
        ({"reasoning_details": [{"text": "ab"}, {"summary": "cde"}]}, REASONING, 5),
        ({"reasoning_content": "a", "content": "b"}, REASONING | TEXT, 2),
        ({"refusal": "no"}, REFUSAL, 2),
        ({"refusal": 3}, NONE, 0),
        ({"audio": {"transcript": "abcd"}}, AUDIO, 4),
        ({"audio": {"data": "UklG"}}, AUDIO, 0),
        ({"audio": {"transcript": 3}}, NONE, 0),
        (call(function={"name": "ab", "arguments": "{}"}), TOOL, 4),
        (call(function={"name": "ab", "arguments": {"a": 1}}), TOOL, 2 + 7),
        (call(function={"arguments": ""}), NONE, 0),
        (call(custom={"name": "ab", "input": "cde"}), TOOL, 5),
        (call(custom={"name": "ab", "input": 3}), TOOL, 2),
        (call(custom={"name": None, "input": ""}), NONE, 0),
        ({"function_call": {"name": "ab", "arguments": "c"}}, TOOL, 3),
        ({"content": [{"type": "text", "text": "abc"}]}, TEXT, 3),
        ({"content": [{"thinking": [{"text": "ab"}]}, {"text": "c"}]}, REASONING | TEXT, 3),
        ({"content": [{"thinking": [{"text": 3}], "text": 4}]}, NONE, 0),
    ],
)
def test_deltas_of_chat(delta: dict[str, Any], kinds: int, chars: int) -> None:
    found = heard("openai-chat", choice(delta))
    assert (found.kinds, found.chars, found.error, found.done) == (kinds, chars, None, False)
    message = whole("openai-chat", {"choices": [{"message": delta, "finish_reason": "stop"}]})
    assert (message.kinds, message.chars, message.done) == (kinds, chars, True)
    assert (message.finish, message.ended_by) == ("stop", "finish")


@pytest.mark.parametrize(
    ("event", "code"),
    [
        ({"error": {"message": "m", "code": "c"}}, "c"),
        ({"choices": None}, "malformed"),
        ({"choices": [{"index": 0, "delta": {}, "error": {"message": "m", "code": "x"}}]}, "x"),
        ({"choices": [], "x_groq": {"error": {"message": "m", "code": "g"}}}, "g"),
        ({"choices": [{"index": 0, "delta": {}, "finish_reason": "error"}]}, "error"),
        ({"choices": [{"index": 0, "delta": {}, "finish_reason": "abort"}]}, "abort"),
        ({"choices": [{"index": 0, "delta": {"content": "a"}}]}, None),
        ({"choices": None, "usage": {"prompt_tokens": 1}}, None),
    ],
)
def test_errors_inside_a_stream_of_chat(event: dict[str, Any], code: str | None) -> None:
    found = heard("openai-chat", event)
    assert (None if found.error is None else found.error.code) == code
    later = heard("openai-chat", event, {"error": {"message": "m", "code": "second"}})
    assert later.error is not None
    assert later.error.code == (code or "second")  # the first one wins


def test_the_end_of_a_stream_of_chat() -> None:
    done = heard("openai-chat", choice({"content": "a"}), b"[DONE]", choice({"content": "b"}))
    assert (done.done, done.ended_by, done.chars, done.finish) == (True, "marker", 1, None)
    named = heard("openai-chat", choice({"content": "a"}, finish_reason="length"))
    assert (named.done, named.finish) == (False, "length")
    named.eof()
    assert (named.done, named.ended_by) == (True, "finish")
    cut = heard("openai-chat", choice({"content": "a"}))
    cut.eof()
    assert (cut.done, cut.ended_by) == (False, None)
    failed = heard("openai-chat", choice({}, finish_reason="stop"), {"error": "x"})
    failed.eof()
    assert not failed.done


@pytest.mark.parametrize(
    ("finish", "explains"),
    [(None, False), ("stop", False), ("STOP", False), ("length", True), ("content_filter", True)],
)
def test_a_mere_stop_does_not_say_why_there_is_no_token(finish: str | None, explains: bool) -> None:
    assert heard("openai-chat", choice({}, finish_reason=finish)).explains is explains


@pytest.mark.parametrize(
    ("said", "usage"),
    [
        ({"prompt_tokens": 7, "completion_tokens": 3}, Usage(tokens_in=7, tokens_out=3)),
        ({"completion_tokens": 3}, Usage(tokens_out=3)),
        ({"prompt_tokens": 7}, Usage(tokens_in=7)),
        ({}, None),
        ({"prompt_tokens": 7, "prompt_cache_hit_tokens": 2}, Usage(tokens_in=7, tokens_cached=2)),
        (
            {
                "prompt_tokens": 7,
                "prompt_cache_hit_tokens": 2,
                "prompt_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 4},
            },
            Usage(tokens_in=7, tokens_cached=0, tokens_cache_write=4),
        ),
        (
            {"completion_tokens": 7, "reasoning_tokens": 2},
            Usage(tokens_out=7, tokens_reasoning=2),
        ),
        (
            {"completion_tokens": 7, "completion_tokens_details": {"reasoning_tokens": 0},
             "reasoning_tokens": 2},
            Usage(tokens_out=7, tokens_reasoning=0),
        ),
        (
            {"prompt_tokens": 1, "num_sources_used": 4},
            Usage(tokens_in=1, calls=(("source", 4),)),
        ),
        (
            {"prompt_tokens": 1, "num_sources_used": 4, "num_search_queries": 2},
            Usage(tokens_in=1, calls=(("source", 4), ("web_search", 2))),
        ),
        (
            {"prompt_tokens": 1, "num_sources_used": 0, "num_search_queries": 2},
            Usage(tokens_in=1, calls=(("web_search", 2),)),
        ),
    ],
)  # fmt: skip
def test_usage_of_chat(said: dict[str, Any], usage: Usage | None) -> None:
    assert heard("openai-chat", {"choices": [], "usage": said}).usage == usage
    tier = {"choices": [], "usage": said, "service_tier": "flex"}
    found = heard("openai-chat", tier).usage
    assert (None if found is None else found.tier) == (None if usage is None else "flex")
    assert heard("openai-chat", {"choices": [], "x_groq": {"usage": said}}).usage == usage


def test_a_running_count_is_one_from_the_first_token_on() -> None:
    def at(tokens: int) -> dict[str, Any]:
        return {"usage": {"prompt_tokens": 1, "completion_tokens": tokens}}

    first = heard("openai-chat", choice({"content": "a"}) | at(1))
    assert first.usage_running == 1
    first.event(b"", json.dumps(choice({"content": "b"}) | at(5)).encode())
    assert first.usage_running == 5
    late = heard("openai-chat", choice({"content": "a"}), choice({"content": "b"}) | at(9))
    assert (late.usage_running, late.usage) == (-1, Usage(tokens_in=1, tokens_out=9))


def test_the_facts_of_a_scanner_go_to_another_process_and_back() -> None:
    made = heard(
        "openai-chat", choice({"reasoning": "ab"}), choice({"content": "cde"}, finish_reason="stop")
    )
    made.eof()
    other = DIALECTS["openai-chat"].scanner()
    other.adopt(made.facts())
    assert other.facts() == made.facts()
    assert other.facts() == (None, -1, "stop", None, True, "finish", REASONING | TEXT, 3, 5, 2)
    broken = whole("openai-chat", b'{"choices":"\xff"}')
    assert broken.error is NOT_UTF8
    copied = broken.facts()[3]
    assert copied is not None
    facts = list(broken.facts())
    facts[3] = Fault(copied.code, copied.message)
    other.adopt(tuple(facts))  # type: ignore[arg-type]
    assert other.error is NOT_UTF8


RESPONSE = {"id": "r", "object": "response", "status": "completed", "output": []}


@pytest.mark.parametrize(
    ("item", "kinds", "chars"),
    [
        ({"type": "message", "content": [{"type": "output_text", "text": "abc"}]}, TEXT, 3),
        ({"type": "message", "content": [{"type": "refusal", "refusal": "ab"}]}, REFUSAL, 2),
        (
            {"type": "reasoning", "summary": [{"text": "ab"}], "content": [{"text": "c"}]},
            REASONING,
            3,
        ),
        ({"type": "function_call", "call_id": "c", "name": "ab", "arguments": "{}"}, TOOL, 4),
        ({"type": "custom_tool_call", "name": "ab", "input": "cde"}, TOOL, 5),
        ({"type": "mcp_call", "name": "ab", "arguments": "c"}, TOOL, 3),
        ({"type": "something_else", "name": "ab"}, NONE, 0),
    ],
)
def test_items_of_a_response(item: dict[str, Any], kinds: int, chars: int) -> None:
    found = whole("openai-responses", {**RESPONSE, "output": [item]})
    assert (found.kinds, found.chars, found.error) == (kinds, chars, None)
    assert (found.done, found.finish, found.ended_by) == (True, "completed", "finish")


@pytest.mark.parametrize(
    ("kind", "called"),
    [
        ("web_search_call", "web_search"),
        ("file_search_call", "file_search"),
        ("code_interpreter_call", "code_execution"),
        ("message", None),
    ],
)
def test_calls_of_a_providers_own_tools_in_a_response(kind: str, called: str | None) -> None:
    usage = {"input_tokens": 3, "output_tokens": 4}
    found = whole("openai-responses", {**RESPONSE, "usage": usage, "output": [{"type": kind}] * 2})
    assert found.usage is not None
    expected = () if called is None else (2,)
    assert tuple(count for _, count in found.usage.calls) == expected
    if called is not None and kind == "web_search_call":
        assert found.usage.calls == (("web_search", 2),)


@pytest.mark.parametrize(
    ("more", "code", "finish"),
    [
        ({"status": "failed"}, "failed", "failed"),
        ({"status": "failed", "error": {"code": "c", "message": "m"}}, "c", "failed"),
        ({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, None,
         "max_output_tokens"),
        ({"status": "completed", "incomplete_details": None}, None, "completed"),
    ],
)  # fmt: skip
def test_how_a_response_ended(more: dict[str, Any], code: str | None, finish: str) -> None:
    found = whole("openai-responses", {**RESPONSE, **more})
    assert (None if found.error is None else found.error.code) == code
    assert found.finish == finish
    if code == "failed" and found.error is not None:
        assert found.error.message == "The provider failed the response and gave no reason."


@pytest.mark.parametrize(
    ("said", "usage"),
    [
        ({"input_tokens": 3, "output_tokens": 4}, Usage(tokens_in=3, tokens_out=4)),
        ({"input_tokens": 3}, Usage(tokens_in=3)),
        ({"output_tokens": 4}, Usage(tokens_out=4)),
        ({}, None),
        (
            {
                "input_tokens": 3,
                "input_tokens_details": {"cached_tokens": 1, "cache_write_tokens": 2},
                "output_tokens_details": {"reasoning_tokens": 5},
            },
            Usage(tokens_in=3, tokens_cached=1, tokens_cache_write=2, tokens_reasoning=5),
        ),
    ],
)
def test_usage_of_a_response(said: dict[str, Any], usage: Usage | None) -> None:
    assert whole("openai-responses", {**RESPONSE, "usage": said}).usage == usage
    found = whole("openai-responses", {**RESPONSE, "usage": said, "service_tier": "flex"}).usage
    assert (None if found is None else found.tier) == (None if usage is None else "flex")


def test_usage_of_anthropic_adds_the_cache_to_the_prompt() -> None:
    begun = {
        "type": "message_start",
        "message": {
            "usage": {
                "input_tokens": 5,
                "cache_read_input_tokens": 7,
                "cache_creation_input_tokens": 11,
                "cache_creation": {"ephemeral_1h_input_tokens": 2},
                "output_tokens": 1,
                "service_tier": "standard",
            }
        },
    }
    found = heard("anthropic-messages", begun)
    assert found.usage == Usage(
        tokens_in=23,
        tokens_cached=7,
        tokens_cache_write=11,
        tokens_cache_write_1h=2,
        tier="standard",
    )
    called = {"web_search_requests": 2, "web_fetch_requests": 0, "code_execution_requests": 3}
    last = {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn"},
        "usage": {"output_tokens": 9, "server_tool_use": called},
    }
    done = heard("anthropic-messages", begun, last)
    assert done.usage is not None
    assert (done.usage.tokens_in, done.usage.tokens_out, done.finish) == (23, 9, "end_turn")
    assert done.usage.calls == (("web_search", 2), ("code_execution", 3))
    again = heard("anthropic-messages", begun, last, {**last, "usage": {"output_tokens": 12}})
    assert again.usage is not None
    assert (again.usage.tokens_out, again.usage.calls) == (12, done.usage.calls)
    fetched = {"usage": {"output_tokens": 1, "server_tool_use": {"web_fetch_requests": 4}}}
    found = heard("anthropic-messages", begun, {**last, **fetched})
    assert found.usage is not None
    assert found.usage.calls == (("web_fetch", 4),)


def gemini(parts: list[Any], **more: Any) -> dict[str, Any]:
    return {"candidates": [{"content": {"parts": parts}, **more}]}


@pytest.mark.parametrize(
    ("part", "kinds", "chars"),
    [
        ({"text": "abc"}, TEXT, 3),
        ({"text": ""}, NONE, 0),
        ({"text": "ab", "thought": True}, REASONING, 2),
        ({"text": "ab", "thought": False}, TEXT, 2),
        ({"thought": True, "thoughtSignature": "s"}, NONE, 0),
        ({"text": "ab", "thoughtSignature": "s"}, TEXT, 2),
        ({"functionCall": {"name": "ab", "args": {"a": 1}}}, TOOL, 2 + 7),
        ({"functionCall": {"name": "ab", "args": {}}}, TOOL, 2),
        ({"functionCall": {"name": "ab"}}, TOOL, 2),
        ({"executableCode": {"code": "abcd"}}, TOOL, 4),
        ({"executableCode": {"code": 3}}, NONE, 0),
        ({"inlineData": {"data": "eA=="}}, AUDIO, 0),
        ({"inlineData": {"data": ""}}, NONE, 0),
    ],
)
def test_parts_of_gemini(part: dict[str, Any], kinds: int, chars: int) -> None:
    found = heard("gemini", gemini([part]))
    assert (found.kinds, found.chars, found.error) == (kinds, chars, None)
    ended = heard("gemini", gemini([part], finishReason="STOP"))
    assert ended.finish == "STOP"
    unsaid = heard("gemini", gemini([part], finishReason="FINISH_REASON_UNSPECIFIED"))
    assert unsaid.finish is None


def test_searches_that_an_answer_of_gemini_is_grounded_on() -> None:
    usage = {"usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 4}}
    grounded = gemini([{"text": "a"}], groundingMetadata={"webSearchQueries": ["x", "y"]}) | usage
    expected = (("web_search", 2), ("grounded_request", 1))
    found = heard("gemini", grounded)
    assert found.usage is not None
    assert found.usage.calls == expected
    later = heard("gemini", grounded, gemini([{"text": "b"}]) | usage)
    assert later.usage is not None
    assert later.usage.calls == expected  # once told, it holds for the answer
    unsaid: tuple[Any, ...] = ([], None, "x")
    for queries in unsaid:
        none = gemini([{"text": "a"}], groundingMetadata={"webSearchQueries": queries}) | usage
        plain = heard("gemini", none)
        assert plain.usage is not None
        assert plain.usage.calls == ()


def test_a_scanner_that_has_heard_nothing() -> None:
    for dialect in DIALECTS:
        fresh = DIALECTS[dialect].scanner()
        assert fresh.facts() == (None, -1, None, None, False, None, NONE, 0, 0, 0)
        assert not fresh.explains
    silent = heard("openai-chat", {"choices": []})
    assert silent.facts() == (None, -1, None, None, False, None, NONE, 0, 0, 0)


def test_an_event_without_choices_may_be_an_error_in_another_shape() -> None:
    odd = heard("openai-chat", {"detail": "The model is gone.", "code": "gone"})
    assert odd.error is not None
    assert (odd.error.code, odd.error.message) == ("gone", "The model is gone.")
    named = heard("openai-chat", {"choices": [], "message": "boom"}, name=b"error")
    assert named.error is not None
    assert named.error.message == "boom"
    beside = heard("openai-chat", {"choices": [], "detail": "only a remark"})
    assert beside.error is None


@pytest.mark.parametrize(
    ("said", "counted"),
    [(0, 0), (1 << 40, 1 << 40), ((1 << 40) + 1, None), (-1, None)],
)
def test_a_count_that_cannot_be_is_none(said: int, counted: int | None) -> None:
    found = whole(
        "openai-responses",
        {**RESPONSE, "usage": {"input_tokens": said, "output_tokens": 5}, "output": []},
    )
    assert (found.usage.tokens_in if found.usage else None) == counted


@pytest.mark.parametrize(
    ("event", "place"),
    [
        (b'{"output_index": 2, "item_id": "m"}', 2),
        (b'{"output_index": "2", "item_id": "m"}', "m"),
        (b'{"item_id": "m"}', "m"),
        (b'{"item_id": 3}', -1),
        (b"{}", -1),
    ],
)
def test_the_place_of_an_event_is_its_number_or_its_items_name(
    event: bytes, place: int | str
) -> None:
    assert events._place(events._full.decode(event)) == place
    assert events._place(events._counted.decode(event)) == -1  # where only tokens are counted


def test_half_an_emoji_has_the_weight_of_its_bytes_and_is_no_reason_to_parse_less() -> None:
    halves = [choice({"content": half}) for half in ("\ud83d", "a", "\ud83d", "a")]
    scanner = heard("openai-chat", halves[0])
    assert (scanner.kinds, scanner.weight, scanner.chars) == (TEXT, 3, 1)
    assert heard("openai-chat", *halves).chars == 4


def test_a_transcript_in_broken_utf8_is_refused_and_not_heard() -> None:
    found = whole("openai-transcriptions", b"Hi \xff!")
    assert (found.error, found.chars) == (NOT_UTF8, 0)


@pytest.mark.parametrize(
    ("said", "tier"),
    [
        ({"speed": "fast", "service_tier": "standard"}, "fast"),
        ({"speed": "standard", "service_tier": "priority"}, "priority"),
        ({"service_tier": 3}, None),
    ],
)
def test_a_faster_answer_of_anthropic_is_a_tier_of_its_own(said: Any, tier: str | None) -> None:
    usage = {"input_tokens": 1, "output_tokens": 1, **said}
    answer = {"content": [{"type": "text", "text": "a"}], "usage": usage}
    found = whole("anthropic-messages", answer).usage
    assert found is not None
    assert found.tier == tier


def test_an_error_event_of_anthropic_is_its_own_words_or_a_malformed_one() -> None:
    said = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    found = heard("anthropic-messages", said).error
    assert found is not None
    assert (found.code, found.message) == ("overloaded_error", "Overloaded")
    bare = heard("anthropic-messages", {"type": "error"}).error
    assert bare is not None
    assert bare.code == "malformed"
    assert heard("anthropic-messages", {"type": "made_up"}).error is None
