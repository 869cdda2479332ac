"""Steps of an exchange and of its attempts that a whole request hides, each by itself."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lightgate.clock.outcome import Outcome
from lightgate.errors import Cancelled, ErrorWords, HttpRefused, StreamError, TooLarge, UsageError
from lightgate.gateway.exchange import attempt as attempt_module
from lightgate.gateway.exchange import exchange as exchange_module
from lightgate.gateway.exchange import sound as sound_module
from lightgate.gateway.exchange.attempt import SSE, Attempt
from lightgate.gateway.exchange.caller import Caller, Overrides, owner_of
from lightgate.gateway.exchange.exchange import Exchange
from lightgate.gateway.exchange.sound import SoundAttempt, WholeSoundAttempt
from lightgate.gateway.exchange.state import State
from lightgate.gateway.exchange.stream import StreamAttempt
from lightgate.route.health.failure import CANCELLED, FINE, SERVER, Failure
from lightgate.route.plan.course import AUTO_TTFT_NS

S = 1_000_000_000


def fake(**facts: Any) -> Any:
    return SimpleNamespace(**facts)


# When the client last heard of it


@pytest.mark.parametrize(
    ("comment", "first_out", "last_out", "last_token", "heard"),
    [
        (5, None, None, None, 5), (5, None, None, 9, 5), (5, 6, None, 9, 9), (5, 6, 8, 7, 8),
        (5, 6, 4, None, 5), (9, 6, 8, 7, 9),
    ],
)  # fmt: skip
def test_a_client_heard_of_it_with_the_last_token_the_last_bytes_or_a_comment(
    comment: int, first_out: int | None, last_out: int | None, last_token: int | None, heard: int
) -> None:
    heard_ns: Any = Exchange.heard_ns.fget  # type: ignore[attr-defined] # a property
    won = fake(marks=fake(last=last_token))
    facts = {"_comment_ns": comment, "first_out_ns": first_out, "last_out_ns": last_out}
    assert heard_ns(fake(winner=won, **facts)) == heard
    assert heard_ns(fake(winner=None, **facts)) == max(comment, last_out or 0)


class Reply:
    """A reply that keeps what is done with it."""

    def __init__(self, *, started: bool = False, finished: bool = False) -> None:
        self.started, self.finished = started, finished
        self.out: list[Any] = []

    def start(self, status: int, headers: bytes, *, first: bytes) -> None:
        self.out.append((status, headers, first))

    def send(self, data: bytes) -> None:
        self.out.append(data)

    def finish(self, *, last: bytes) -> None:
        self.out.append(("finish", last))

    def abort(self) -> None:
        self.out.append("abort")


@pytest.mark.parametrize(("dialect", "sign"), [("openai-chat", b":"), ("gemini", b"\n")])
def test_a_client_that_waits_is_told_so(dialect: str, sign: bytes) -> None:
    for started in (False, True):
        exchange = fake(
            reply=Reply(started=started),
            request=fake(endpoint=fake(sound="", dialect=dialect)),
            state=fake(now_ns=lambda: 77),
            headers=lambda attempt: b"x: %b\r\n" % repr(attempt).encode(),
            _comment_ns=0,
        )
        Exchange.comment(exchange)
        assert exchange._comment_ns == 77
        [said] = exchange.reply.out
        shown = said if started else said[2]
        assert shown.startswith(sign)
        if not started:
            assert said[:2] == (200, SSE + b"x: None\r\n")


@pytest.mark.parametrize(("finished", "sound"), [(True, ""), (False, "form")])
def test_nothing_is_said_after_the_end_or_into_sound(finished: bool, sound: str) -> None:
    exchange = fake(
        reply=Reply(finished=finished),
        request=fake(endpoint=fake(sound=sound, dialect="openai-chat")),
        _comment_ns=5,
    )
    Exchange.comment(exchange)
    assert (exchange.reply.out, exchange._comment_ns) == ([], 5)


def test_sound_that_breaks_is_cut_off_and_a_stream_is_ended() -> None:
    for sound, out in (("form", ["abort"]), ("", [("finish", b"event")])):
        exchange = fake(reply=Reply(), request=fake(endpoint=fake(sound=sound)))
        Exchange._end_badly(exchange, b"event")
        assert exchange.reply.out == out


# The way from step to step


def tried(
    *, closed: bool = False, lost: bool = False, answered: bool = False, back: bool = True,
    fails_over: bool = True, error: bool = True,
) -> list[Any]:  # fmt: skip
    said: list[Any] = []
    exchange = fake(
        closed_ns=7 if closed else None,
        takes_back=lambda: back,
        cascade=None,
        ended=lambda attempt: said.append(("ended", attempt)),
        go_on=lambda: said.append("go on"),
        give_up=lambda: said.append("give up"),
    )
    called = fake(error=None if not error else ValueError()) if answered or error else None
    attempt = fake(lost=lost, called=called, failure=fake(fails_over=fails_over))
    Exchange.over(exchange, attempt)
    return ["ended" if one == ("ended", attempt) else one for one in said]


def test_after_an_attempt_the_next_one_begins_or_the_exchange_ends() -> None:
    assert tried(closed=True) == []
    assert tried(lost=True) == []
    assert tried(closed=True, lost=True) == []
    assert tried(answered=True, error=False) == ["ended"]
    assert tried(back=False) == ["ended"]
    assert tried() == ["go on"]
    assert tried(fails_over=False) == ["give up"]


class Steps:
    """An exchange whose steps are asked one after the other, as the test says."""

    cascade = None

    def __init__(self, *targets: str, unable: str = "", senseless: str = "") -> None:
        steps = [fake(target=name, ttft_ns=None) for name in targets]
        self.plan = fake(steps=steps)
        self.attempts: list[Any] = []
        self.said: list[Any] = []
        self.may = True
        self._unable, self._senseless = unable, senseless
        self._place, self._past = 0, len(steps)

    def pointless(self, step: Any) -> bool:
        return step.target in self._senseless

    def make_attempt(self, step: Any) -> Any:
        return None if step.target in self._unable else step.target

    def may_go_on(self, attempt: Any) -> bool:
        self.said.append(f"{attempt}?")
        return self.may

    def limit_ns(self, step: Any, left: int) -> int:
        return 10 * left + (step.ttft_ns or 0)

    def carry_out(self, attempt: Any, limit: int | None) -> None:
        self.attempts.append(attempt)
        self.said.append((attempt, limit))

    def give_up(self) -> None:
        self.said.append("give up")

    def go_on(self) -> list[Any]:
        exchange: Any = self
        self.said = []
        Exchange.go_on(exchange)
        return self.said


def test_steps_are_asked_in_their_order_and_only_the_last_has_no_limit() -> None:
    steps = Steps("a", "b", "c")
    assert steps.go_on() == [("a", 30)]
    assert steps.go_on() == ["b?", ("b", 20)]
    assert steps.go_on() == ["c?", ("c", None)]
    assert steps.go_on() == ["give up"]
    limited = Steps("a")
    limited.plan.steps[0].ttft_ns = 3
    assert limited.go_on() == [("a", 13)]


def test_a_step_that_is_pointless_or_cannot_be_told_is_passed_over() -> None:
    assert Steps("a", "b", senseless="a").go_on() == [("a", 20)]  # nothing has failed yet
    steps = Steps("a", "b", "c", "d", senseless="b", unable="c")
    assert steps.go_on() == [("a", 40)]
    assert steps.go_on() == ["d?", ("d", None)]
    assert Steps("a", "b", unable="ab").go_on() == ["give up"]
    first = Steps("a", "b", unable="a")
    first.may = False
    assert first.go_on() == ["b?", "give up"]


def test_steps_up_to_a_place_are_asked_and_no_further() -> None:
    steps = Steps("a", "b", "c")
    serial: Any = steps
    Exchange.serial(serial, 1, 2)
    assert steps.said == ["b?", ("b", 20)]
    assert steps.go_on() == ["give up"]


@pytest.mark.parametrize(
    ("target", "again", "unstreamable", "senseless"),
    [("a", False, False, True), ("a", True, False, False), ("a", False, True, False),
     ("b", False, False, False)],
)  # fmt: skip
def test_a_target_is_not_asked_twice_for_what_a_second_try_does_not_change(
    target: str, again: bool, unstreamable: bool, senseless: bool
) -> None:
    before = fake(step=fake(target=target), failure=fake(again=again), unstreamable=unstreamable)
    step: Any = fake(target="a")
    assert Exchange.pointless(fake(attempts=[before]), step) is senseless
    assert Exchange.pointless(fake(attempts=[]), step) is False


@pytest.mark.parametrize(
    ("now", "before", "allowed", "goes"),
    [
        (9, None, False, True), (10, None, True, False),
        (9, {"rejected": True}, False, True), (9, {"free": True}, False, True),
        (9, {}, True, True), (9, {}, False, False), (10, {"free": True}, True, False),
    ],
)  # fmt: skip
def test_another_attempt_needs_time_and_a_place_in_the_budget_of_retries(
    now: int, before: dict[str, bool] | None, allowed: bool, goes: bool
) -> None:
    earlier = fake(
        rejected=(before or {}).get("rejected", False),
        failure=fake(free=(before or {}).get("free", False)),
    )
    attempt = fake()
    exchange = fake(
        state=fake(now_ns=lambda: now, learned=fake(retries=fake(may=lambda _: allowed))),
        due_ns=10,
        attempts=[attempt] if before is None else [earlier, attempt],
    )
    assert Exchange.may_go_on(exchange, attempt) is goes
    assert (attempt in exchange.attempts) is goes


def test_the_whole_is_asked_for_once_where_a_target_would_not_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[Any] = []
    monkeypatch.setattr(
        exchange_module, "when_written", lambda asked, again: said.append((asked, again))
    )

    def asked(*, assembles: bool = True, shy: bool = True, large: bool = False) -> Any:
        attempts = [
            fake(step=fake(target="a"), unstreamable=shy),
            fake(step=fake(target="b"), unstreamable=False),
        ]
        return fake(
            attempts=attempts, assembles=assembles, _shy=set(), plan=fake(steps=[1, 2, 3]),
            request=fake(found=object() if large else None),
            serial=lambda first, past: said.append((first, past)),
        )  # fmt: skip

    for no in (asked(assembles=False), asked(shy=False)):
        assert Exchange.ask_whole(no) is False
        assert no._shy == set()
    assert said == []
    small = asked()
    assert Exchange.ask_whole(small) is True
    assert (small.assembles, small._shy, said) == (False, {"a"}, [(0, 3)])
    large = asked(large=True)
    assert Exchange.ask_whole(large) is True
    (waiting, again) = said.pop()
    assert waiting is large
    again()
    assert said == [(0, 3), (0, 3)]


async def test_an_answer_is_read_on_once_its_client_has_caught_up() -> None:
    said: list[Any] = []

    async def drain() -> None:
        said.append("drained")

    exchange = fake(reply=fake(drain=drain))
    attempt = fake(pause=lambda: said.append("pause"), resume=lambda: said.append("resume"))
    exchange._resume = lambda one: Exchange._resume(exchange, one)
    made: list[Any] = []
    exchange.state = fake(keep=said.append, loop=fake(create_task=lambda x: x))
    Exchange.wait(exchange, attempt)
    assert said[0] == "pause"
    made.append(said.pop())
    await made[0]
    assert said == ["pause", "drained", "resume"]


# What a worker does each second


def test_streams_that_were_silent_for_too_long_are_told_that_they_wait() -> None:
    said: list[Any] = []

    def exchange(name: str, heard_ns: int, *, streamed: bool = True) -> Any:
        return fake(
            request=fake(streamed=streamed), heard_ns=heard_ns, comment=lambda: said.append(name)
        )

    state = fake(
        now_ns=lambda: 100,
        served=fake(terms=fake(keep_alive_ns=30)),
        exchanges=[
            exchange("at the limit", 70), exchange("before", 69), exchange("after", 71),
            exchange("whole", 0, streamed=False),
        ],
        each_second=[lambda: said.append("each"), lambda: said.append("other")],
    )  # fmt: skip
    State.second(state)
    assert said == ["at the limit", "before", "each", "other"]


def test_the_router_is_told_what_an_answer_states_of_limits() -> None:
    told: list[Any] = []
    state = fake(
        wall_ns=lambda: 0,
        now_ns=lambda: 9,
        learned=fake(observer=fake(stated=lambda *facts, **more: told.append((facts[:3], more)))),
    )
    left = [(b"x-ratelimit-limit-requests", b"9"), (b"x-ratelimit-remaining-requests", b"0")]
    for fields, status in (([], 200), (left, 200), (left, 429), (left, 503), (left, None)):
        State.limits_stated(state, "a/m", 5, fields, 40, status)
    assert told == [
        (("a/m", 9, 5), {"tokens": 40, "refused": status == 429})
        for status in (200, 429, 503, None)
    ]


# Whose turn it is, and under which words


def test_a_job_beside_the_loop_is_the_key_s_or_without_keys_the_address_s() -> None:
    inbound: Any = fake(peer="[::1]:7001")
    assert owner_of(fake(key=fake(id="k-1")), inbound) == "k-1"
    assert owner_of(fake(key=None), inbound) == "[::1]"


def test_a_client_with_a_deadline_of_its_own_is_in_a_hurry() -> None:
    assert not Overrides().hurried
    assert Overrides(timeout_ns=0).hurried
    assert Overrides(ttft_timeout_ns=0).hurried


def test_a_conversation_is_of_one_key() -> None:
    session: Any = Caller.session.fget  # type: ignore[attr-defined] # a property
    named = fake(session="s")
    assert session(fake(overrides=fake(session=None), key=fake(id="k"))) is None
    assert session(fake(overrides=named, key=fake(id="k"))) == "k:s"
    assert session(fake(overrides=named, key=None)) == ":s"


# The end of an attempt


class Observer:
    """Keeps what the router is told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def succeeded(self, *facts: Any) -> None:
        self.told.append(("succeeded", *facts))

    def lost(self, *facts: Any, spoke: bool) -> None:
        self.told.append(("lost", *facts, spoke))

    def failed(self, *facts: Any) -> None:
        self.told.append(("failed", *facts))


