"""A call, read by read: every instant is the test's own, so every mark is known."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from lightgate.clock.marks import Marks
from lightgate.clock.outcome import Outcome
from lightgate.dialect.errors import Fault
from lightgate.dialect.kinds import AUDIO, REASONING, TEXT
from lightgate.dialect.request import Message, Request
from lightgate.errors import (
    Cancelled,
    ErrorWords,
    HttpRefused,
    Malformed,
    PeerReset,
    RateLimited,
    StreamError,
    TooLarge,
    Truncated,
)
from lightgate.provider import call as call_module
from lightgate.provider.answer import Answer, read_answer, reads
from lightgate.provider.call import (
    LONGEST_LIMIT,
    MOST_LIMITS,
    REFUSAL_LIMIT,
    Call,
    Called,
)
from lightgate.provider.catalogue import Provider
from lightgate.provider.prepare import prepare
from lightgate.provider.secret import Secret
from lightgate.provider.target import Target
from lightgate.wire.client.roundtrip import Deadlines
from lightgate.wire.sse import EVENT_LIMIT

if TYPE_CHECKING:
    from collections.abc import Callable

    from lightgate.errors import AttemptError
    from lightgate.wire.sse import Event

KEY = "sk-canary-0123456789"
URL = "http://api.example.com/v1"
REQUEST = Request(
    model="m", messages=(Message(role="user", content="hi"),), max_tokens=5, stream=True
)
TYPE = (b"content-type", b"text/event-stream; charset=utf-8")


def event(value: object) -> bytes:
    return b"data: " + msgspec.json.encode(value) + b"\n\n"


def chunk(finish: str | None = None, usage: object = None, **delta: object) -> bytes:
    body: dict[str, Any] = {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
    return event(body | ({} if usage is None else {"usage": usage}))


DONE = b"data: [DONE]\n\n"


class Owned(Call):
    """A call that tells its owner, as the gateway's do."""

    ends: list[Called]
    defects: list[BaseException]
    crowds: int

    def over(self, called: Called) -> None:
        self.ends.append(called)

    def broke(self, defect: BaseException) -> None:
        self.defects.append(defect)

    def crowded(self) -> None:
        self.crowds += 1


class Heard:
    """One call whose reads are made by the test."""

    def __init__(
        self,
        *,
        streamed: bool = True,
        kernel: bool = False,
        key: bool = True,
        asked: Request = REQUEST,
    ) -> None:
        row = Provider(name="x", title="X", base_url=URL, auth="bearer" if key else "none")
        target = Target(
            name="x/m", provider=row, model="m", base_url=URL, api_key=Secret(KEY) if key else None
        )
        request = msgspec.structs.replace(asked, stream=streamed)
        self.marks = Marks()
        self.handed: list[tuple[bytes, list[Event], int]] = []
        self.passed: list[bytes] = []
        self.call = Owned(
            prepare(target, request), self.marks, lambda *one: self.handed.append(one)
        )
        self.call._kernel = kernel
        self.ends: list[Called] = []
        self.call.ends = self.ends
        self.call.defects = []
        self.call.crowds = 0

    def head(self, status: int = 200, *more: tuple[bytes, bytes]) -> Heard:
        self.call.on_sent(5)
        self.call.on_head(status, [TYPE, *more], 10)
        return self

    def typed(self, kind: bytes, status: int = 200) -> Heard:
        """The head of an answer of another type."""
        self.call.on_sent(5)
        self.call.on_head(status, [(b"content-type", kind)], 10)
        return self

    def end(self, failure: AttemptError | None = None) -> Called:
        self.call._over(failure)
        (called,) = self.ends
        return called


# Streams


