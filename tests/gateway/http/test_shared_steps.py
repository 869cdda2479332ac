"""Steps of a request whose answer is shared: from the cache, along with another, or in front."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lightgate.gateway.cache.follower import Made, follower_lines
from lightgate.gateway.exchange.attempt import JSON, SSE
from lightgate.gateway.http import shared as module
from lightgate.gateway.http.app import Gateway
from lightgate.gateway.http.shared import Shared, shared_name
from lightgate.gateway.request.refusal import Refusal, Refusing


def fake(**facts: Any) -> Any:
    return SimpleNamespace(**facts)


def owner(*, dialect: str = "openai-chat", started: bool = True) -> tuple[Any, list[Any]]:
    """A request of a client, and what becomes of it."""
    said: list[Any] = []
    exchange = fake(
        request_id=b"mine", id_bytes=b"x-1", cache="off", reply=None,
        request=fake(endpoint=fake(dialect=dialect), found=None),
        alias=fake(cache=fake(pace="instant")), caller=fake(key="key"),
    )  # fmt: skip
    state = fake(
        now_ns=lambda: 5, wall_ns=lambda: 6, draw=lambda: 0.5,
        cache=fake(single_flight=fake(), memory=fake()),
    )  # fmt: skip
    shared: Any = Shared(state, exchange, fake(started=started))
    shared._settle = lambda *facts: said.append(facts)
    return shared, said


@pytest.mark.parametrize("started", [True, False])
@pytest.mark.parametrize(
    ("dialect", "own"), [("anthropic-messages", b"request-id: mine\r\n"), ("openai-chat", b"")]
)
@pytest.mark.parametrize("streamed", [True, False])
async def test_a_kept_answer_is_given_in_its_form_and_counted_as_a_hit(
    monkeypatch: pytest.MonkeyPatch, started: bool, dialect: str, own: bytes, streamed: bool
) -> None:
    shared, said = owner(dialect=dialect, started=started)
    given: list[Any] = []

    async def replay(*facts: Any) -> None:
        given.append(facts)

    monkeypatch.setattr(module, "replay", replay)
    monkeypatch.setattr(module, "hit_lines", lambda *facts: b"hit: %d\r\n" % facts[3])
    kept: Any = fake(streamed=streamed)
    await shared._again(kept)
    [(answer, reply, lines, _)] = given
    assert (answer, reply) == (kept, shared._reply)
    assert lines == (SSE if streamed else JSON) + b"hit: 6\r\n" + own
    assert said == [("hit", kept, 5 if started else None)]


async def test_an_answer_that_breaks_off_on_its_way_is_counted_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shared, said = owner()

    async def replay(*facts: Any) -> None:
        raise ConnectionError

    monkeypatch.setattr(module, "replay", replay)
    monkeypatch.setattr(module, "hit_lines", lambda *facts: b"")
    with pytest.raises(ConnectionError):
        await shared._again(fake(streamed=True))
    assert [facts[0] for facts in said] == ["hit"]


@pytest.mark.parametrize(("part", "settled"), [("join", [("join", "made", 7, 206)]), ("lead", [])])
async def test_one_that_came_along_is_settled_once_the_call_is(
    part: str, settled: list[Any]
) -> None:
    shared, said = owner()
    waiting: list[Any] = []
    answer = fake(when_settled=waiting.append, made=None, status=206)

    async def share(name: bytes, participant: Any) -> Any:
        assert (name, participant.reply) == (b"name", shared._reply)
        return answer, fake(part=part, first_out_ns=7)

    shared._name = b"name"
    shared._state.cache.single_flight.share = share
    await shared._along()
    assert said == []
    answer.made = "made"  # once the call is settled
    for tell in waiting:
        tell()
    assert said == settled


async def test_one_whose_client_left_is_settled_without_an_answer() -> None:
    shared, said = owner()

    async def share(name: bytes, participant: Any) -> Any:
        raise ConnectionError

    shared._state.cache.single_flight.share = share
    with pytest.raises(ConnectionError):
        await shared._along()
    assert said == [("join", None, None)]


def test_a_participant_is_told_its_own_lines_and_a_break_in_its_dialect() -> None:
    shared, _ = owner(dialect="anthropic-messages")
    participant: Any = shared._participant()
    assert participant.own_headers(b"x-a: b\r\n", "lead") == b"x-a: b\r\n"
    told = participant.own_headers(b"x-a: b\r\n", "join")
    assert told == follower_lines(b"x-a: b\r\n", b"mine", b"x-1") != b"x-a: b\r\n"
    refusal = Refusal(status=502, message="No target could answer.", code="unavailable")
    assert participant.error_event(502) == refusal.event("anthropic-messages")


async def test_a_leader_that_is_refused_says_so_to_all(monkeypatch: pytest.MonkeyPatch) -> None:
    shared, _ = owner()
    refusal = fake(send=lambda *facts: sent.append(facts))
    sent: list[Any] = []

    async def refuse(state: Any, exchange: Any) -> None:
        assert exchange.cache == "miss"
        raise Refusing(Refusal(status=429, message="Later.", code="rpm"))

    monkeypatch.setattr(module, "admit_shared", refuse)
    monkeypatch.setattr(Refusal, "send", lambda self, *facts: refusal.send(self.status, *facts))
    answer: Any = fake()
    await shared._lead(answer)
    assert sent == [(429, answer, "openai-chat", b"x-request-id: mine\r\n")]


def test_the_key_of_a_large_body_is_the_one_that_was_found_with_it() -> None:
    assert shared_name(fake(request=fake(found=fake(shared=b"key")))) == b"key"
    assert shared_name(fake(request=fake(found=fake(shared=None)))) is None


def test_without_a_winner_nothing_is_kept_and_a_doubtful_answer_for_nobody_else() -> None:
    shared, _ = owner()
    answer: Any = fake(made=None)
    note = fake(winner=None)
    shared._keep(answer, fake(exchange=note, attempts=()), sound=True)
    assert answer.made is None
    note = fake(winner="a/m", tokens_in=1, tokens_out=2, cost_nano=3)
    shared._keep(answer, fake(exchange=note, attempts=()), sound=False)
    assert answer.made == Made("a/m", 1, 2, 3, 6)


def test_a_worker_that_shares_limits_says_how_its_store_is() -> None:
    told: list[Any] = []
    gateway: Any = fake(
        _unready=list,
        _state=fake(
            draining=False,
            store=fake(state="joined"),
            journal=fake(lost=False, tight=lambda: False),
        ),
    )
    Gateway._ready(gateway, fake(whole=lambda *facts: told.append(facts)))
    assert [(status, body) for status, _, body in told] == [
        (200, b'{"status":"ready","shared":"joined"}')
    ]
