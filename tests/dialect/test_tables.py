"""The tables of the dialects: endpoints, words for errors, words for the end of an answer."""

from __future__ import annotations

import pytest

from lightgate.dialect import anthropic, gemini, openai_chat, openai_responses
from lightgate.dialect.errors import Fault, status_of, word_of
from lightgate.dialect.registry import DIALECTS, TRANSLATED

# name: family, kind, path or verb, tokens, camel, free, sound
ENDPOINTS = {
    "openai-chat": ("openai", "chat", "/chat/completions", True, False, False, ""),
    "openai-responses": ("openai", "responses", "/responses", True, False, False, ""),
    "anthropic-messages": ("anthropic", "chat", "/messages", True, False, False, ""),
    "gemini": ("gemini", "chat", "generateContent", True, True, False, ""),
    "openai-completions": ("openai", "completion", "/completions", True, False, False, ""),
    "openai-embeddings": ("openai", "embedding", "/embeddings", False, False, False, ""),
    "openai-input-tokens": ("openai", "count", "/responses/input_tokens", False, False, True, ""),
    "anthropic-count-tokens": (
        "anthropic", "count", "/messages/count_tokens", False, False, True, "",
    ),
    "gemini-count-tokens": ("gemini", "count", "countTokens", False, True, True, ""),
    "gemini-embed": ("gemini", "embedding", "embedContent", False, True, False, ""),
    "gemini-embed-batch": ("gemini", "embedding", "batchEmbedContents", False, True, False, ""),
    "openai-speech": ("openai", "speech", "/audio/speech", False, False, False, "speech"),
    "openai-transcriptions": (
        "openai", "transcription", "/audio/transcriptions", False, False, False, "form",
    ),
    "openai-translations": (
        "openai", "translation", "/audio/translations", False, False, False, "form",
    ),
}  # fmt: skip
# turns, instructions, schemas, the sign of a schema, nested
SHAPES = {
    "openai-chat": ("messages", (), ("response_format",), b'"json_schema"', ""),
    "openai-responses": ("input", ("instructions",), ("text",), b'"json_schema"', ""),
    "anthropic-messages": (
        "messages", ("system",), ("output_config", "output_format"), b'"schema"', "",
    ),
    "gemini": (
        "contents", ("systemInstruction", "system_instruction"), ("generationConfig",),
        b"Schema", "functionDeclarations",
    ),
    "openai-completions": ("prompt", (), (), b'"json_schema"', ""),
}  # fmt: skip


def test_every_endpoint_has_its_row() -> None:
    rows = {
        name: (
            one.family,
            one.kind,
            one.path or one.verb,
            one.tokens,
            one.camel,
            one.free,
            one.sound,
        )
        for name, one in DIALECTS.items()
    }
    assert rows == ENDPOINTS
    assert tuple(ENDPOINTS)[:4] == TRANSLATED
    whole = {name: one.whole_only for name, one in DIALECTS.items() if one.whole_only}
    assert whole == {
        "openai-chat": ("audio",),
        "openai-responses": ("background",),
        "openai-completions": ("best_of",),
    }


@pytest.mark.parametrize("name", SHAPES)
def test_where_facts_stand(name: str) -> None:
    shape = DIALECTS[name].shape
    found = (shape.turns, shape.instructions, shape.schemas, shape.schema_sign, shape.nested)
    assert found == SHAPES[name]


