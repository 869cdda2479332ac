"""Errors in each dialect's shape."""

from __future__ import annotations

import json

import pytest

from dialect.translate.cases import events
from dialect.translate.tables import WORDS
from lightgate.dialect.errors import Fault, NoThread, fault
from lightgate.dialect.registry import TRANSLATED as DIALECTS
from lightgate.dialect.translate import error_body, error_event, read_request, translator
from lightgate.errors import UsageError

SAID = {"message": 'No such model "x".\n', "code": "model_not_found"}


DETAILS = {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}


def said(status: int) -> Fault:
    return Fault(SAID["code"], SAID["message"], status)


def test_the_shapes_of_a_body() -> None:
    for dialect in ("openai-chat", "openai-responses", "openai-embeddings", "openai-completions"):
        assert json.loads(error_body(dialect, said(404), "model")) == {
            "error": {"type": "invalid_request_error", "param": "model", **SAID}
        }
    assert json.loads(error_body("anthropic-messages", said(404))) == {
        "type": "error",
        "error": {"type": "not_found_error", "message": SAID["message"]},
    }
    assert json.loads(error_body("gemini", said(404))) == {
        "error": {"code": 404, "message": SAID["message"], "status": "NOT_FOUND"}
    }


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (400, ("invalid_request_error", "invalid_request_error", "INVALID_ARGUMENT")),
        (401, ("authentication_error", "authentication_error", "UNAUTHENTICATED")),
        (418, ("invalid_request_error", "invalid_request_error", "INVALID_ARGUMENT")),
        (429, ("rate_limit_error", "rate_limit_error", "RESOURCE_EXHAUSTED")),
        (503, ("server_error", "overloaded_error", "UNAVAILABLE")),
        (504, ("server_error", "timeout_error", "DEADLINE_EXCEEDED")),
        (599, ("server_error", "api_error", "INTERNAL")),
    ],
)
def test_the_words_of_a_status(status: int, words: tuple[str, str, str]) -> None:
    dialects = ("openai-chat", "anthropic-messages", "gemini")
    found = [json.loads(error_body(d, said(status)))["error"] for d in dialects]
    assert (found[0]["type"], found[1]["type"], found[2]["status"]) == words


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_error_event_is_one_event_without_a_terminal_marker(dialect: str) -> None:
    stream = error_event(dialect, said(502))
    ((name, data),) = events(stream)
    body = json.loads(data)
    named = {"openai-responses": b"error", "anthropic-messages": b"error"}
    assert name == named.get(dialect, b"")
    if dialect == "openai-responses":
        assert body == {"type": "error", "param": None, "sequence_number": 0, **SAID}
    else:
        assert body == json.loads(error_body(dialect, said(502)))


def test_every_status_has_a_word_in_every_dialect() -> None:
    assert all(all(words) for words in WORDS.values())


def test_there_is_no_translation_of_embeddings() -> None:
    with pytest.raises(UsageError, match="openai-embeddings"):
        translator("openai-embeddings", "gemini", model="m", id="i", created=0)


def test_a_code_in_the_details_of_anthropics_errors_stays() -> None:
    """Its SDKs act on it: after this one they send the whole conversation."""
    body = {
        "type": "error",
        "error": {
            "type": "invalid_request_error",
            "message": "Threads are off.",
            "details": DETAILS,
        },
    }
    found = fault(400, json.dumps(body).encode())
    heard = Fault(found.code, found.message, 400, found.words._replace(family="anthropic"))
    told = json.loads(error_body("anthropic-messages", heard))["error"]
    assert told["details"] == DETAILS


def test_our_own_refusal_of_a_kept_conversation_has_the_same_code() -> None:
    asked = {
        "model": "m",
        "max_tokens": 9,
        "thread": {"type": "continue", "previous_message_id": "msg_1"},
        "messages": [{"role": "user", "content": "Hi."}],
    }
    with pytest.raises(NoThread) as refused:
        read_request("anthropic-messages", json.dumps(asked).encode(), untranslatable="drop")
    ours = Fault(refused.value.label, refused.value.message, 400)
    told = json.loads(error_body("anthropic-messages", ours))["error"]
    assert told["details"] == DETAILS
