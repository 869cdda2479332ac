from __future__ import annotations

import pytest

from lightgate.clock.outcome import Outcome
from lightgate.errors import (
    AttemptError,
    Cancelled,
    ConnectionFailed,
    DeadlineMissed,
    EmptyAnswer,
    HttpRefused,
    Malformed,
    NameUnknown,
    PeerReset,
    RateLimited,
    StreamError,
    TlsFailed,
    TooLarge,
    Truncated,
)
from lightgate.route.health.failure import NAMED, STATUSES, Failure, by_status, named_status, what

HARD, SOFT, NONE = "hard", "soft", "none"


def refused(code: int, said: str = "No.") -> tuple[int, AttemptError]:
    return code, HttpRefused(f"host answered {code}: {said}", code=code)


# fault, status, error -> counts, fails over, free
CASES = [
    ("F1", None, ConnectionFailed("Refused."), HARD, True, True),
    ("F2", None, NameUnknown("No such host."), HARD, True, True),
    ("F3", None, TlsFailed("Expired."), HARD, True, True),
    ("F4 before the connection", None, DeadlineMissed("Late.", phase="connect"), HARD, True, True),
    ("F4 after it", None, DeadlineMissed("Late.", phase="first_byte"), HARD, True, False),
    ("F4 total", None, DeadlineMissed("Late.", phase="total"), HARD, True, False),
    ("a long answer", 200, DeadlineMissed("Late.", phase="total"), SOFT, True, False),
    ("F5", 429, RateLimited("Slow down.", retry_after_s=2.0), SOFT, True, False),
    ("F6", 429, RateLimited("Slow down.", retry_after_s=0.0), SOFT, True, False),
    ("F7", 429, RateLimited("Slow down."), SOFT, True, False),
    *(("F8", *refused(code), HARD, True, False) for code in (500, 502, 503, 504, 529, 498)),
    *(("F8", *refused(code), HARD, True, False) for code in (520, 521, 522, 523, 524, 599)),
    ("F9 error in a 200", 200, StreamError("It sent an error."), HARD, True, False),
    ("F9 with code 429", 429, StreamError("It sent an error."), SOFT, True, False),
    ("F9 with code 400", 400, StreamError("It sent an error."), NONE, False, False),
    ("F9 choices: null", 200, EmptyAnswer("Nothing."), SOFT, True, False),
    ("F10 overloaded", 529, StreamError("It sent an error."), HARD, True, False),
    ("F11", 200, Truncated("No end."), HARD, True, False),
    ("F12", 200, PeerReset("Reset."), HARD, True, False),
    ("F13", 200, Malformed("HTML."), HARD, True, False),
    ("F18 above the limit", 200, TooLarge("5 MiB."), SOFT, True, False),
    ("F20", 200, DeadlineMissed("Silence.", phase="idle"), HARD, True, False),
    ("F21", 200, PeerReset("Closed."), HARD, True, False),
    ("F24 abort", 200, StreamError("It ended as aborted."), HARD, True, False),
    ("F35", *refused(503), HARD, True, False),
    ("F36", 200, Cancelled("We closed it."), NONE, False, False),
    ("F37", None, PeerReset("Closed.", early=True), HARD, True, False),
    ("F38 length", 200, PeerReset("Short."), HARD, True, False),
    ("F38 chunk", 200, Malformed("Bad chunk."), HARD, True, False),
    ("bad key", *refused(401), HARD, True, False),
    ("no money", *refused(402), HARD, True, False),
    ("no right", *refused(403), SOFT, True, False),
    ("no such model", *refused(404, "The model `x` does not exist."), HARD, True, False),
    ("Gemini's", *refused(404, "models/x is not found for API version v1"), HARD, True, False),
    ("wrong path", *refused(404, "an HTML page titled 'Not Found'"), SOFT, True, False),
    ("wrong file", *refused(404, "No such File object: file-abc"), NONE, False, False),
    ("wrong id", *refused(404, "Previous response with id 'r' not found."), NONE, False, False),
    *(("client", *refused(code), NONE, False, False) for code in (400, 414, 415, 422, 431)),
    ("too large here", *refused(413), NONE, True, False),
    *(("later", *refused(code), SOFT, True, False) for code in (408, 409, 425)),
    ("Gemini's bad key", *refused(400, "API key not valid."), NONE, True, False),
    ("Anthropic's no money", *refused(400, "Your credit balance is too low"), NONE, True, False),
    ("a redirect", *refused(302), SOFT, True, False),
    ("a teapot", *refused(418), SOFT, True, False),
]


@pytest.mark.parametrize(
    ("status", "error", "counts", "fails_over", "free"),
    [case[1:] for case in CASES],
    ids=[f"{case[0]}-{case[1]}" for case in CASES],
)
def test_every_end_says_what_it_means(
    status: int | None, error: AttemptError, counts: str, fails_over: bool, free: bool
) -> None:
    found = what(Outcome(error.outcome), status, error)
    assert (found.counts, found.fails_over, found.free) == (counts, fails_over, free)


# F22 and F23 (a doubled terminal marker, usage in odd places) end well.
@pytest.mark.parametrize("outcome", [Outcome.OK, Outcome.CANCELLED, Outcome.CUT])
def test_what_is_no_failure_counts_for_nothing(outcome: Outcome) -> None:
    found = what(outcome, 200, None)
    assert found == Failure(kind="ok" if outcome is Outcome.OK else "cancelled")


@pytest.mark.parametrize("phase", ["connect", "first_byte", "idle", "total"])
@pytest.mark.parametrize("status", [None, 200])
def test_a_client_in_a_hurry_opens_nobodys_breaker(phase: str, status: int | None) -> None:
    late = DeadlineMissed("Late.", phase=phase)
    found = what(Outcome.TIMEOUT, status, late, hurried=True)
    assert found.counts == "none"
    assert found.fails_over
    assert what(Outcome.TIMEOUT, status, late).counts != "none"


@pytest.mark.parametrize("status", [429, 401, 402, 403, 503, 529])
def test_the_same_target_is_not_asked_again_at_once(status: int) -> None:
    assert not by_status(status).again


@pytest.mark.parametrize("status", [500, 502, 504, 408, 409])
def test_a_passing_trouble_may_be_tried_again(status: int) -> None:
    assert by_status(status).again


def test_only_what_never_left_is_free() -> None:
    assert not any(failure.free for failure in STATUSES.values())


@pytest.mark.parametrize("status", range(100, 600))
def test_every_status_has_a_meaning(status: int) -> None:
    found = by_status(status)
    assert found.kind
    assert found.fails_over or found.counts == "none"
    if status >= 500:
        assert found.fails_over


@pytest.mark.parametrize(
    ("code", "status", "expected"),
    [
        ("overloaded_error", None, 529),
        ("rate_limit_error", None, 429),
        ("RESOURCE_EXHAUSTED", None, 429),
        ("overloaded_error", 503, 503),
        ("http_429", 429, 429),
        ("something", None, None),
    ],
)
def test_an_error_inside_a_200_has_a_status(
    code: str, status: int | None, expected: int | None
) -> None:
    assert named_status(code, status) == expected


def test_every_named_error_maps_to_a_known_status() -> None:
    assert set(NAMED.values()) <= set(STATUSES)
