"""The handler of the data plane: health, paths that do not exist, and the headers of refusals."""

from __future__ import annotations

import asyncio
import inspect
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from lightgate.errors import UsageError
from lightgate.gateway.http.app import Gateway, _no_path, _plainly
from lightgate.gateway.http.count import _CountReply
from lightgate.gateway.request.refusal import Refusal, Refusing
from lightgate.route.plan.alias import Alias
from sim.conftest import SAY

if TYPE_CHECKING:
    from gateway.conftest import Rig

CHAT = {"model": "lab/plain", "messages": SAY, "max_tokens": 4}


class Told:
    """A reply that keeps what it is told."""

    def __init__(self) -> None:
        self.said: list[tuple[int, Any, bytes]] = []

    def whole(self, status: int, headers: Any, body: bytes) -> None:
        self.said.append((status, headers, body))

    def send(self, _: bytes) -> bool:
        raise AssertionError


async def test_readiness_names_the_workers_that_do_not_listen(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    json = ((b"content-type", b"application/json"),)
    missing: list[str] = []
    gateway = Gateway(rig.state, rig.data, lambda: missing)
    told: Any = Told()
    gateway._ready(told)
    missing = ["worker-1", "console"]
    gateway._ready(told)
    missing = []
    with monkeypatch.context() as patched:
        patched.setattr(rig.state.journal, "tight", lambda: True)
        gateway._ready(told)
    with monkeypatch.context() as patched:
        patched.setattr(rig.state.journal._journal, "lost", True)
        gateway._ready(told)
    rig.state.draining = True
    gateway._ready(told)
    assert told.said == [
        (200, json, b'{"status":"ready"}'),
        (503, json, b'{"status":"not ready","not_ready":["worker-1","console"]}'),
        (503, json, b'{"status":"disk full"}'),
        (503, json, b'{"status":"journal deleted"}'),
        (503, json, b'{"status":"draining"}'),
    ]
    gateway.close()
    live = await rig.ask("/health/live")
    assert (live.status, live.json) == (200, {"status": "live", "service": "lightgate"})
    for path in ("/health", "/health/ready"):
        answer = await rig.ask(path)
        assert (answer.status, answer.json) == (503, {"status": "draining"})
        assert answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        (
            b"/v1/v1/chat/completions",
            (
                "There is no /v1/v1/chat/completions here: the client adds /v1 to its base URL,"
                " which ends in /v1 already. Take /v1 off the base URL."
            ),
        ),
        (
            b"/v1/v1/v1beta/models",
            (
                "There is no /v1/v1/v1beta/models here: the client adds /v1beta to its base URL,"
                " which ends in /v1beta already. Take /v1beta off the base URL."
            ),
        ),
        (b"/v1/x", "There is no /v1/x here. docs/reference/http.md lists the endpoints."),
        (b"/v1beta/x", "There is no /v1beta/x here. docs/reference/http.md lists the endpoints."),
        (
            b"/" + b"x" * 200,
            (
                f"There is no /{'x' * 79} here. Use a base URL that ends in /v1, such as"
                " POST /v1/chat/completions."
            ),
        ),
        (
            b"/v1",
            (
                "There is no /v1 here. Use a base URL that ends in /v1, such as POST"
                " /v1/chat/completions."
            ),
        ),
    ],
)
def test_the_sentence_about_a_path_that_does_not_exist(path: bytes, sentence: str) -> None:
    assert _no_path(path) == sentence


async def test_refusals_have_the_request_id_the_dialect_and_a_count(rig: Rig) -> None:
    named = await rig.ask("/v1/nothing?q=1", CHAT, x_request_id="mine-1")
    assert (named.status, named.headers["x-request-id"]) == (404, "mine-1")
    assert named.json["error"]["code"] == "unknown_path"
    assert "There is no /v1/nothing here." in named.json["error"]["message"]
    unsound = await rig.ask("/v1/nothing", CHAT, x_request_id="a b")
    assert UUID(unsound.headers["x-request-id"]).version == 7
    wrong = await rig.ask("/v1/chat/completions")
    assert (wrong.status, wrong.headers["allow"]) == (405, "POST")
    assert wrong.json["error"]["message"] == "This path answers to POST."
    reads = await rig.ask("/v1/models", CHAT)
    assert (reads.status, reads.headers["allow"]) == (405, "GET, HEAD")
    assert dict(rig.state.refused) == {"unknown_path": 2, "method": 2}
    assert (await rig.ask("/v1/messages/x", CHAT)).json["type"] == "error"
    assert (await rig.ask("/v1beta/x", CHAT)).json["error"]["status"] == "NOT_FOUND"
    assert (await rig.ask("/v1/messages", {"model": "none"})).json["type"] == "error"


