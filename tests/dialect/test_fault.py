"""Error answers of every shape become one short sentence without secrets."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightgate.dialect.errors import (
    MESSAGE_LIMIT,
    Fault,
    _cleaned,
    _plain,
    _sentence,
    clean,
    error_of,
    malformed,
)
from lightgate.dialect.registry import dialect_for
from lightgate.errors import ErrorWords

DIALECT = dialect_for("openai", "chat")


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (
            429,
            '{"error":{"message":"Rate limit reached","type":"r","code":"rate_limit_exceeded"}}',
            Fault("rate_limit_exceeded", "Rate limit reached", 429),
        ),
        (
            400,
            '{"error":{"message":"Bad\\n  field","type":"invalid_request_error","code":null}}',
            Fault("invalid_request_error", "Bad field", 400),
        ),
        (
            401,
            '{"error":{"code":"401","message":"Access denied due to invalid key."}}',
            Fault("http_401", "Access denied due to invalid key.", 401),
        ),
        (
            400,
            '{"error":{"code":"content_filter","message":"Filtered","innererror":{"code":"X"}}}',
            Fault("content_filter", "Filtered", 400),
        ),
        (
            529,
            '{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}',
            Fault("overloaded_error", "Overloaded", 529),
        ),
        (
            400,
            '{"error":{"code":400,"message":"Bad key","status":"INVALID_ARGUMENT"}}',
            Fault("INVALID_ARGUMENT", "Bad key", 400),
        ),
        (
            429,
            '[{"error":{"code":429,"message":"Quota","status":"RESOURCE_EXHAUSTED"}}]',
            Fault("RESOURCE_EXHAUSTED", "Quota", 429),
        ),
        (
            502,
            '{"error":{"message":"Provider error","code":502,"metadata":{"raw":"upstream died"}}}',
            Fault("http_502", "Provider error: upstream died", 502),
        ),
        (
            400,
            '{"object":"error","message":"too long","type":"BadRequestError","code":400}',
            Fault("BadRequestError", "too long", 400),
        ),
        (404, '{"detail":"Not Found"}', Fault("http_404", "Not Found", 404)),
        (
            422,
            '{"detail":[{"loc":["body","model"],"msg":"field required","type":"missing"}]}',
            Fault("missing", "field required: model", 422),
        ),
        (
            422,
            '{"error":"Input too long","error_type":"validation"}',
            Fault("validation", "Input too long", 422),
        ),
        (
            403,
            '{"success":false,"errors":[{"code":10000,"message":"Authentication error"}]}',
            Fault("http_403", "Authentication error", 403),
        ),
        (400, '{"message":"invalid request"}', Fault("http_400", "invalid request", 400)),
        (
            500,
            '{"error":{"type":"x"}}',
            Fault("x", "The provider reported an error without a message.", 500),
        ),
        (503, "upstream connect error\r\n", Fault("http_503", "upstream connect error", 503)),
        (500, "", Fault("http_500", "The provider answered 500.", 500)),
        (500, "{}", Fault("http_500", "{}", 500)),
        (
            502,
            "<html>\n<head><title>502 Bad\nGateway &amp; more</title></head><body>x</body></html>",
            Fault("http_502", "an HTML page titled '502 Bad Gateway & more'", 502),
        ),
        (
            403,
            "\n<!DOCTYPE HTML><p>secret page</p>",
            Fault("http_403", "an HTML page without a title", 403),
        ),
    ],
)
def test_error_answers(status: int, body: str, expected: Fault) -> None:
    found = DIALECT.fault(status, body.encode())
    assert (found.code, found.message, found.status) == (
        expected.code, expected.message, expected.status,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            (
                '{"error":{"message":"m","type":"invalid_request_error","param":"messages",'
                '"code":"context_length_exceeded"}}'
            ),
            ErrorWords("context_length_exceeded", "invalid_request_error", "messages"),
        ),
        ('{"error":{"message":"m","type":"x","code":null}}', ErrorWords(None, "x")),
        (  # vLLM
            '{"error":{"message":"m","type":"BadRequestError","param":null,"code":400}}',
            ErrorWords(400, "BadRequestError"),
        ),
        (
            '{"type":"error","error":{"type":"overloaded_error","message":"m"}}',
            ErrorWords(None, "overloaded_error"),
        ),
        (
            '{"error":{"code":400,"message":"m","status":"INVALID_ARGUMENT"}}',
            ErrorWords(400, "INVALID_ARGUMENT"),
        ),
        (  # Mistral, three ways
            (
                '{"object":"error","message":{"detail":[{"type":"extra_forbidden","loc":["body",'
                '"stream_options","include_usage"],"msg":"Extra inputs are not permitted"}]},'
                '"type":"invalid_request_error","param":null,"code":null}'
            ),
            ErrorWords("extra_forbidden", "", "stream_options.include_usage"),
        ),
        (
            (
                '{"object":"error","message":"{\\"detail\\":[{\\"type\\":\\"extra_forbidden\\",'
                '\\"loc\\":[\\"body\\",\\"user\\"],\\"msg\\":\\"Extra inputs\\"}]}","code":"1000"}'
            ),
            ErrorWords("extra_forbidden", "", "user"),
        ),
        (
            (
                '{"object":"Error","detail":[{"type":"missing","loc":["body","tools",0,"function"],'
                '"msg":"Field required"}],"type":"invalid_request_error","code":3001}'
            ),
            ErrorWords("missing", "", "tools.0.function"),
        ),
        ('{"message":"no"}', ErrorWords()),
        ('{"error":{"message":"m","code":"sk-proj-abc123DEF456ghi789"}}', ErrorWords("***")),
        ('{"error":{"message":"m","code":["a"],"type":{},"param":7}}', ErrorWords()),
    ],
)
def test_an_errors_own_words_are_kept(body: str, words: ErrorWords) -> None:
    assert DIALECT.fault(400, body.encode()).words == words


@pytest.mark.parametrize(
    "secret",
    [
        "sk-proj-abc123DEF456ghi789",
        "sk-ant-api03-Zz_9-xx",
        "sk-abcd****wxyz",
        "gsk_AbCd1234EfGh5678",
        "xai-0a1b2c3d4e5f",
        "AIzaSyA1234567890abcdefghijklmnopqrstu",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln",
        "0123456789abcdef0123456789abcdef",
        "7f1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9",
        "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo+MDEyMzQ1Njc4OQ==",
        "q7_Rk-2mZx_8Lp-Wn4_Tb-6Vc_Yd-9Hs_Jf-3Gq_Xr-5Nt_Ka",
        "Bearer abc.def",
        "api_key=hunter2",
        'x-api-key: "hunter2"',
    ],
)
def test_what_looks_like_a_key_is_masked(secret: str) -> None:
    said = DIALECT.fault(401, json.dumps({"error": {"message": f"Wrong: {secret} !"}}).encode())
    assert said.message.replace("!", "").strip() == "Wrong: ***"


@pytest.mark.parametrize(
    "harmless",
    [
        "The model meta-llama/Llama-4-Maverick-17B-128E-Instruct-FP8 does not exist",
        "claude-sonnet-4-5-20250929 is overloaded, try claude-3-5-haiku-20241022",
        "maximum context length is 128000 tokens, you asked for 131072 at /v1/chat/completions",
        "internationalizationally unsupported parameter: 'max_completion_tokens'",
    ],
)
def test_names_and_numbers_stay_readable(harmless: str) -> None:
    assert clean(harmless) == harmless


def test_a_message_is_cut_at_its_limit() -> None:
    said = clean("word " * 500)
    assert len(said) == MESSAGE_LIMIT
    assert said.endswith("\N{HORIZONTAL ELLIPSIS}")


def test_a_key_at_the_limit_is_masked_before_the_cut() -> None:
    key = "sk-" + "a1B2" * 20
    assert "a1B2" not in clean("x" * (MESSAGE_LIMIT - 10) + " " + key)


def test_another_familys_error_in_a_good_answer_is_that_error() -> None:
    body = b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}'
    assert malformed(body) == Fault(
        "overloaded_error", "Overloaded", None, ErrorWords(None, "overloaded_error")
    )


@settings(max_examples=200, derandomize=True, deadline=None, database=None)
@given(st.binary(max_size=200) | st.text(max_size=200).map(lambda t: t.encode("utf-8", "replace")))
def test_any_body_becomes_one_printable_line(body: bytes) -> None:
    said = DIALECT.fault(500, body)
    assert said.status == 500
    assert 0 < len(said.message) <= MESSAGE_LIMIT
    assert said.message.isprintable()


@pytest.mark.parametrize("limit", [1, 2, 40, 300])
def test_a_long_text_is_cut_before_and_after_it_is_cleaned(limit: int) -> None:
    """Twenty times the limit is looked at: blanks between words are not kept."""
    assert clean(" " * (20 * limit - 1) + "ab", limit) == "a"
    assert clean(" " * (20 * limit) + "ab", limit) == ""
    assert clean("?" * limit, limit) == "?" * limit
    assert clean("?" * (limit + 1), limit) == "?" * (limit - 1) + "\N{HORIZONTAL ELLIPSIS}"


def test_short_words_are_no_secrets_and_all_else_is_looked_at() -> None:
    assert clean("a" * 16, 5) == "a" * 16  # a word
    assert clean("a" * 17, 5) == "aaaa\N{HORIZONTAL ELLIPSIS}"
    assert clean("\N{LATIN SMALL LETTER E WITH ACUTE}" * 6, 5).endswith("\N{HORIZONTAL ELLIPSIS}")
    assert clean("a\x00b") == "a\N{REPLACEMENT CHARACTER}b"
    assert clean(" a \n\t b ") == "a b"


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [("died", "No: died"), ("", "No"), (3, "No"), ({"a": 1}, "No"), (None, "No")],
)
def test_the_real_sentence_of_an_aggregator_is_a_text(raw: object, sentence: str) -> None:
    assert _sentence({"message": "No", "metadata": {"raw": raw}}) == sentence


@pytest.mark.parametrize(
    ("value", "cleaned"),
    [
        ({"a": {"b": {"c": 1}}}, {"a": {"b": None}}),
        ([[[1]]], [[None]]),
        ({"a": [{"b": 1}, "x\ny"]}, {"a": [None, "x y"]}),
        ({"a": {"b": "x\ny"}}, {"a": {"b": "x y"}}),
        ({"a": 1, "b": [2]}, {"a": 1, "b": [None]}),
    ],
)
def test_what_is_nested_too_deeply_is_left_out(value: object, cleaned: object) -> None:
    """Two levels are cleaned here; a text counts at any depth of them."""
    assert _cleaned(value, 2) == cleaned


@pytest.mark.parametrize(
    ("source", "code", "status"),
    [
        ({"code": 400}, "http_400", 400),
        ({"code": 599}, "http_599", 599),
        ({"code": 399}, "error", None),
        ({"code": 600}, "error", None),
        ({"code": "429"}, "http_429", 429),
        ({"code": "4290000000000"}, "error", None),
        ({"code": True, "status": 503}, "http_503", 503),
        ({"code": 500, "status": 503}, "http_500", 500),  # the first that is one
        ({"code": 7, "status": 503}, "http_503", 503),
        ({"code": 500, "type": "api_error"}, "api_error", 500),
        ({"type": "error", "status": "UNAVAILABLE"}, "UNAVAILABLE", None),
        ({"error_type": "a", "status": "b"}, "a", None),
        ({"code": "x" * 80}, "x" * 63 + "\N{HORIZONTAL ELLIPSIS}", None),
    ],
)
def test_an_errors_status_and_its_word(source: object, code: str, status: int | None) -> None:
    found = error_of(source)
    assert (found.code, found.status) == (code, status)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"Bad \xff gateway", "Bad \ufffd gateway"),
        (b"<html><title>Bad \xff</title></html>", "an HTML page titled 'Bad \ufffd'"),
        (b"<html></html>", "an HTML page without a title"),
    ],
)
def test_bytes_that_are_no_utf8_are_told_as_far_as_they_are(body: bytes, said: str) -> None:
    assert _plain(body) == said
