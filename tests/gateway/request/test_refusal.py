"""Refusals: their status, their words and their headers, by what happened."""

from __future__ import annotations

import json

import pytest

from lightgate.errors import (
    NO_WORDS,
    AttemptError,
    CredentialsError,
    DeadlineMissed,
    EmptyAnswer,
    ErrorWords,
    GatewayBehind,
    HttpRefused,
    Malformed,
    NoDescriptor,
    PeerReset,
    RateLimited,
    StreamError,
    TooLarge,
    Unreachable,
    UsageError,
)
from lightgate.gateway.aside.aside import AsideFailed
from lightgate.gateway.request.refusal import (
    OURS_S,
    UNAUTHORIZED,
    Refusal,
    Refusing,
    broken_off,
    of_attempts,
    of_error,
    status_of,
)
from lightgate.wire.origin import split_url

WORDS = ErrorWords(code="c", kind="k", param="p", family="openai", details="")
GOOGLES = ErrorWords(code=3, kind="K", param="", family="gemini", details="{}")


class Sent:
    """Keeps what was sent."""

    status = 0
    headers = b""
    body = b""

    def whole(self, status: int, headers: bytes, body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body


def refused(code: int, words: ErrorWords = NO_WORDS, after: float | None = None) -> HttpRefused:
    return HttpRefused(f"said {code}", code=code, words=words, retry_after_s=after)


def said(code: int | None = None, word: str = "", words: ErrorWords = NO_WORDS) -> StreamError:
    return StreamError("inside", code=code, word=word, words=words)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        *[(refused(code), code) for code in (400, 404, 413, 415, 422, 429, 508)],
        *[(refused(code), 503) for code in (498, 503, 529)],
        *[(refused(code), 502) for code in (401, 402, 403, 405, 409, 418, 500, 502, 504)],
        (RateLimited("x"), 429),
        (said(400), 400),
        (said(529), 503),
        (said(None, "overloaded_error"), 503),
        (said(None, "", ErrorWords(kind="overloaded_error")), 503),
        (said(), 502),
        (TooLarge("x"), 502),
        (Malformed("x"), 502),
        (EmptyAnswer("x"), 502),
        (PeerReset("x"), 502),
        (Unreachable("x"), 502),
        (NoDescriptor("x"), 503),
        (GatewayBehind("x"), 503),
        (DeadlineMissed("x", phase="idle"), 504),
    ],
)
def test_the_status_of_an_attempts_error(error: AttemptError, status: int) -> None:
    assert status_of(error) == status
    assert of_attempts([("a/m", error)]).status == status
    assert broken_off("a/m", error).status == status


@pytest.mark.parametrize("error", [NoDescriptor("no file"), GatewayBehind("too busy")])
def test_a_shortage_of_our_own_may_be_tried_again_soon(error: AttemptError) -> None:
    """Clients were told not to try again, and not when."""
    refusal = of_attempts([("a/m", refused(500, after=7.0)), ("b/m", error)])
    assert (refusal.status, refusal.retry_after_s, refusal.exhausted) == (503, OURS_S, False)
    assert of_error(AsideFailed("full")).retry_after_s == OURS_S
    assert of_error(UsageError("wrong")).retry_after_s is None


@pytest.mark.parametrize("code", [400, 404, 413, 415, 422])
def test_one_providers_verdict_on_the_request_is_the_whole_sentence(code: int) -> None:
    assert of_attempts([("a/m", refused(code, WORDS, 9.0))], 3.0) == Refusal(
        status=code, message=f"said {code}", code="http_error", words=WORDS, exhausted=True
    )


def test_every_target_that_failed_is_named_and_the_last_one_decides() -> None:
    failures = [("a/m", refused(500, after=7.0)), ("b/m", RateLimited("slow", retry_after_s=4.0))]
    assert of_attempts(failures) == Refusal(
        status=429,
        message="No target could answer. a/m: said 500; b/m: slow",
        code="rate_limited",
        retry_after_s=4.0,
        exhausted=True,
    )
    assert of_attempts(failures, 2.0).retry_after_s == 2.0
    assert of_attempts(failures, 5.0).retry_after_s == 4.0
    assert of_attempts([("a/m", PeerReset("gone"))], 5.0).retry_after_s == 5.0
    assert of_attempts([("a/m", PeerReset("gone"))]).retry_after_s is None
    # two providers say that the request is wrong: no wait will help
    twice = of_attempts([("a/m", refused(500, after=7.0)), ("b/m", refused(400, after=1.0))], 2.0)
    assert (twice.status, twice.retry_after_s) == (400, None)
    assert twice.message == "No target could answer. a/m: said 500; b/m: said 400"