@pytest.mark.parametrize("kernel", [False, True])
def test_every_read_of_tokens_is_a_burst(kernel: bool) -> None:
    heard = Heard(kernel=kernel).head()
    marks = heard.marks
    heard.call.on_body(chunk(role="assistant"), 20, 15)
    assert [marks.event, marks.first] == [20, None]
    heard.call.on_body(chunk(reasoning_content="Hm."), 30, 25)
    heard.call.on_body(chunk(content="Hello"), 40, 35)
    heard.call.on_body(chunk(content="ab") + chunk(content="c"), 50, 45)
    heard.call.on_body(chunk(content="d"), 60, 55)
    heard.call.on_body(chunk("stop"), 70, 65)
    complete = [heard.call.complete]
    heard.call.on_body(chunk(usage={"prompt_tokens": 3, "completion_tokens": 9}), 75, 72)
    heard.call.on_body(DONE, 80, 78)
    assert [*complete, heard.call.complete] == [False, True]
    heard.call.on_end(90)
    assert (marks.send, marks.headers, marks.event, marks.first) == (5, 10, 20, 30)
    assert (marks.answer, marks.finish, marks.end, marks.closed) == (40, 70, 80, 90)
    assert list(marks.burst_ns) == [30, 40, 50, 60]
    assert list(marks.burst_since_ns) == ([30, 40, 45, 60] if kernel else [25, 35, 45, 55])
    assert marks.first_since == (30 if kernel else 25)
    assert marks.last_since == (60 if kernel else 55)
    assert list(marks.burst_pieces) == [1, 1, 2, 1]
    assert list(marks.burst_weight) == [3, 5, 3, 1]
    assert list(marks.burst_tokens) == [-1, -1, -1, -1]
    assert list(marks.burst_kinds) == [REASONING, TEXT, TEXT, TEXT]
    called = heard.end()
    assert called.outcome is Outcome.OK
    assert (called.streamed, called.status, called.finish_reason) == (True, 200, "stop")
    assert (called.kinds, called.first_kinds) == (TEXT | REASONING, REASONING)
    assert (called.tokens.tokens_in, called.tokens.out) == (3, 9)
    assert called.bytes_out == len(heard.call.prepared.payload)
    assert (called.bytes_in, called.error) == (0, None)


def test_the_last_token_of_a_read_that_goes_on_may_have_come_earlier() -> None:
    heard = Heard(kernel=True).head()
    heard.call.on_body(chunk(content="a") + b"data: {", 30, 25)
    assert (heard.marks.first_since, heard.marks.last_since) == (25, 25)
    heard.call.on_body(b'"x":1}\n\n', 40, 35)
    heard.call.on_body(chunk(content="b") + chunk(role="assistant"), 50, 45)
    assert heard.marks.last_since == 45
    heard.call.on_body(chunk(content="c") + chunk(content="d"), 60, 55)
    assert heard.marks.last_since == 60
    assert list(heard.marks.burst_since_ns) == [25, 45, 55]


def test_an_event_in_two_reads_counts_when_it_is_whole() -> None:
    heard = Heard().head()
    whole = chunk(content="a")
    heard.call.on_body(whole[:9], 20, 15)
    assert [heard.marks.event] == [None]
    heard.call.on_body(whole[9:], 30, 25)
    assert (heard.marks.event, list(heard.marks.burst_ns)) == (30, [30])
    heard.call.on_body(whole[:-1], 40, 35)
    heard.call.on_body(b"\n", 50, 45)
    assert list(heard.marks.burst_ns) == [30, 50]


@pytest.mark.parametrize(
    "raw",
    [
        chunk(content="b").replace(b"\n\n", b"\r\n\r\n"),
        chunk(content="b").replace(b"data: ", b"data:"),
        b": ping\n" + chunk(content="b"),
        b"event: x\n" + chunk(content="b"),
        chunk(content="b").replace(b"\n\n", b"\n: x\n\n"),
    ],
)
def test_an_event_of_another_form_is_heard_too(raw: bytes) -> None:
    heard = Heard().head()
    heard.call.pass_on = lambda data: bool(heard.passed.append(data))  # type: ignore[func-returns-value]
    heard.call.on_body(chunk(content="a"), 30, 25)
    heard.call.on_body(raw, 40, 35)
    assert list(heard.marks.burst_ns) == [30, 40]
    assert [kinds for _, _, kinds in heard.handed] == [TEXT, TEXT]
    assert heard.passed == []  # only plain token events go past the sink


def test_tokens_are_counted_along_where_the_provider_counts() -> None:
    heard = Heard().head()
    for number, (stamp, total) in enumerate([(30, 2), (40, 5), (50, 5), (60, 9)]):
        usage = {"prompt_tokens": 3, "completion_tokens": total}
        heard.call.on_body(chunk(content=f"t{number}", usage=usage), stamp, stamp)
    assert list(heard.marks.burst_tokens) == [2, 3, 0, 4]
    both = [
        chunk(content="x", usage={"prompt_tokens": 3, "completion_tokens": n}) for n in (10, 12)
    ]
    heard.call.on_body(b"".join(both), 70, 70)
    assert list(heard.marks.burst_tokens) == [2, 3, 0, 4, 3]