CHAT_WORDS = {
    400: "invalid_request_error", 401: "authentication_error", 402: "insufficient_quota",
    403: "permission_error", 404: "invalid_request_error", 408: "timeout_error",
    409: "conflict_error", 422: "invalid_request_error", 429: "rate_limit_error",
    499: "server_error", 500: "server_error", 503: "server_error",
}  # fmt: skip
ANTHROPIC_WORDS = {
    400: "invalid_request_error", 401: "authentication_error", 402: "billing_error",
    403: "permission_error", 404: "not_found_error", 408: "timeout_error", 409: "conflict_error",
    413: "request_too_large", 422: "invalid_request_error", 429: "rate_limit_error",
    499: "api_error", 500: "api_error", 502: "api_error", 503: "overloaded_error",
    504: "timeout_error", 529: "overloaded_error",
}  # fmt: skip
GEMINI_WORDS = {
    400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 402: "FAILED_PRECONDITION",
    403: "PERMISSION_DENIED", 404: "NOT_FOUND", 408: "DEADLINE_EXCEEDED", 409: "ABORTED",
    422: "INVALID_ARGUMENT", 429: "RESOURCE_EXHAUSTED", 499: "CANCELLED", 500: "INTERNAL",
    501: "UNIMPLEMENTED", 502: "UNAVAILABLE", 503: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED",
    505: "INTERNAL", 529: "UNAVAILABLE",
}  # fmt: skip


def test_the_words_of_a_status() -> None:
    for room, words in (
        (openai_chat, CHAT_WORDS), (anthropic, ANTHROPIC_WORDS), (gemini, GEMINI_WORDS),
    ):  # fmt: skip
        assert {status: word_of(room.answer.ERROR_WORDS, status) for status in words} == words


def test_the_status_of_a_word() -> None:
    meant = {
        529: "overloaded_error Overloaded",
        429: "rate_limit_error rate_limit_exceeded RESOURCE_EXHAUSTED insufficient_quota",
        503: "UNAVAILABLE service_unavailable", 504: "DEADLINE_EXCEEDED timeout_error",
        500: "server_error api_error INTERNAL",
        400: "blocked invalid_request_error INVALID_ARGUMENT invalid_prompt", 502: "odd malformed",
    }  # fmt: skip
    for status, words in meant.items():
        assert {status_of(Fault(word, "x")) for word in words.split()} == {status}
        assert {status_of(Fault(word, "x", 418)) for word in words.split()} == {418}


READ = {
    "openai-chat": {
        "stop": "stop complete end_turn eos eos_token", "length": "length max_tokens",
        "tool": "tool_calls function_call tool_call tool_use",
        "filter": "content_filter safety refusal", "sequence": "stop_sequence",
        "context": "model_length",
    },
    "openai-responses": {
        "stop": "completed", "length": "max_output_tokens", "filter": "content_filter",
    },
    "anthropic-messages": {
        "stop": "end_turn", "sequence": "stop_sequence", "length": "max_tokens pause_turn",
        "context": "model_context_window_exceeded", "tool": "tool_use", "filter": "refusal",
    },
    "gemini": {
        "stop": "stop", "length": "max_tokens continuation",
        "filter": "safety recitation language blocklist prohibited_content spii model_armor"
        " image_safety image_prohibited_content image_recitation",
    },
}  # fmt: skip
SAID = {
    "openai-chat": "stop stop length length tool_calls stop content_filter",
    "openai-responses": "completed completed max_output_tokens max_output_tokens completed"
    " completed content_filter",
    "anthropic-messages": "end_turn stop_sequence max_tokens model_context_window_exceeded tool_use"
    " refusal refusal",
    "gemini": "STOP STOP MAX_TOKENS MAX_TOKENS STOP SAFETY SAFETY",
}
REASONS = ("stop", "sequence", "length", "context", "tool", "refusal", "filter")


@pytest.mark.parametrize("name", TRANSLATED)
def test_the_words_for_the_end_of_an_answer(name: str) -> None:
    read = {word: why for why, words in READ[name].items() for word in words.split()}
    assert dict(DIALECTS[name].reader.finishes) == read
    rooms = dict(zip(TRANSLATED, (openai_chat, openai_responses, anthropic, gemini), strict=True))
    said = dict(zip(REASONS, SAID[name].split(), strict=True))
    assert dict(rooms[name].answer.FINISHES) == said