def ended(
    error: Any = None, *, lost: bool = False, heard: bool = True, timed: bool = False,
    streamed: bool = True, assembles: bool = False, status: int | None = 200, known: Any = None,
) -> Any:  # fmt: skip
    """An attempt whose call has just ended so, and all that was done about it."""
    said: list[Any] = []

    def meaning(*facts: Any) -> Failure:
        said.append(facts)
        return SERVER

    attempt: Any = fake(
        called=known, timed=timed, lost=lost, heard=heard, began_ns=3, _translator=None,
        unstreamable=False, prepared=fake(streamed=streamed),
        step=fake(target="a/m"), said=said, judged=[],
        release=lambda: said.append("release"),
        _decoded=lambda called: (7, 8),
        _billed=lambda called: "bill",
        _meaning=meaning,
        driver=fake(over=lambda one: said.append("over")),
    )  # fmt: skip
    attempt._judged = lambda called: attempt.judged.append("judged") or called
    attempt._plausible = lambda called: attempt.judged.append("plausible") or called
    attempt.exchange = fake(
        size=2, assembles=assembles, failures=[],
        state=fake(
            timers=fake(end=lambda one: said.append("timer")),
            now_ns=lambda: 11,
            learned=fake(observer=Observer()),
        ),
    )  # fmt: skip
    called: Any = fake(error=error, streamed=streamed, status=status, outcome=Outcome.HTTP_ERROR)
    Attempt.over(attempt, called)
    return attempt