def test_plain_tokens_after_the_first_are_passed_on_and_all_else_is_handed_over() -> None:
    heard = Heard().head()
    slow = [False]

    def take(data: bytes) -> bool:
        heard.passed.append(data)
        return slow[0]

    heard.call.pass_on = take
    first, second, third = (chunk(content=text) for text in "abc")
    heard.call.on_body(first, 30, 30)
    heard.call.on_body(second, 40, 40)
    assert heard.call.crowds == 0
    slow[0] = True
    heard.call.on_body(third, 50, 50)
    heard.call.on_body(chunk("stop"), 60, 60)
    heard.call.on_body(DONE, 70, 70)
    heard.call.on_body(chunk(content="late"), 80, 80)
    assert heard.passed == [second, third]
    assert heard.call.crowds == 1
    assert [(data, kinds) for data, _, kinds in heard.handed] == [
        (first, TEXT),
        (chunk("stop"), 0),
        (DONE, 0),
    ]
    assert next(events for _, events, _ in heard.handed) == [(b"", first[6:-2])]
    assert list(heard.marks.burst_ns) == [30, 40, 50]


def test_tokens_with_a_name_are_passed_on_where_they_are_like_the_one_before() -> None:
    heard = Heard().head()
    heard.call.pass_on = lambda data: bool(heard.passed.append(data))  # type: ignore[func-returns-value]
    named = [b"event: delta\n" + chunk(content=text) for text in ("a", "b", "\n", "c")]
    plain = chunk(content="d")
    for stamp, data in enumerate([*named, plain], 30):
        heard.call.on_body(data, stamp, stamp - 5)
    assert heard.passed == [named[1], named[3], plain]
    assert [(data, kinds) for data, _, kinds in heard.handed] == [
        (named[0], TEXT),
        (named[2], TEXT),
    ]
    assert list(heard.marks.burst_ns) == [30, 31, 32, 33, 34]
    assert list(heard.marks.burst_since_ns) == [25, 26, 27, 28, 29]
    assert heard.call._scanner.chars == 5


def test_a_call_that_hands_nothing_on_clocks_every_token() -> None:
    heard = Heard().head()
    heard.call.sink = None
    for stamp, text in enumerate(("a", "bc", "\n", "d", "", "e"), 30):
        heard.call.on_body(chunk(content=text), stamp, stamp)
    assert list(heard.marks.burst_ns) == [30, 31, 32, 33, 35]
    assert list(heard.marks.burst_weight) == [1, 2, 1, 1, 1]
    assert heard.marks.answer == 30


def test_an_event_without_data_is_read_once() -> None:
    heard = Heard().head()
    heard.call.on_body(chunk(content="a"), 30, 30)
    for empty in (b"data: \n\n", chunk(content="")):
        heard.handed.clear()
        heard.call.on_body(empty, 40, 40)
        assert heard.handed == [(empty, [(b"", empty[6:-2])], 0)]


def test_without_a_passage_everything_is_handed_over() -> None:
    heard = Heard().head()
    both = [chunk(content="a"), chunk(content="b")]
    for stamp, data in enumerate(both):
        heard.call.on_body(data, stamp, stamp)
    assert heard.handed == [(data, [(b"", data[6:-2])], TEXT) for data in both]


@pytest.mark.parametrize("begun", [False, True])
def test_nothing_is_handed_on_from_an_error_onwards(begun: bool) -> None:
    heard = Heard().head()
    if begun:
        heard.call.on_body(chunk(content="a"), 30, 30)
    wrong = event({"error": {"message": f"Broke: {KEY}", "code": 503, "type": KEY}})
    with pytest.raises(StreamError) as caught:
        heard.call.on_body(wrong, 40, 40)
    assert KEY not in caught.value.message
    assert (caught.value.code, caught.value.words.kind) == (503, "***")
    assert caught.value.words.family == "openai"
    with pytest.raises(StreamError):
        Heard().head().call.on_body(chunk(content="b") + wrong + chunk(content="c"), 50, 50)


def test_what_follows_the_marker_in_its_read_is_dropped() -> None:
    heard = Heard().head()
    heard.call.on_body(chunk("stop", content="a") + DONE + chunk(content="late"), 30, 30)
    ((_, events, kinds),) = heard.handed
    assert [data for _, data in events] == [chunk("stop", content="a")[6:-2], b"[DONE]"]
    assert kinds == TEXT
    assert (heard.marks.finish, heard.marks.end) == (30, 30)
    assert heard.call.complete