@pytest.mark.parametrize(
    ("url", "said", "told"),
    [
        ("http://10.0.0.7:9000", "10.0.0.7:9000 closed it.", "a/m closed it."),
        ("http://10.0.0.7:9000", "http://10.0.0.7:9000 refused it.", "a/m refused it."),
        ("https://x.test", "The name x.test is unknown.", "a/m: The name a/m is unknown."),
        ("https://llm.corp.test", "llm.corp.test: too much.", "a/m: too much."),
        ("http://[fd00::7]:81", "[fd00::7]:81 did not end.", "a/m did not end."),
        ("http://10.0.0.7", "110.0.0.70 is another.", "a/m: 110.0.0.70 is another."),
    ],
)  # fmt: skip
def test_a_client_reads_of_a_target_and_not_of_its_address(url: str, said: str, told: str) -> None:
    origin, _ = split_url(url)
    refusal = of_attempts([("a/m", PeerReset(said))], None, None, {"a/m": origin})
    assert refusal.message == f"No target could answer. {told}"
    assert broken_off("a/m", PeerReset(said), origin).message == f"The answer broke off. {told}"
    # The sentence of a provider is its own, behind the name.
    own = HttpRefused(f"{origin.authority} answered 400: see {url}/help", code=400)
    assert broken_off("a/m", own, origin).message == (
        f"The answer broke off. a/m answered 400: see {url}/help"
    )
    alone = of_attempts([("a/m", own)], None, None, {"a/m": origin})
    assert alone.message == f"a/m answered 400: see {url}/help"


@pytest.mark.parametrize("code", [401, 403])
def test_a_refused_key_of_the_gateway_is_named_for_its_owner(code: int) -> None:
    advice = " The gateway's own key was refused there, not yours: check {} on the gateway."
    failures = [("b/m", refused(code)), ("a/m", refused(code)), ("c/m", refused(500))]
    told = of_attempts(failures, None, {"b": "B_KEY", "c": "C_KEY"}).message
    assert told == (
        f"No target could answer. b/m: said {code}; a/m: said {code}; c/m: said 500"
        + advice.format("B_KEY, the key of a")
    )
    assert of_attempts([("c/m", refused(402))]).message == "No target could answer. c/m: said 402"
    assert of_attempts([("c/m", said(401))]).message == "No target could answer. c/m: inside"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (refused(400, WORDS), WORDS),
        (refused(429, GOOGLES), GOOGLES),
        (refused(401, WORDS), NO_WORDS),  # about the gateway's account
        (refused(499, WORDS), NO_WORDS),
        (refused(500, WORDS), WORDS),  # said as 502
        (refused(500, GOOGLES), GOOGLES._replace(kind="")),
        (refused(503, GOOGLES), GOOGLES),
        (said(None, "x", WORDS), WORDS),
        (said(None, "x", GOOGLES), GOOGLES._replace(kind="")),
        (said(402, "x", WORDS), NO_WORDS),
        (PeerReset("x"), NO_WORDS),
    ],
)
def test_a_providers_words_are_told_unless_they_are_about_the_gateways_account(
    error: AttemptError, words: ErrorWords
) -> None:
    assert of_attempts([("a/m", error)]).words == words
    assert broken_off("a/m", error).words == words


def test_the_rest_of_an_answer_is_refused_with_its_target() -> None:
    assert broken_off("a/m", PeerReset("It broke.")) == Refusal(
        status=502, message="The answer broke off. a/m: It broke.", code="reset"
    )


def test_errors_of_our_own_keep_their_status_and_their_hint() -> None:
    assert of_error(UsageError("Wrong.", hint="Do this."), param="n") == Refusal(
        status=400, message="Wrong. Do this.", code="usage", param="n"
    )
    assert of_error(CredentialsError("No key.")) == Refusal(
        status=401, message="No key.", code="credentials"
    )
    assert str(Refusing(UNAUTHORIZED)) == UNAUTHORIZED.message
    assert (UNAUTHORIZED.status, UNAUTHORIZED.code) == (401, "invalid_api_key")


@pytest.mark.parametrize(
    ("after", "line"),
    [
        (None, b""),
        (0.0, b"retry-after: 1\r\n"),
        (0.2, b"retry-after: 1\r\n"),
        (1.0, b"retry-after: 1\r\n"),
        (1.1, b"retry-after: 2\r\n"),
        (59.0, b"retry-after: 59\r\n"),
    ],
)
def test_a_wait_is_told_in_whole_seconds_and_never_too_short(
    after: float | None, line: bytes
) -> None:
    sent = Sent()
    Refusal(status=429, message="m", code="c", retry_after_s=after).send(sent, "openai-chat")
    assert (sent.status, sent.headers) == (429, b"content-type: application/json\r\n" + line)


def test_the_lines_of_a_refusal() -> None:
    sent = Sent()
    one = Refusal(
        status=405, message="Not so.", code="method", param="x", exhausted=True, allow=b"GET, HEAD"
    )
    one.send(sent, "openai-chat", b"x-request-id: r\r\n")
    assert sent.headers == (
        b"content-type: application/json\r\nx-request-id: r\r\nx-should-retry: false\r\n"
        b"allow: GET, HEAD\r\n"
    )
    assert json.loads(sent.body)["error"]["message"] == "Not so."
    assert json.loads(sent.body)["error"]["param"] == "x"
    assert (one.fault.code, one.fault.message, one.fault.status) == ("method", "Not so.", 405)
    assert one.event("openai-chat").startswith(b"data: ")
    assert b"Not so." in one.event("anthropic-messages")