def test_an_answer_is_told_to_the_router_with_its_tokens() -> None:
    attempt = ended()
    assert attempt.exchange.state.learned.observer.told == [("succeeded", "a/m", 11, 3, (7, 8))]
    assert (attempt.failure, attempt.bill, attempt.said) == (FINE, "bill", ["over"])
    assert attempt.judged == ["judged"]
    whole = ended(streamed=False)
    assert whole.exchange.state.learned.observer.told == [("succeeded", "a/m", 11, 3, (0, 0))]
    assert whole.judged == ["plausible"]
    assert whole.said == ["over"]


def test_a_deadline_is_over_with_its_attempt() -> None:
    assert ended(timed=True).said == ["timer", "over"]


def test_a_stream_that_is_complete_without_a_token_is_handed_over() -> None:
    assert ended(heard=False).said == ["release", "over"]
    assert ended(heard=False, streamed=False).said == ["over"]


def test_an_attempt_that_was_abandoned_is_not_judged_again() -> None:
    attempt = ended(known=fake())
    assert (attempt.said, attempt.judged) == ([], [])


def test_an_attempt_that_another_one_ended_is_no_failure() -> None:
    attempt = ended(Cancelled("closed"), lost=True, heard=False)
    assert attempt.exchange.state.learned.observer.told == [("lost", "a/m", 2, 11, 3, False)]
    assert (attempt.failure, attempt.exchange.failures) == (CANCELLED, [])
    assert attempt.said == ["over"]


