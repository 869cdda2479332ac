"""What a provider's error is called in the dialect of the client that gets it."""

from __future__ import annotations

import json

import pytest

from lightgate.dialect.anthropic.raw_predict import raw_body, raw_path
from lightgate.dialect.errors import Fault, NoThread, clean, fault
from lightgate.dialect.neutral.seal import Unsealed
from lightgate.dialect.neutral.terms import ErrorTerms, reason_of, terms
from lightgate.dialect.neutral.thoughts import restored
from lightgate.errors import ErrorWords

THEIRS = ErrorWords(code="c", kind="k", param="p", details="[1]", family="openai")


@pytest.mark.parametrize(
    ("status", "message", "reason"),
    [
        *((status, "maximum context length is 8192", "too_long") for status in (400, 413, 422)),
        *((400, text, "too_long") for text in (
            "the context_window is full", "context-size reached", "Prompt is too long: 9 > 8",
            "input is too long", "input token count (9) exceeds the limit", "too many tokens",
            "too many input tokens", "too many prompt tokens", "exceeds the maximum of 5 tokens",
            "exceed our maximum number of tokens", "longer than the model's window",
        )),
        (500, "maximum context length is 8192", ""),
        (429, "maximum context length is 8192", "rate"),
        *((status, "You exceeded your current quota", "quota") for status in (402, 403, 429)),
        (402, "insufficient_quota", "quota"),
        (402, "Your credit balance is low", "quota"),
        (402, "Out of credits", "quota"),
        (400, "insufficient_quota", ""),
        *((status, "content_filter", "filtered") for status in (400, 403)),
        *((400, text, "filtered") for text in (
            "content policy", "content management", "our safety system", "was blocked",
            "contentfilter",
        )),
        (500, "content_filter", ""),
        (404, "The model x does not exist", "no_model"),
        (404, "no such deployment", "no_model"),
        (404, "remodelled page", ""),
        (400, "The model x does not exist", ""),
        (429, "Slow down", "rate"),
        (400, "Bad field", ""),
    ],
)  # fmt: skip
def test_the_reason_of_a_refusal(status: int, message: str, reason: str) -> None:
    assert reason_of(Fault("x", message, status)) == reason


def test_a_reason_may_stand_in_the_code_or_the_kind() -> None:
    for words in (ErrorWords(code="insufficient_quota"), ErrorWords(kind="insufficient_quota")):
        assert reason_of(Fault("x", "No.", 429, words)) == "quota"


def test_in_its_own_family_an_error_keeps_its_words() -> None:
    found = Fault("x", "No.", 400, THEIRS)
    assert terms("openai", found) == ErrorTerms(400, "No.", "c", "p", "k", "[1]")
    unsaid = Fault("x", "No.", 400, THEIRS._replace(code=None, kind="", details="", param=""))
    assert terms("openai", unsaid, "mine") == ErrorTerms(400, "No.", "x", "mine")


def test_in_another_family_an_error_has_the_words_of_its_reason() -> None:
    words = THEIRS._replace(family="anthropic")
    long = Fault("x", "maximum context length is 9", 400, words)
    assert terms("openai", long) == ErrorTerms(
        400, long.message, "context_length_exceeded", "messages"
    )
    assert terms("openai", long, "input").param == "input"
    for status, message, code, param in (
        (429, "insufficient_quota", "insufficient_quota", None),
        (400, "content_filter", "content_filter", None),
        (404, "no such model", "model_not_found", "model"),
        (429, "Slow down", "rate_limit_exceeded", None),
        (400, "Bad field", "x", None),
    ):
        said = terms("openai", Fault("x", message, status, words))
        assert said == ErrorTerms(status, message, code, param)


@pytest.mark.parametrize(
    ("family", "known"),
    [("anthropic", "prompt is too long"), ("gemini", "exceeds the maximum number of tokens")],
)
def test_a_prompt_that_is_too_long_is_said_in_the_sentence_that_clients_know(
    family: str, known: str
) -> None:
    found = terms(family, Fault("x", "maximum context length is 9", 400, THEIRS))
    assert found.message.count(known) == 1
    assert found.message.endswith(": maximum context length is 9")
    said = f"{known}, and context length is 9"
    assert terms(family, Fault("x", said, 400, THEIRS)).message == said
    other = "No such thing."
    assert terms(family, Fault("x", other, 400, THEIRS)).message == other


def test_an_error_of_our_own_has_our_words() -> None:
    ours = Fault("x", "No.", 400)
    assert terms("openai", ours, "field") == ErrorTerms(400, "No.", "x", "field")
    thread = Fault(NoThread.label, "No.", 400)
    assert terms("openai", thread).details == ""
    assert terms("anthropic", ours).details == ""
    assert json.loads(terms("anthropic", thread).details) == {
        "error_code": "thread_unsupported_request",
        "unsupported": ["thread"],
    }


# Reasoning that comes back