def test_a_last_event_without_its_blank_line_is_heard_at_the_end() -> None:
    heard = Heard().head()
    heard.call.on_body(chunk("stop", content="a"), 30, 30)
    heard.call.on_body(DONE[:-1], 40, 40)
    heard.call.on_end(50)
    assert heard.end().outcome is Outcome.OK
    assert (heard.marks.end, heard.marks.closed) == (50, 50)


def test_a_stream_that_ends_by_its_finish_reason_ends_with_its_body() -> None:
    heard = Heard().head()
    heard.call.on_body(chunk("stop", content="a"), 30, 30)
    heard.call.on_end(50)
    called = heard.end()
    assert (called.outcome, heard.marks.end) == (Outcome.OK, 50)
    assert called.end is not None


def test_a_stream_without_an_end_is_truncated() -> None:
    heard = Heard().head()
    heard.call.on_body(chunk(content="a"), 30, 30)
    heard.call.on_end(50)
    called = heard.end()
    assert isinstance(called.error, Truncated)
    assert (called.end, called.outcome) == (None, Outcome.TRUNCATED)


@pytest.mark.parametrize("done", [True, False])
def test_a_reset_after_the_marker_is_an_end(done: bool) -> None:
    heard = Heard().head()
    heard.call.on_body(chunk("stop", content="a") + (DONE if done else b""), 30, 30)
    called = heard.end(PeerReset("Gone."))
    assert (called.error is None) is done
    late = Heard().head()
    late.call.on_body(chunk("stop", content="a") + DONE, 30, 30)
    assert isinstance(late.end(Cancelled("Left.")).error, Cancelled)


def test_an_event_that_is_too_large_is_named() -> None:
    heard = Heard().head()
    heard.call.on_body(chunk(content="a"), 30, 30)
    with pytest.raises(TooLarge, match=r"^api\.example\.com: ") as caught:
        heard.call.on_body(b"data: " + bytes(EVENT_LIMIT + 1), 40, 40)
    assert "base URL" in caught.value.hint


# Heads


def test_the_best_name_of_a_request_is_kept() -> None:
    heard = Heard().head(200, (b"cf-ray", b"ray"), (b"request-id", b"r1"), (b"nvcf-reqid", b"n"))
    assert heard.call.said_id == b"r1"
    assert heard.end().provider_request_id == "r1"
    heard = Heard().head(200, (b"x-request-id", b"best"), (b"request-id", b"r1"))
    assert heard.call.said_id == b"best"
    for odd in (b"", b"a b", b"\xff", b"x" * 129):
        assert Heard().head(200, (b"x-request-id", odd)).call.said_id == b""
    assert Heard().head(200, (b"x-request-id", b"x" * 128)).call.said_id == b"x" * 128
    assert Heard().head().end().provider_request_id is None


@pytest.mark.parametrize("rank", range(len(call_module.ID_FIELDS) - 1))
def test_names_are_ranked(rank: int) -> None:
    better, worse = list(call_module.ID_FIELDS)[rank : rank + 2]
    for pair in (((better, b"a"), (worse, b"b")), ((worse, b"b"), (better, b"a"))):
        assert Heard().head(200, *pair).call.said_id == b"a"


def test_what_is_left_of_a_limit_is_kept() -> None:
    fields = [
        (b"x-ratelimit-remaining", b"5"),
        (b"anthropic-ratelimit-reset", b"2026-01-01 00:00"),
        (b"ratelimit-limit", b"x" * 128),
        (b"x-ratelimit-" + b"y" * (LONGEST_LIMIT - 12), b"1"),
    ]
    odd = [
        (b"retry-after", b"3"),
        (b"x-ratelimit-long", b"x" * 129),
        (b"x-ratelimit-odd", b"\xff"),
        (b"x-ratelimit-" + b"y" * (LONGEST_LIMIT - 11), b"1"),
    ]
    assert Heard().head(200, *fields, *odd).call.limits == fields
    many = [(b"x-ratelimit-%d" % n, b"1") for n in range(MOST_LIMITS + 1)]
    assert Heard().head(200, *many).call.limits == many[:MOST_LIMITS]