@pytest.mark.parametrize("lost", [False, True])
def test_a_failure_counts_even_where_the_attempt_had_lost(lost: bool) -> None:
    error = HttpRefused("slow down", code=429, retry_after_s=4.0)
    attempt = ended(error, lost=lost, status=429)
    assert attempt.exchange.state.learned.observer.told == [
        ("failed", "a/m", 2, 11, 3, (SERVER, 4.0))
    ]
    assert attempt.said == [(Outcome.HTTP_ERROR, 429, error), "over"]
    assert attempt.exchange.failures == ([] if lost else [("a/m", error)])


def test_an_attempt_that_we_closed_without_a_winner_has_failed() -> None:
    attempt = ended(Cancelled("closed"))
    [told] = attempt.exchange.state.learned.observer.told
    assert told[:2] == ("failed", "a/m")
    assert told[-1] == (SERVER, None)


def test_an_error_inside_a_stream_has_the_status_that_it_names() -> None:
    named = ended(StreamError("too many", code=429))
    assert named.said[0][1] == 429
    assert ended(StreamError("broken", word="nothing known")).said[0][1] == 200


def test_a_target_that_will_not_stream_is_asked_for_the_whole_where_that_is_wanted() -> None:
    refused = HttpRefused("Streaming is not supported", code=400)
    assert ended(refused, assembles=True, status=400).unstreamable
    assert not ended(refused, assembles=False, status=400).unstreamable
    other = HttpRefused("no such model", code=400)
    assert not ended(other, assembles=True, status=400).unstreamable