@pytest.mark.parametrize(
    ("dialect", "text", "raw"),
    [
        (
            "anthropic-messages",
            "Hm.",
            {"type": "thinking", "thinking": "Hm.", "signature": "sig"},
        ),
        ("gemini", "Hm.", {"text": "", "thoughtSignature": "sig"}),
        (
            "openai-responses",
            "Hm.",
            {
                "type": "reasoning",
                "summary": [{"type": "summary_text", "text": "Hm."}],
                "encrypted_content": "sig",
            },
        ),
        (
            "openai-responses",
            "",
            {"type": "reasoning", "summary": [], "encrypted_content": "sig"},
        ),
        (
            "openai-chat",
            "Hm.",
            {
                "reasoning_content": "Hm.",
                "reasoning_details": [
                    {"type": "reasoning.text", "text": "Hm.", "signature": "sig"}
                ],
            },
        ),
    ],
)
def test_reasoning_is_put_back_into_the_words_of_its_model(
    dialect: str, text: str, raw: dict[str, object]
) -> None:
    thought = restored(Unsealed(dialect, "sig", ""), text, "messages[1]")
    assert (thought.dialect, thought.raw, thought.place) == (dialect, raw, "messages[1]")
    sealed = restored(Unsealed(dialect, "sig", "Hm."), "other", "p")
    if dialect != "gemini":
        assert "other" not in json.dumps(sealed.raw)
        assert "Hm." in json.dumps(sealed.raw)


# Claude behind Google's endpoint


def test_the_path_and_the_body_of_a_raw_prediction() -> None:
    assert raw_path("claude@1 x/y", streamed=True) == "/models/claude@1%20x%2Fy:streamRawPredict"
    assert raw_path("m", streamed=False) == "/models/m:rawPredict"
    assert json.loads(raw_body(b'{"model": "m", "a": 1}', "v1")) == {
        "a": 1,
        "anthropic_version": "v1",
    }
    kept = raw_body(b'{"anthropic_version": "mine"}', "v1")
    assert json.loads(kept) == {"anthropic_version": "mine"}


# Keys in a provider's words

LONG = "a1" * 24
KEYS = {
    "bearer": ("Bearer abc.def", "abc.def"),
    "basic": ("authorization: basic dXNlcg==", "dXNlcg"),
    "api key": ("api_key=abcdef", "abcdef"),
    "x-api-key": ('x-api-key": "abcdef"', "abcdef"),
    "api-key": ("API-Key: abcdef", "abcdef"),
    "access token": ("access_token: abcdef", "abcdef"),
    "secret": ("secret=abcdef", "abcdef"),
    "password": ("password : abcdef", "abcdef"),
    "query key": ("https://x.test/?key=abcdef&a=1", "abcdef"),
    "query token": ("https://x.test/?a=1&token=abcdef", "abcdef"),
    "query sig": ("https://x.test/?sig=abcdef", "abcdef"),
    "query signature": ("https://x.test/?signature=abcdef", "abcdef"),
    **{
        prefix: (f"wrong: {prefix}-abcDEF", "abcDEF")
        for prefix in ("sk", "gsk", "csk", "xai", "pplx", "nvapi", "r8", "fw", "hf", "tgp")
    },
    "underscore": ("wrong: hf_abcDEF", "abcDEF"),
    "google": ("AIza" + "abcd" * 4, "abcdabcd"),
    "google token": ("ya29.abc", "abc"),
    "jwt": ("eyJ" + "abcd" * 4, "abcdabcd"),
    "uuid": ("0123abcd-0123-4567-89ab-0123456789AB", "89ab"),
    "base64": ("AB+/" * 9 + "abc1=", "AB+/"),
    "long": ("abc-_" * 9 + "ab1", "abc-_"),
    "mixed": ("a1" * 12, "a1a1"),
}


@pytest.mark.parametrize("name", KEYS)
def test_what_looks_like_a_key_is_masked(name: str) -> None:
    said, secret = KEYS[name]
    shown = clean(f"Refused {said} today.")
    assert secret not in shown
    assert "***" in shown
    assert shown.startswith("Refused ")
    assert (
        secret not in fault(401, json.dumps({"error": {"message": f"No: {said}"}}).encode()).message
    )


@pytest.mark.parametrize(
    "said",
    [
        "The model gpt-4o-mini-2024-07-18 is not known.",
        "Refused sk-abcde today.",
        "task-management is not askance",
        "Refused AIza" + "b" * 15,
        "Refused " + "a1" * 11 + "a",
        "Refused " + "a" * 30,
        "Refused " + "1" * 30,
        "monkey=banana is fine",
    ],
)
def test_what_is_no_key_is_shown(said: str) -> None:
    assert clean(said) == said


def test_a_sentence_is_one_line_of_a_few_hundred_characters() -> None:
    assert clean("a\n b\t\x00c") == "a b \N{REPLACEMENT CHARACTER}c"
    assert clean("ab " * 99 + "ab!") == "ab " * 99 + "ab!"
    assert clean("ab " * 100 + "ab") == "ab " * 99 + "ab\N{HORIZONTAL ELLIPSIS}"
    assert clean("ab " * 10, 5) == "ab a\N{HORIZONTAL ELLIPSIS}"
    assert clean("x" * 17, 5) == "xxxx\N{HORIZONTAL ELLIPSIS}"
    assert clean("x" * 16, 5) == "x" * 16  # a word: too short for any secret
