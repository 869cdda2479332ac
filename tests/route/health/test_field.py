"""Refusals that another target may not share, in the words of real providers."""

from __future__ import annotations

import pytest

from lightgate.clock.outcome import Outcome
from lightgate.errors import NO_WORDS, ErrorWords, HttpRefused
from lightgate.route.health.failure import CLIENT, FIELD, by_status, what
from lightgate.route.health.field import refused_field


@pytest.mark.parametrize(
    ("status", "message", "words", "field"),
    [
        (
            400,
            (
                "Unsupported parameter: 'max_tokens' is not supported with this model. Use"
                " 'max_completion_tokens' instead."
            ),
            ErrorWords("unsupported_parameter", "invalid_request_error", "max_tokens"),
            "max_tokens",
        ),
        (
            400,
            "Unsupported value: 'messages[0].role' does not support 'developer' with this model.",
            ErrorWords("unsupported_value", "invalid_request_error", "messages[0].role"),
            "messages[0].role",
        ),
        (
            422,
            "Extra inputs are not permitted",
            ErrorWords("extra_forbidden", "", "stream_options.include_usage"),
            "stream_options.include_usage",
        ),
        (400, "This response_format type is unavailable now", NO_WORDS, "response_format"),
        (
            400,
            "messages[0].role: unknown variant `developer`, expected one of `system`, `user`",
            NO_WORDS,
            "developer",
        ),
        (400, "Unrecognized request argument supplied: foo_bar", NO_WORDS, "foo_bar"),
        (400, "'logprobs' is not supported with this model", NO_WORDS, "logprobs"),
        (400, "This model does not support image input.", NO_WORDS, "image"),
        (400, "Thinking is not supported for this model.", NO_WORDS, "thinking"),
        (
            400,
            'Invalid JSON payload received. Unknown name "topk" at generation_config',
            NO_WORDS,
            "topk",
        ),
        (
            400,
            "This model's maximum context length is 8192 tokens.",
            ErrorWords("context_length_exceeded"),
            "the length of the prompt",
        ),
        (400, "prompt is too long: 210000 tokens > 200000", NO_WORDS, "the length of the prompt"),
        (
            400,
            "max_tokens is too large: 100000. This model supports at most 16384.",
            NO_WORDS,
            "max_tokens",
        ),
        (413, "Request exceeds the maximum size", NO_WORDS, "the size of the request"),
    ],
)
def test_a_refusal_names_what_another_target_may_take(
    status: int, message: str, words: ErrorWords, field: str
) -> None:
    assert refused_field(status, message, words) == field
    assert by_status(status, message, words) is FIELD
    error = HttpRefused(f"x answered {status}: {message}", code=status, words=words)
    assert what(Outcome.HTTP_ERROR, status, error) is FIELD


@pytest.mark.parametrize(
    ("status", "message", "words"),
    [
        (400, "Invalid value for 'temperature': must be at most 2.", NO_WORDS),
        (400, "We could not parse the JSON body of your request.", NO_WORDS),
        (400, "'messages' is a required property", ErrorWords(None, "invalid_request_error")),
        (422, "Field required", ErrorWords("missing", "", "messages")),
        (400, "This is not supported.", NO_WORDS),  # nothing is named
        (404, "The field 'x' is not supported", NO_WORDS),
        (500, "The field 'x' is not supported", NO_WORDS),
        (400, "Your request was rejected as a result of our safety system.", NO_WORDS),
    ],
)
def test_a_wrong_request_is_wrong_everywhere(status: int, message: str, words: ErrorWords) -> None:
    assert refused_field(status, message, words) == ""
    if status in {400, 422}:
        assert by_status(status, message, words) is CLIENT


def test_it_says_nothing_about_the_target() -> None:
    assert FIELD.counts == "none"
    assert FIELD.fails_over
    assert not FIELD.again
    assert not FIELD.free