# A large whole answer


async def read_aside(
    monkeypatch: pytest.MonkeyPatch, *, has: bool = True, translates: bool = False,
    unread: Any = None, error: Any = None, closed: bool = False,
) -> Any:  # fmt: skip
    async def read(*facts: Any) -> Any:
        if error is not None:
            raise error
        return "facts", unread, b"told"

    monkeypatch.setattr(attempt_module, "read_large_answer", read)
    said: list[Any] = []
    attempt = fake(
        exchange=None, prepared=fake(origin=fake(authority="lab:80")), _body=[b"body"],
        _unread=None, _scanner=fake(adopt=said.append), _has_answer=has,
        marks=fake(last=None), _came_ns=9, _whole=None,
        _translator=object() if translates else None,
        called=fake() if closed else None, _over=lambda failure: said.append(("over", failure)),
        said=said,
    )  # fmt: skip
    await Attempt._read_aside(attempt)
    return attempt


async def test_a_large_answer_is_complete_when_its_last_byte_came(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = await read_aside(monkeypatch)
    assert (plain.marks.last, plain._whole, plain._unread) == (9, None, None)
    assert plain.said == ["facts", ("over", None)]
    none = await read_aside(monkeypatch, has=False)
    assert none.marks.last is None
    told = await read_aside(monkeypatch, translates=True)
    assert told._whole == b"told"
    wrong = await read_aside(monkeypatch, translates=True, unread=ValueError())
    assert (wrong._whole, type(wrong._unread)) == (None, ValueError)
    left = await read_aside(monkeypatch, closed=True)
    assert left.said == ["facts"]


async def test_an_answer_that_cannot_be_read_beside_the_loop_is_too_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    attempt = await read_aside(monkeypatch, error=UsageError("too long"))
    [(_, failure)] = attempt.said
    assert isinstance(failure, TooLarge)
    assert failure.message == "lab:80: too long"


def test_an_answer_that_is_read_later_is_put_together_once() -> None:
    attempt = fake(body=b"{}", _came_ns=0, _body=[])
    assert Attempt.read_later(attempt, 7) is False
    assert (attempt._came_ns, attempt._body) == (7, [b"{}"])
    heavy = fake(body=b"[" * 200_000, _came_ns=0, _body=[])
    assert Attempt.read_later(heavy, 7) is True


def test_limits_are_told_with_the_tokens_of_the_prompt() -> None:
    told: list[Any] = []
    attempt = fake(
        exchange=fake(
            state=fake(limits_stated=lambda *facts: told.append(facts)),
            request=fake(tokens_in=40),
        ),
        step=fake(target="a/m"), began_ns=3, limits=["limit"], status=429,
    )  # fmt: skip
    Attempt.on_limits(attempt)
    assert told == [("a/m", 3, ["limit"], 40, 429)]


def test_a_field_that_two_targets_refuse_is_the_client_s_error() -> None:
    def refused(field: str, code: int = 400) -> HttpRefused:
        return HttpRefused(f"{field} is not supported", code=code, words=ErrorWords(param=field))

    before: Any = attempt_module._refused_before
    same, other = ("a/m", refused("top_k")), ("a/m", refused("top_p"))
    assert before([same], 400, refused("top_k"))
    assert before([other, same], 400, refused("top_k"))
    assert not before([other], 400, refused("top_k"))
    assert not before([], 400, refused("top_k"))
    assert not before([("a/m", refused("top_k", 500))], 400, refused("top_k"))


def test_counts_of_several_answers_are_believed_up_to_the_sum_of_their_limits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[Any] = []

    def believed(tokens: object, *facts: Any) -> object:
        seen.append(facts)
        return tokens

    monkeypatch.setattr(attempt_module, "believed", believed)
    called: Any = fake(tokens=object(), bytes_in=1, bytes_out=2)
    for cap, own in ((None, None), (None, 5), (7, 5)):
        attempt = fake(
            exchange=fake(cap=cap, request=fake(max_tokens=own, answers=3)),
        )
        assert Attempt._plausible(attempt, called) is called
    assert seen == [(None, 1, 2), (15, 1, 2), (21, 1, 2)]


# Sound


def test_sound_has_the_type_that_its_provider_gave_it() -> None:
    kinds: tuple[Any, ...] = (SoundAttempt, WholeSoundAttempt)
    for kind in kinds:
        media = kind.media.fget
        named = fake(headers=[(b"x", b"y"), (b"content-type", b"audio/wav")])
        assert media(named) == b"content-type: audio/wav\r\n"
        assert media(fake(headers=[])) == b"content-type: application/octet-stream\r\n"


class Sounding:
    """The exchange of an attempt that sounds."""

    cascade = None

    def __init__(self) -> None:
        self.out: list[Any] = []

    def deliver(self, attempt: Any, data: bytes, *, ended: bool) -> None:
        self.out.append((data, ended))


def test_sound_is_held_until_it_is_chosen_and_then_passed_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(StreamAttempt, "on_body", lambda *facts: None)
    monkeypatch.setattr(sound_module, "HELD_LIMIT", 6)
    attempt: Any = object.__new__(SoundAttempt)
    attempt.exchange = Sounding()
    attempt.sink, attempt._raw, attempt.committed = object(), True, False
    attempt._held, attempt._held_size, attempt._useful = [], 0, False
    monkeypatch.setattr(SoundAttempt, "_released", lambda self: self.committed)
    attempt.on_body(b"abc", 1, 0)
    attempt.on_body(b"def", 2, 1)
    assert (attempt._held, attempt._held_size, attempt._useful) == ([b"abc", b"def"], 6, True)
    with pytest.raises(TooLarge, match="More than 6 bytes"):
        attempt.on_body(b"g", 3, 2)
    attempt.committed = True
    attempt.on_body(b"hij", 4, 3)
    assert attempt.exchange.out == [(b"hij", False)]
    assert len(attempt._held) == 3
    for raw, sink in ((False, object()), (True, None)):  # events, or nobody who listens
        attempt._raw, attempt.sink = raw, sink
        attempt.on_body(b"k", 5, 4)
    assert len(attempt.exchange.out) == 1


@pytest.mark.parametrize(
    ("own_s", "left", "streamed", "assembles", "learned_s", "limit_s"),
    [
        (None, 1, True, False, None, None), (5, 1, True, False, None, 5),
        (None, 2, True, False, None, AUTO_TTFT_NS / S), (5, 2, True, False, None, 5),
        (500, 2, True, False, None, 300), (None, 2, False, True, None, AUTO_TTFT_NS / S),
        (None, 1, False, False, 7, None), (5, 1, False, False, 7, None),
        (None, 2, False, False, 7, 7), (None, 3, False, False, None, 200),
        (5, 3, False, False, 900, 200),
    ],
)  # fmt: skip
def test_a_step_has_its_own_deadline_or_its_share_of_what_is_left(
    own_s: int | None, left: int, streamed: bool, assembles: bool, learned_s: int | None,
    limit_s: float | None,
) -> None:  # fmt: skip
    asked: list[Any] = []

    def learned(target: str, most: int | None) -> int | None:
        asked.append((target, most))
        return None if learned_s is None else learned_s * S

    exchange = fake(
        due_ns=700 * S, assembles=assembles, cap=None,
        request=fake(streamed=streamed, max_tokens=9),
        state=fake(
            now_ns=lambda: 100 * S, learned=fake(whole_times=fake(limit_ns=learned))
        ),
    )  # fmt: skip
    step: Any = fake(target="a/m", ttft_ns=None if own_s is None else own_s * S)
    found = Exchange.limit_ns(exchange, step, left)
    assert found == (None if limit_s is None else limit_s * S)
    assert asked in ([], [("a/m", 9)])
