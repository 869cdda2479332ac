"""Paths: which endpoint each is, and the methods that it answers to."""

from __future__ import annotations

from typing import Any

import pytest

from lightgate.gateway.cache.memory import _CUT_SHORT
from lightgate.gateway.exchange.attempt import _WRONG
from lightgate.gateway.request.endpoint import dialect_of, find

READS = (b"GET", b"HEAD")


def row(path: str) -> tuple[Any, ...] | None:
    found = find(path.encode())
    if found is None:
        return None
    one = found.endpoint
    return (one.verb, one.dialect, one.kind, one.model, one.stream, one.id, found.methods)


@pytest.mark.parametrize(
    ("path", "dialect", "kind", "stream"),
    [
        ("/v1/chat/completions", "openai-chat", "chat", None),
        ("/v1/completions", "openai-completions", "completion", None),
        ("/v1/responses", "openai-responses", "responses", None),
        ("/v1/responses/input_tokens", "openai-input-tokens", "count", None),
        ("/v1/embeddings", "openai-embeddings", "embedding", None),
        ("/v1/messages", "anthropic-messages", "chat", None),
        ("/v1/messages/count_tokens", "anthropic-count-tokens", "count", None),
        ("/v1/audio/speech", "openai-speech", "speech", True),
        ("/v1/audio/transcriptions", "openai-transcriptions", "transcription", None),
        ("/v1/audio/translations", "openai-translations", "translation", None),
    ],
)
def test_calls(path: str, dialect: str, kind: str, stream: bool | None) -> None:
    expected = ("call", dialect, kind, None, stream, None, (b"POST",))
    assert row(path) == row(f"{path}/") == row(f"{path}?x=y") == expected
    if not path.endswith(("input_tokens",)):
        assert row(path.removeprefix("/v1")) == expected
    found = find(path.encode())
    assert found is not None
    assert found.endpoint.free is (kind == "count")
    assert found.endpoint.tokens is (kind in {"chat", "completion", "responses"})
    sound = {"speech": "speech", "transcription": "form", "translation": "form"}.get(kind, "")
    assert found.endpoint.sound == sound


@pytest.mark.parametrize("root", ["/v1beta", "/v1"])
@pytest.mark.parametrize(
    ("verb", "dialect", "kind", "stream"),
    [
        ("generateContent", "gemini", "chat", False),
        ("streamGenerateContent", "gemini", "chat", True),
        ("countTokens", "gemini-count-tokens", "count", False),
        ("embedContent", "gemini-embed", "embedding", False),
        ("batchEmbedContents", "gemini-embed-batch", "embedding", False),
    ],
)
def test_verbs_of_google(root: str, verb: str, dialect: str, kind: str, stream: bool) -> None:
    path = f"{root}/models/lab/a%20b:{verb}"
    assert row(path) == ("call", dialect, kind, "lab/a b", stream, None, (b"POST",))
    for query, array in (
        ("", stream),
        ("?alt=sse", False),
        ("?x=1&alt=sse", False),
        ("?alt=ss", stream),
    ):
        found = find(f"{path}{query}".encode())
        assert found is not None
        assert found.endpoint.array is array


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/v1/models", ("models", "openai-chat", "chat", None, None, None, READS)),
        ("/models", ("models", "openai-chat", "chat", None, None, None, READS)),
        ("/v1beta/models", ("models", "gemini", "chat", None, None, None, READS)),
        ("/v1/models/lab/m", ("model", "openai-chat", "chat", "lab/m", None, None, READS)),
        ("/v1beta/models/m", ("model", "gemini", "chat", "m", None, None, READS)),
        ("/v1/models/m:free", ("model", "openai-chat", "chat", "m:free", None, None, READS)),
        ("/v1/usage", ("usage", "openai-chat", "chat", None, None, None, READS)),
        ("/health", ("ready", "openai-chat", "chat", None, None, None, READS)),
        ("/health/ready", ("ready", "openai-chat", "chat", None, None, None, READS)),
        ("/health/live", ("live", "openai-chat", "chat", None, None, None, READS)),
        ("/v1/requests/r-1", ("request", "openai-chat", "chat", None, None, "r-1", READS)),
        (
            "/v1/responses/r_1",
            ("response", "openai-responses", "chat", None, None, "r_1", (*READS, b"DELETE")),
        ),
        (
            "/v1/responses/r_1/input_items",
            ("response_items", "openai-responses", "chat", None, None, "r_1", READS),
        ),
        (
            "/v1/responses/r_1/cancel",
            ("response_cancel", "openai-responses", "chat", None, None, "r_1", (b"POST",)),
        ),
    ],
)
def test_what_is_read(path: str, expected: tuple[Any, ...]) -> None:
    assert row(path) == expected


