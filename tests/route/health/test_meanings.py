"""The tables of failures, policies and plans, row by row."""

from __future__ import annotations

from typing import Any

import pytest

from lightgate.clock.outcome import Outcome
from lightgate.errors import (
    Cancelled,
    DeadlineMissed,
    EmptyAnswer,
    ErrorWords,
    Malformed,
    NameUnknown,
    PeerReset,
    StreamError,
    TlsFailed,
    TooLarge,
    Truncated,
)
from lightgate.route.health.failure import STATUSES, Failure, by_status, named_status, what
from lightgate.route.health.field import refused_field
from lightgate.route.plan.plan import Plan, Step
from lightgate.route.plan.policy import ASKABLE, BY_FORM, POLICIES, Policy, policy_of


def facts(found: Failure) -> tuple[str, str, bool, bool, bool]:
    return found.kind, found.counts, found.fails_over, found.again, found.free


# kind, what counts for the breaker, whether another target follows, whether the same one may
MEANT = {
    400: ("client", "none", False, False), 401: ("credentials", "hard", True, False),
    402: ("payment", "hard", True, False), 403: ("forbidden", "soft", True, False),
    404: ("not_found", "soft", True, False), 405: ("unsupported", "soft", True, False),
    408: ("request_timeout", "soft", True, True), 409: ("conflict", "soft", True, True),
    410: ("model_missing", "hard", True, False), 413: ("field", "none", True, False),
    414: ("client", "none", False, False), 415: ("client", "none", False, False),
    422: ("client", "none", False, False), 425: ("conflict", "soft", True, True),
    429: ("rate_limited", "soft", True, False), 431: ("client", "none", False, False),
    498: ("overloaded", "hard", True, False), 500: ("server_error", "hard", True, True),
    501: ("unsupported", "soft", True, False), 502: ("bad_gateway", "hard", True, True),
    503: ("overloaded", "hard", True, False), 504: ("bad_gateway", "hard", True, True),
    508: ("loop", "hard", True, False), 520: ("bad_gateway", "hard", True, True),
    521: ("bad_gateway", "hard", True, True), 522: ("bad_gateway", "hard", True, True),
    523: ("bad_gateway", "hard", True, True), 524: ("bad_gateway", "hard", True, True),
    529: ("overloaded", "hard", True, False), 418: ("odd_status", "soft", True, False),
    499: ("odd_status", "soft", True, False), 505: ("server_error", "hard", True, True),
    599: ("server_error", "hard", True, True), 300: ("odd_status", "soft", True, False),
}  # fmt: skip


@pytest.mark.parametrize("status", MEANT)
def test_what_a_status_means(status: int) -> None:
    assert facts(by_status(status)) == (*MEANT[status], False)
    assert set(STATUSES) <= set(MEANT)


@pytest.mark.parametrize(
    ("status", "message", "kind"),
    [
        (400, "Invalid API key.", "account"), (400, "credit balance is low", "account"),
        (400, "see billing", "account"), (400, "User location is not supported", "account"),
        (401, "Invalid API key.", "credentials"), (404, "The model is gone", "model_missing"),
        (404, "no such deployment", "model_missing"), (404, "engines are gone", "model_missing"),
        (404, "previous_response not found", "client"), (404, "file not found", "client"),
        (404, "Response with id x", "client"), (404, "Item with id x", "client"),
        (404, "conversation x", "client"), (404, "container x", "client"),
        (404, "vector_store x", "client"), (404, "cachedContent x", "client"),
        (404, "Prompt with id x", "client"), (404, "assistants", "client"),
        (404, "threads", "client"), (404, "batches", "client"), (404, "profile", "not_found"),
    ],
)  # fmt: skip
def test_a_sentence_says_more_than_its_status(status: int, message: str, kind: str) -> None:
    assert by_status(status, message).kind == kind


NAMES = {
    400: "invalid_request_error context_length_exceeded INVALID_ARGUMENT FAILED_PRECONDITION",
    401: "authentication_error invalid_api_key UNAUTHENTICATED", 402: "billing_error",
    403: "permission_error PERMISSION_DENIED", 404: "not_found_error model_not_found NOT_FOUND",
    413: "request_too_large",
    429: "rate_limit_error rate_limit_exceeded insufficient_quota RESOURCE_EXHAUSTED",
    500: "api_error server_error internal_error INTERNAL", 503: "UNAVAILABLE",
    504: "timeout_error DEADLINE_EXCEEDED", 529: "overloaded_error",
}  # fmt: skip


def test_what_a_word_means() -> None:
    for status, words in NAMES.items():
        for word in words.split():
            assert named_status(word) == named_status("x", None, word) == status
            assert named_status(word, 418) == 418
    assert named_status("unheard of") is None


@pytest.mark.parametrize(
    ("error", "meant"),
    [
        (NameUnknown("x"), ("dns", "hard", True, False, True)),
        (TlsFailed("x"), ("tls", "hard", True, False, True)),
        (PeerReset("x", early=True), ("reset", "hard", True, True, False)),
        (Truncated("x"), ("truncated", "hard", True, True, False)),
        (TooLarge("x"), ("too_large", "soft", True, False, False)),
        (Malformed("x"), ("malformed", "hard", True, True, False)),
        (EmptyAnswer("x"), ("empty", "soft", True, True, False)),
        (StreamError("x"), ("stream_error", "hard", True, True, False)),
    ],
)
def test_what_an_error_means(error: Any, meant: tuple[Any, ...]) -> None:
    assert facts(what(Outcome.STREAM_ERROR, None, error)) == meant
    assert facts(what(Outcome.STREAM_ERROR, 200, error)) == meant
    assert what(Outcome.STREAM_ERROR, 401, error).kind == "credentials"