def test_a_field_that_repeats_the_key_is_forgotten() -> None:
    key = KEY.encode()
    heard = Heard().head(
        200,
        (b"x-request-id", b"id-" + key),
        (b"x-ratelimit-a", key),
        (b"x-ratelimit-b", b"1"),
        (b"x-ratelimit-" + key, b"1"),
    )
    assert (heard.call.said_id, heard.call.limits) == (b"", [(b"x-ratelimit-b", b"1")])
    assert Heard(key=False).head(200, (b"x-request-id", key)).call.said_id == key


@pytest.mark.parametrize(
    ("status", "kind", "asked", "streamed"),
    [
        (200, b"text/event-stream", True, True),
        (200, b"Text/Event-Stream;x", True, True),
        (200, b"application/json", True, False),
        (200, b"text/event-stream", False, False),
        (429, b"text/event-stream", True, False),
    ],
)
def test_what_is_a_stream(status: int, kind: bytes, asked: bool, streamed: bool) -> None:
    heard = Heard(streamed=asked)
    heard.call.on_head(status, [(b"content-type", kind)], 10)
    assert heard.call.ended_as(None).streamed is streamed


# Whole answers

WHOLE = msgspec.json.encode(
    {
        "choices": [{"message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2},
    }
)


def test_a_whole_answer_is_kept_and_clocked() -> None:
    heard = Heard(streamed=False).head()
    heard.call.on_body(WHOLE[:20], 20, 20)
    heard.call.on_body(WHOLE[20:], 30, 30)
    heard.call.on_end(40)
    called = heard.end()
    assert (called.outcome, called.streamed, called.tokens.out) == (Outcome.OK, False, 2)
    assert heard.call.body == WHOLE
    assert (heard.marks.last, heard.marks.end, heard.marks.closed) == (40, 40, 40)
    assert heard.handed == [(WHOLE[:20], [], 0), (WHOLE[20:], [], 0)]


def test_a_whole_answer_of_another_shape_is_malformed() -> None:
    heard = Heard(streamed=False).head()
    heard.call.on_body(b"{}", 20, 20)
    heard.call.on_end(40)
    called = heard.end()
    assert isinstance(called.error, Malformed)
    assert called.error.message.startswith("api.example.com did not answer in its dialect")
    assert "base URL" in called.error.hint


def test_a_whole_answer_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_module, "WHOLE_LIMIT", 10)
    heard = Heard(streamed=False).head()
    heard.call.on_body(b"x" * 10, 20, 20)
    assert heard.call.body == b"x" * 10
    with pytest.raises(TooLarge, match="larger than 10 bytes"):
        heard.call.on_body(b"x", 30, 30)
    assert heard.call.body == b""


@pytest.mark.parametrize(
    ("status", "kind", "hint"),
    [
        (400, HttpRefused, ""),
        (401, HttpRefused, "key"),
        (403, HttpRefused, "key"),
        (429, RateLimited, ""),
    ],
)
def test_a_refusal_says_why(status: int, kind: type[HttpRefused], hint: str) -> None:
    heard = Heard().head(status, (b"retry-after", b"7"))
    said = {"error": {"message": f"No: {KEY}", "code": KEY, "param": KEY, "type": "t"}}
    heard.call.on_body(msgspec.json.encode(said), 20, 20)
    heard.call.on_end(30)
    error = heard.end().error
    assert type(error) is kind
    assert isinstance(error, HttpRefused)
    assert error.message == f"api.example.com answered {status}: No: ***"
    assert (error.code, error.retry_after_s) == (status, 7)
    assert error.words == ErrorWords("***", "t", "***", "openai", "")
    assert (hint in error.hint) if hint else (not error.hint)


def test_only_the_start_of_a_refusal_is_kept() -> None:
    heard = Heard().head(500)
    heard.call.on_body(b"x" * REFUSAL_LIMIT, 20, 20)
    heard.call.on_body(b"y", 30, 30)
    assert heard.call.body == b"x" * REFUSAL_LIMIT


def test_a_fault_of_the_translation_is_an_error_without_the_key() -> None:
    fault = Fault("odd", f"No: {KEY}", 502, ErrorWords(5, "k", "p", "", KEY))
    error = Heard().call.misread(fault)
    assert (error.message, error.code, error.word) == ("No: ***", 502, "odd")
    assert error.words == ErrorWords(5, "k", "p", "openai", "***")


def test_a_finish_reason_holds_no_key() -> None:
    heard = Heard().head()
    heard.call.on_body(chunk(KEY, content="a") + DONE, 30, 30)
    assert KEY not in (heard.end().finish_reason or "")


@pytest.mark.parametrize(("thoughts", "streamed"), [("hm", 10), ("", 6)])
def test_thoughts_that_did_not_come_are_no_tokens_of_the_stream(
    thoughts: str, streamed: int
) -> None:
    heard = Heard().head()
    if thoughts:
        heard.call.on_body(chunk(reasoning_content=thoughts), 20, 20)
    heard.call.on_body(chunk(content="a"), 30, 30)
    usage = {
        "prompt_tokens": 3, "completion_tokens": 10,
        "completion_tokens_details": {"reasoning_tokens": 4},
    }  # fmt: skip
    heard.call.on_body(chunk("stop", usage, content="b") + DONE, 40, 40)
    tokens = heard.end().tokens
    assert (tokens.out, tokens.reasoning, tokens.streamed) == (10, 4, streamed)


# Beginning and ending


class Client:
    """A client that only keeps what it is to send."""

    def __init__(self, source: str = "read") -> None:
        self.sent: list[Any] = []
        anchor = SimpleNamespace(steps=3) if source == "kernel" else None
        self.stamper = SimpleNamespace(source=source, anchor=anchor)
        self.trip = SimpleNamespace(log=[], bytes_in=77)
        for name in ("cancel", "pause", "resume"):
            setattr(self.trip, name, self._logs(name))

    def _logs(self, name: str) -> Callable[[], None]:
        return lambda: self.trip.log.append(name)

    def send(self, request: Any) -> Any:
        self.sent.append(request)
        return self.trip


def test_a_call_is_begun_with_its_stamps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "monotonic_ns", lambda: 1_000)
    heard, client = Heard(), Client()
    heard.marks.plan = 400
    deadlines = Deadlines(1, 2, 3, 4)
    heard.call.start(client, deadlines)  # type: ignore[arg-type] # enough of one
    (request,) = client.sent
    assert request.payload == heard.call.prepared.payload
    assert request.deadlines is deadlines
    assert (heard.marks.stamp_source, heard.marks.dispatch_lag_ns) == ("read", 600)
    heard.call.pause()
    heard.call.resume()
    heard.call.cancel()
    assert client.trip.log == ["pause", "resume", "cancel"]
    heard.call.on_head(200, [TYPE], 10)
    called = heard.end(Cancelled("Left."))
    assert (heard.marks.end, called.bytes_in, heard.marks.void) == (1_000, 77, False)
    assert (heard.call.sink, heard.call.pass_on) == (None, None)