@pytest.mark.parametrize(
    "path",
    [
        "", "//", "/v2/models", "/v1/models/..", "/v1/models/a//b", "/v1/models/%00",
        "/v1/models/m:unknownVerb", "/v1beta/models/../x:generateContent", "/v1/requests/",
        "/v1/requests/" + "x" * 129, "/v1/responses/" + "x" * 201, "/v1/responses/a/b",
        "/v1/models/" + "x" * 257, "/metrics", "/chat", "/v1/v1/models",
    ],
)  # fmt: skip
def test_what_is_nothing(path: str) -> None:
    assert row(path) is None


@pytest.mark.parametrize(
    ("path", "dialect"),
    [
        ("/v1beta/x", "gemini"), ("/v1/models/m:generateContent", "gemini"),
        ("/v1/models/m:odd?x", "gemini"), ("/v1/models/m", "openai-chat"),
        ("/v1/messages", "anthropic-messages"), ("/messages/x", "anthropic-messages"),
        ("/v1/x", "openai-chat"), ("/", "openai-chat"),
    ],
)  # fmt: skip
def test_the_dialect_of_an_error_about_a_path(path: str, dialect: str) -> None:
    assert dialect_of(path.encode()) == dialect


def test_answers_that_were_cut_short_are_not_kept() -> None:
    assert set(_CUT_SHORT) == {
        "content_filter", "safety", "recitation", "blocklist", "prohibited_content", "spii",
        "error", "pause_turn", "incomplete", "failed", "cancelled", "malformed_function_call",
        "abort",
    }  # fmt: skip
    assert set(_WRONG) == {400, 404, 422}


STORED = [
    ("files", "openai-chat", ("", (*READS, b"POST")), "files"),
    ("batches", "openai-chat", ("", (*READS, b"POST")), "batches"),
    ("messages/batches", "anthropic-messages", ("", (*READS, b"POST")), "message_batches"),
    ("files", "openai-chat", ("/x-1", (*READS, b"DELETE")), "file"),
    ("files", "openai-chat", ("/x-1/content", READS), "file_content"),
    ("batches", "openai-chat", ("/x-1", READS), "batch"),
    ("batches", "openai-chat", ("/x-1/cancel", (b"POST",)), "batch_cancel"),
    ("messages/batches", "anthropic-messages", ("/x-1", (*READS, b"DELETE")), "message_batch"),
    ("messages/batches", "anthropic-messages", ("/x-1/cancel", (b"POST",)), "message_batch_cancel"),
    ("messages/batches", "anthropic-messages", ("/x-1/results", READS), "message_batch_results"),
]


@pytest.mark.parametrize(("folder", "dialect", "rest", "verb"), STORED)
def test_files_and_batches(
    folder: str, dialect: str, rest: tuple[str, tuple[bytes, ...]], verb: str
) -> None:
    end, methods = rest
    found = find(f"/v1/{folder}{end}".encode())
    assert found is not None
    assert (found.endpoint.verb, found.endpoint.dialect, found.methods) == (verb, dialect, methods)
    assert found.endpoint.id == ("x-1" if end else None)


@pytest.mark.parametrize("path", ["/v1/files/x/cancel", "/v1/batches/x/results", "/v1/batches/x/y"])
def test_what_no_file_and_no_batch_has(path: str) -> None:
    assert find(path.encode()) is None