def test_what_is_no_failure() -> None:
    assert facts(what(Outcome.OK, 200, None)) == ("ok", "none", False, False, False)
    for error in (None, Cancelled("x")):
        ended = what(Outcome.CANCELLED, None, error)
        assert facts(ended) == ("cancelled", "none", False, False, False)


@pytest.mark.parametrize(
    ("phase", "status", "hurried", "meant"),
    [
        ("connect", None, False, ("connect_timeout", "hard", True, False, True)),
        ("connect", None, True, ("hurried", "none", True, False, True)),
        ("first_byte", None, False, ("first_byte_timeout", "hard", True, False, False)),
        ("idle", 200, False, ("idle_timeout", "hard", True, False, False)),
        ("total", None, False, ("timeout", "hard", True, False, False)),
        ("total", 200, False, ("timeout", "soft", True, False, False)),
        ("idle", 200, True, ("hurried", "none", True, False, False)),
        ("first_byte", None, True, ("hurried", "none", True, False, False)),
    ],
)
def test_what_a_missed_deadline_means(
    phase: Any, status: int | None, hurried: bool, meant: tuple[Any, ...]
) -> None:
    error = DeadlineMissed("x", phase=phase)
    assert facts(what(Outcome.TIMEOUT, status, error, hurried=hurried)) == meant


@pytest.mark.parametrize(
    "code",
    [
        "unsupported_parameter", "unsupported_value", "unknown_parameter", "extra_forbidden",
        "unsupported_field", "unsupported_content", "unsupported", "not_supported",
        "unsupported_file_type", "unrecognized_parameter", "context_length_exceeded",
    ],
)  # fmt: skip
def test_words_for_a_field_that_is_not_taken(code: str) -> None:
    length = code == "context_length_exceeded"
    for status, found in ((400, "top_k"), (422, "top_k"), (413, "the size of the request")):
        said = refused_field(status, "x", ErrorWords(code=code, param="top_k"))
        assert said == ("the length of the prompt" if length else found)
    assert refused_field(500, "x", ErrorWords(code=code, param="top_k")) == ""
    assert refused_field(None, "x", ErrorWords(code=code, param="top_k")) == ""
    assert refused_field(400, "x", ErrorWords(code="other", param="top_k")) == ""
    if not length:
        assert refused_field(400, "see `Top_P` here", ErrorWords(code=code)) == "top_p"


@pytest.mark.parametrize(
    ("message", "found"),
    [
        ("the prompt is too long", "the length of the prompt"),
        ("maximum context is 9", "the length of the prompt"),
        ("max_tokens is too large", "max_tokens"),
        ("max_completion_tokens must be at most 5", "max_tokens"),
        ("'logit_bias' is not supported", "logit_bias"),
        ('unknown field "top_k"', "top_k"),
        ("Bad value", ""),
    ],
)
def test_sentences_for_a_field_that_is_not_taken(message: str, found: str) -> None:
    assert refused_field(400, message, ErrorWords()) == found


# Policies


def test_the_rows_of_policies() -> None:
    plain = {
        "order": "form", "reason": "by form", "tail": False, "ttft": 1.0, "decode": 1.0,
        "most": None, "failure": 1.0, "money": "none", "levels": False, "finish": "first",
        "sticky": 0.0, "hedges": True, "silence": 1.0, "second": 60.0,
    }  # fmt: skip
    changes: dict[str, dict[str, Any]] = {
        "chat": {"tail": True, "ttft": 3.3},
        "fastest": {"finish": "whole"},
        "cheapest": {"money": "first", "levels": True},
        "balanced": {"money": "beside", "second": 5.0},
        "voice": {"tail": True, "most": 20},
        "coding": {"ttft": 0.3, "finish": "whole"},
        "agent": {"failure": 2.0, "finish": "whole", "sticky": 0.1},
        "batch": {"money": "first", "finish": "whole", "hedges": False},
        "ordered": {"order": "configured", "reason": "configured order"},
        "weighted": {"order": "drawn", "reason": "drawn by weight"},
        "cascade": {"order": "tiers"},
    }
    expected = {name: Policy(name=name, **plain | more) for name, more in changes.items()}  # type: ignore[arg-type]
    assert dict(POLICIES) == expected
    assert BY_FORM == (
        "chat",
        "fastest",
        "cheapest",
        "balanced",
        "voice",
        "coding",
        "agent",
        "batch",
    )
    assert (*BY_FORM, "ordered", "weighted") == ASKABLE
    assert policy_of("cascade") == policy_of("unheard of") == POLICIES["ordered"]
    assert policy_of("voice") == POLICIES["voice"]


# Plans in words


def test_a_plan_tells_its_story() -> None:
    steps = (
        Step("a", 0, None, "primary"), Step("b", 800_000_000, None, "hedge"),
        Step("c", None, None, "fallback"),
    )  # fmt: skip
    plan = Plan(steps, "fastest", "by form")
    assert plan.text == "a ~800ms b > c"
    assert plan.story == "a ~800ms b > c (by form)"
    assert plan.overlaps
    learned = Plan((steps[0], Step("b", 74_247_400, None, "hedge")), "fastest", "by form")
    assert learned.text == "a ~74.2ms b"
    told = Plan(steps[:1], "fastest", "by form", predicted_ttft_ns=250_400_000, runner_up="b")
    assert told.story == "a (by form, first token in 250 ms, next b)"
    assert not told.overlaps
    race = Plan((Step("a", 0, None, "racer"), Step("b", 0, None, "racer")), "x", "y")
    assert (race.text, race.overlaps) == ("a + b", True)
    assert not Plan((steps[0], steps[2]), "x", "y").overlaps
    assert (race.reserve_nano, race.own_nano, race.finish, race.steps[0].tier) == (
        0.0,
        0.0,
        "first",
        0,
    )