@pytest.mark.parametrize("stepped", [0, 1])
def test_kernel_stamps_are_void_where_the_clock_stepped(stepped: int) -> None:
    heard, client = Heard(), Client("kernel")
    heard.marks.plan = 1 << 62
    heard.call.start(client, Deadlines())  # type: ignore[arg-type] # enough of one
    assert (heard.marks.stamp_source, heard.marks.dispatch_lag_ns) == ("kernel", 0)
    client.stamper.anchor.steps += stepped
    heard.end(Cancelled("Left."))
    assert heard.marks.void is bool(stepped)
    assert heard.marks.end is None  # nothing came


@pytest.mark.parametrize(("source", "since"), [("kernel", 30), ("read", 20)])
def test_only_the_kernels_stamp_of_a_token_needs_no_earlier_bound(source: str, since: int) -> None:
    heard, client = Heard(), Client(source)
    heard.call.start(client, Deadlines())  # type: ignore[arg-type] # enough of one
    heard.call.on_head(200, [TYPE], 10)
    heard.call.on_body(chunk(content="a"), 30, 20)
    assert (heard.marks.first, heard.marks.first_since) == (30, since)


def test_a_call_that_was_cancelled_first_sends_nothing() -> None:
    heard, client = Heard(), Client()
    heard.call.cancel()
    heard.call.pause()
    heard.call.resume()
    heard.call.start(client, Deadlines())  # type: ignore[arg-type] # enough of one
    assert client.sent == []
    assert isinstance(heard.ends[0].error, Cancelled)
    assert heard.ends[0].bytes_out == 0


def test_a_defect_is_told_as_one() -> None:
    heard = Heard()
    defect = ZeroDivisionError()
    heard.call._over(defect)
    assert (heard.call.defects, heard.ends, heard.call.sink) == ([defect], [], None)