@pytest.mark.parametrize(
    ("headers", "path", "place"),
    [
        ({}, "/v1/models/nothing-such", "openai"),
        ({"anthropic_version": "2023-06-01"}, "/v1/models/nothing-such", "anthropic"),
        ({"x_goog_api_key": "k"}, "/v1/models/nothing-such", "gemini"),
        ({"anthropic_version": "x", "x_goog_api_key": "k"}, "/v1/models/nothing-such", "anthropic"),
        ({}, "/v1beta/models/nothing-such", "gemini"),
    ],
)
async def test_a_list_of_models_is_in_the_dialect_that_the_client_shows(
    rig: Rig, headers: dict[str, str], path: str, place: str
) -> None:
    answer = await rig.ask(path, **headers)
    assert answer.status == 404
    found = answer.json
    dialect = "anthropic" if found.get("type") == "error" else None
    dialect = dialect or ("gemini" if "status" in found["error"] else "openai")
    assert dialect == place


def test_sound_takes_a_cascade_and_its_checks_off_the_plan() -> None:
    exchange: Any = type("Only", (), {})()
    plain = Alias(name="m", targets=("a/m", "b/m"))
    for alias, policy in (
        (
            Alias(name="m", targets=("a/m", "b/m"), policy="cascade", tiers=((None, ("a/m",)),)),
            "ordered",
        ),
        (Alias(name="m", targets=("a/m", "b/m"), policy="fastest", verify=("json",)), "fastest"),
    ):
        exchange.alias = alias
        _plainly(exchange)
        assert (exchange.alias.tiers, exchange.alias.verify) == ((), ())
        assert (exchange.alias.policy, exchange.alias.targets) == (policy, ("a/m", "b/m"))
    exchange.alias = plain
    _plainly(exchange)
    assert exchange.alias is plain