async def test_an_awaited_call_ends_with_its_result_or_its_defect() -> None:
    for failure in (None, ZeroDivisionError()):
        client = Client()

        def send(request: Any, client: Client = client, failure: Exception | None = failure) -> Any:
            request.taker.on_sent(5)
            if failure is None:
                request.taker.on_head(200, [], 10)
                request.taker.on_body(WHOLE, 20, 20)
                request.taker.on_end(30)
            request.over(failure)
            request.over(failure)
            return client.trip

        client.send = send  # type: ignore[method-assign] # answers at once
        row = Provider(name="x", title="X", base_url=URL, auth="none")
        target = Target(name="x/m", provider=row, model="m", base_url=URL)
        made = Call(prepare(target, REQUEST), Marks())
        if failure is None:
            called = await made.run(client, Deadlines())  # type: ignore[arg-type] # enough of one
            assert called.outcome is Outcome.OK
        else:
            with pytest.raises(ZeroDivisionError):
                await made.run(client, Deadlines())  # type: ignore[arg-type] # enough of one
        assert client.trip.log == ([] if failure is None else ["cancel"])


# Answers in no dialect


def test_a_stream_is_read_as_an_answer() -> None:
    logprobs = {"content": [{"token": "H", "logprob": -0.5}, {"token": "i", "logprob": -1.5}]}
    choice = {"index": 0, "delta": {"content": "Hi"}, "logprobs": logprobs}
    call = {"index": 0, "id": "t", "function": {"name": "f", "arguments": "{}"}}
    raw = (
        chunk(reasoning_content="Hm.")
        + event({"choices": [choice]})
        + chunk("tool_calls", tool_calls=[call])
        + DONE
    )
    found = read_answer("openai-chat", raw[:-2], streamed=True)
    assert found is not None
    assert (found.text, found.refusal, found.finish) == ("Hi", "", "tool")
    assert found.logprob == -1.0
    ((made),) = found.calls
    assert (made.id, made.name, made.arguments) == ("t", "f", "{}")


def test_a_whole_body_is_read_as_an_answer() -> None:
    assert read_answer("openai-chat", WHOLE, streamed=False) == Answer(text="Hi")
    refused = {
        "choices": [{"message": {"content": None, "refusal": "No."}, "finish_reason": "stop"}]
    }
    found = read_answer("openai-chat", msgspec.json.encode(refused), streamed=False)
    assert found is not None
    assert (found.text, found.refusal) == ("", "No.")


def test_what_is_no_answer_is_none() -> None:
    assert read_answer("openai-embeddings", WHOLE, streamed=False) is None
    assert read_answer("openai-chat", b"{}", streamed=False) is None
    assert read_answer("openai-chat", event({"error": {"message": "x"}}), streamed=True) is None
    huge = b"data: " + bytes(EVENT_LIMIT + 1)
    assert read_answer("openai-chat", huge, streamed=True) is None
    late = chunk("stop", content="a") + DONE + event({"error": {"message": "x"}})
    found = read_answer("openai-chat", late, streamed=True)
    assert found is not None
    assert found.text == "a"
    assert reads("gemini")
    assert not reads("openai-embeddings")


# Answers without tokens

VECTOR = Request(model="m", kind="embedding", inputs=("hi",))
SPEECH = Request(model="m", kind="speech", inputs=("hi",))


def test_a_vector_has_a_whole_time_and_no_token() -> None:
    heard = Heard(asked=VECTOR).typed(b"application/json")
    body = b'{"data": [{"embedding": [0.5]}], "usage": {"prompt_tokens": 7, "total_tokens": 7}}'
    heard.call.on_body(body[:20], 20, 15)
    heard.call.on_body(body[20:], 30, 25)
    heard.call.on_end(40)
    called = heard.end()
    assert (called.outcome, called.streamed) == (Outcome.OK, False)
    assert (heard.marks.first, heard.marks.last, heard.marks.end) == (None, 40, 40)
    assert (called.tokens.tokens_in, called.tokens.out) == (7, None)


def test_what_is_no_vector_has_no_whole_time() -> None:
    heard = Heard(asked=VECTOR).typed(b"application/json")
    heard.call.on_body(b'{"data": []}', 20, 15)
    heard.call.on_end(40)
    assert heard.marks.last is None
    assert isinstance(heard.end().error, Malformed)


def test_every_read_of_sound_is_a_burst() -> None:
    heard = Heard(asked=SPEECH, streamed=False).typed(b"audio/mpeg")
    marks = heard.marks
    heard.call.on_body(b"\xff\xf3", 20, 15)
    heard.call.on_body(b"\xff\xf3\xff", 30, 25)
    assert not heard.call.complete
    heard.call.on_end(40)
    assert (marks.event, marks.first, marks.answer, marks.last) == (20, 20, 20, 30)
    assert (marks.first_since, marks.last_since, marks.end, marks.closed) == (15, 25, 40, 40)
    assert list(marks.burst_ns) == [20, 30]
    assert list(marks.burst_kinds) == [AUDIO, AUDIO]
    called = heard.end()
    assert (called.outcome, called.streamed, called.tokens.out) == (Outcome.OK, True, None)
    assert (called.kinds, called.first_kinds) == (AUDIO, AUDIO)
    assert heard.call.complete


def test_speech_without_a_byte_is_empty() -> None:
    heard = Heard(asked=SPEECH).typed(b"audio/mpeg")
    heard.call.on_end(40)
    error = heard.end().error
    assert error is not None
    assert error.message.endswith("answered 200 without a byte of sound.")
    assert Outcome(error.outcome) is Outcome.EMPTY


def test_a_refusal_of_speech_is_no_sound() -> None:
    heard = Heard(asked=SPEECH).typed(b"application/json", status=400)
    heard.call.on_body(b'{"error": {"message": "no such voice"}}', 20, 15)
    heard.call.on_end(40)
    error = heard.end().error
    assert heard.marks.first is None
    assert isinstance(error, HttpRefused)
    assert "no such voice" in error.message


def test_a_provider_that_counts_from_nought_counts_along() -> None:
    heard = Heard().head()
    for stamp, total in ((30, 0), (40, 2)):
        usage = {"prompt_tokens": 3, "completion_tokens": total}
        heard.call.on_body(chunk(content="t", usage=usage), stamp, stamp)
    assert list(heard.marks.burst_tokens) == [0, 2]
    silent = Heard().head()
    silent.call.on_body(chunk(content="t"), 30, 30)
    assert list(silent.marks.burst_tokens) == [-1]


@pytest.mark.parametrize("finish", ["error", "abort"])
def test_a_whole_answer_that_its_server_gave_up_is_an_error_however_much_it_says(
    finish: str,
) -> None:
    heard = Heard(streamed=False).typed(b"application/json")
    said = {"index": 0, "message": {"content": "Hello"}, "finish_reason": finish}
    heard.call.on_body(msgspec.json.encode({"choices": [said]}), 20, 20)
    heard.call.on_end(30)
    called = heard.end()
    assert called.kinds == TEXT
    assert isinstance(called.error, StreamError)
    assert called.outcome is not Outcome.OK


@pytest.mark.parametrize("name", [b"x-request-id", b"x-ratelimit-limit-requests"])
def test_a_head_that_repeats_our_key_in_one_field_alone_loses_that_field(name: bytes) -> None:
    heard = Heard().head(200, (name, KEY.encode()))
    assert (heard.call.said_id, heard.call.limits) == (b"", [])
    sound = Heard().head(200, (name, b"10"))
    assert (sound.call.said_id or sound.call.limits[0][1]) == b"10"


def test_a_call_reads_its_answer_at_once_unless_its_owner_says_otherwise() -> None:
    heard = Heard(streamed=False)
    assert heard.call.read_later(5) is False
    assert heard.call.read_aside() is None  # type: ignore[func-returns-value]


@pytest.mark.parametrize("word", ["stop", "length", "tool_calls", "end_turn", "STOP", "made_up"])
def test_a_finish_reason_is_the_providers_word_without_our_key(word: str) -> None:
    heard = Heard().head()
    heard.call.on_body(chunk(word, content="a") + DONE, 30, 30)
    assert heard.end().finish_reason == word
    shown = Heard().head()
    shown.call.on_body(chunk(f"{word} {KEY}", content="a") + DONE, 30, 30)
    assert shown.end().finish_reason == f"{word} ***"


def test_an_answer_without_a_token_has_no_kinds_and_no_finish_reason() -> None:
    heard = Heard().head()
    heard.call.on_body(chunk(role="assistant"), 20, 20)
    heard.call.on_end(30)
    called = heard.end()
    assert (called.kinds, called.first_kinds, called.finish_reason) == (0, 0, None)
    assert (called.provider_request_id, called.bytes_in) == (None, 0)


def test_a_call_that_was_never_sent_has_sent_no_bytes() -> None:
    called = Heard().end(PeerReset("Gone."))
    assert (called.bytes_out, called.status, called.streamed) == (0, None, False)
    assert called.error is not None