@pytest.mark.parametrize(
    ("status", "sent", "source"),
    [
        (200, 200, b"provider"),
        *[(status, 200, b"estimate") for status in (404, 405, 429, 500, 503, 529)],
        *[(status, status, None) for status in (400, 401, 403, 406, 413, 428, 430, 499)],
    ],
)
def test_a_count_that_failed_for_another_reason_than_the_request_is_estimated(
    status: int, sent: int, source: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lightgate.gateway.http import count

    monkeypatch.setattr(count, "_estimated", lambda _: b"estimated")
    exchange: Any = type("Only", (), {"request_id": b"r", "id_bytes": b"i"})()
    told: Any = Told()
    _CountReply(told, exchange).whole(status, b"a: b\r\n", b"body")
    ((code, headers, body),) = told.said
    assert code == sent
    if source is None:
        assert (headers, body) == (b"a: b\r\n", b"body")
    elif source == b"provider":
        assert headers == b"a: b\r\nx-lightgate-count-source: provider\r\n"
        assert body == b"body"
    else:
        assert body == b"estimated"
        assert headers == (
            b"content-type: application/json\r\nx-request-id: r\r\nx-lightgate-id: i\r\n"
            b"x-lightgate-count-source: estimate\r\n"
        )


async def test_an_estimate_counts_as_a_request_with_its_ids(rig: Rig) -> None:
    body = {"model": "lab/plain", "messages": [{"role": "user", "content": "hello"}]}
    answer = await rig.ask("/v1/messages/count_tokens", body, x_request_id="mine")
    assert answer.headers["x-request-id"] == "mine"
    (settled,) = rig.settled()
    assert answer.headers["x-lightgate-id"] == settled.exchange.id
    assert answer.headers["content-type"] == "application/json"


async def test_work_whose_client_left_before_it_began_is_put_away() -> None:
    state = SimpleNamespace(loop=asyncio.get_running_loop(), keep=lambda _: None)
    reply = SimpleNamespace(finished=False, on_lost=None)
    begun: list[str] = []

    async def answer() -> None:
        begun.append("answer")

    work = answer()
    Gateway._tasks(SimpleNamespace(_state=state), None, reply, work)  # type: ignore[arg-type]
    reply.on_lost()
    for _ in range(3):
        await asyncio.sleep(0)
    assert (begun, inspect.getcoroutinestate(work)) == ([], inspect.CORO_CLOSED)


class Lent:
    """A reply that keeps what its task does to it."""

    def __init__(self, *, started: bool = False, finished: bool = False) -> None:
        self.started, self.finished = started, finished
        self.on_lost: Any = None
        self.said: list[Any] = []

    def abort(self) -> None:
        self.said.append("abort")

    def fail(self, error: Exception | None) -> None:
        self.said.append(error)


async def carried_out(reply: Any, work: Any, *, lose: bool = False) -> list[Refusal]:
    """Carry work out as a task; the refusals that came of it."""
    kept: list[asyncio.Task[None]] = []
    refused: list[Refusal] = []
    state = SimpleNamespace(loop=asyncio.get_running_loop(), keep=kept.append)
    gateway: Any = SimpleNamespace(
        _state=state, _refuse=lambda refusal, *_: refused.append(refusal)
    )
    Gateway._tasks(gateway, None, reply, work)  # type: ignore[arg-type]
    await asyncio.sleep(0)
    if lose:
        reply.on_lost()
    await asyncio.wait(kept)
    assert kept[0].cancelled() is lose
    return refused


async def test_work_whose_client_leaves_cuts_off_a_reply_that_is_not_finished() -> None:
    for finished, said in ((False, ["abort"]), (True, [])):
        reply = Lent(finished=finished)
        assert await carried_out(reply, asyncio.Event().wait(), lose=True) == []
        assert reply.said == said


async def test_work_that_fails_is_refused_before_its_reply_and_fails_it_afterwards() -> None:
    async def fail(error: Exception) -> None:
        raise error

    refusal = Refusal(status=409, message="no", code="mine")
    reply = Lent()
    assert await carried_out(reply, fail(Refusing(refusal))) == [refusal]
    (told,) = await carried_out(reply, fail(UsageError("wrong")))
    assert (told.status, told.message, reply.said) == (400, "wrong", [])
    begun, error, defect = Lent(started=True), UsageError("late"), ValueError("a defect")
    assert await carried_out(begun, fail(error)) == []
    assert begun.said == [error]
    assert await carried_out(reply, fail(defect)) == []
    assert reply.said == [defect]


@pytest.mark.parametrize("started", [False, True])
async def test_an_error_behind_the_start_of_an_answer_is_the_doors(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, started: bool
) -> None:
    def fails(exchange: Any) -> None:
        if started:
            exchange.reply.start(200, b"content-type: text/plain\r\n")
        raise UsageError("No.", hint="Never.")

    monkeypatch.setattr("lightgate.gateway.http.app.begin", fails)
    answer = await rig.chat()
    failed = [one for one in caplog.messages if "a handler failed with UsageError" in one]
    assert (answer.status, len(failed)) == ((200, 1) if started else (400, 0))


@pytest.mark.parametrize("shares", [False, True])
async def test_only_limits_that_machines_share_are_waited_for(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, shares: bool
) -> None:
    log: list[Any] = []
    shared, caller, inbound, reply = object(), SimpleNamespace(key=object()), object(), object()
    exchange: Any = SimpleNamespace(caller=caller, inbound=inbound)

    async def later(state: Any, given: Any) -> None:
        log.append(("others are asked", state is rig.state, given is exchange))

    module = "lightgate.gateway.http.app"
    limits = lambda state, key: shared if shares and key is caller.key else None  # noqa: E731
    monkeypatch.setattr(f"{module}.shared_limits", limits)
    monkeypatch.setattr(f"{module}.admit_shared", later)
    monkeypatch.setattr(f"{module}.admit", lambda _, given: log.append(("at once", given)))
    monkeypatch.setattr(f"{module}.begin", lambda given: log.append(("begun", given)))
    gateway = Gateway(rig.state, rig.data)
    given: list[Any] = []
    monkeypatch.setattr(gateway, "_tasks", lambda *all_: given.append(all_))
    gateway._admit_later(exchange, reply)  # type: ignore[arg-type]
    if shares:
        assert log == []
        ((of, to, work),) = given
        assert (of, to) == (inbound, reply)
        await work
        assert log == [("others are asked", True, True), ("begun", exchange)]
    else:
        assert (log, given) == ([("at once", exchange), ("begun", exchange)], [])
    gateway.close()
