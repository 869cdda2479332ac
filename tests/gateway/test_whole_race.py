"""Whole answers raced and hedged: streams inside, one whole body outside or none."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from gateway.faulted import Field, model
from gateway.test_faults_race import save_up, spend_all
from lightgate.errors import LightgateError
from lightgate.gateway.exchange import settle, whole
from lightgate.gateway.exchange.large import read_large_answer
from sim.conftest import SAY

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from gateway.conftest import Rig, Start
    from lightgate.ledger.journal.notes import Settled
    from lightgate.route.plan.finish import Rival
    from sim.conftest import Answer

HANG = "lab/plain!hang"
SLOW = "lab/plain!silence:0.3"
HEDGE = 'hedge = "100ms"'
CONTENTS = [{"role": "user", "parts": [{"text": "Say something."}]}]
CLIENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", {"model": "m", "messages": SAY, "max_tokens": 24}),
    "responses": ("/v1/responses", {"model": "m", "input": "Hi", "max_output_tokens": 24}),
    "anthropic": ("/v1/messages", {"model": "m", "messages": SAY, "max_tokens": 24}),
    "gemini": (
        "/v1beta/models/m:generateContent",
        {"contents": CONTENTS, "generationConfig": {"maxOutputTokens": 24}},
    ),
}


def text_of(client: str, whole: Any) -> str:
    """What an answer says, in the shape of the client's official SDK."""
    if client == "chat":
        assert whole["object"] == "chat.completion"
        return str(whole["choices"][0]["message"]["content"])
    if client == "responses":
        assert (whole["object"], whole["status"]) == ("response", "completed")
        return str(whole["output"][0]["content"][0]["text"])
    if client == "anthropic":
        assert (whole["type"], whole["stop_reason"]) == ("message", "end_turn")
        return str(whole["content"][0]["text"])
    assert whole["candidates"][0]["finishReason"] == "STOP"
    return str(whole["candidates"][0]["content"]["parts"][0]["text"])


def plain(answer: Any) -> Any:
    """An answer without what is another one every time."""
    if isinstance(answer, dict):
        skip = ("id", "created", "created_at", "responseId", "call_id", "signature", "item_id")
        return {name: plain(value) for name, value in answer.items() if name not in skip}
    return [plain(one) for one in answer] if isinstance(answer, list) else answer


def outcomes(settled: Settled) -> list[str]:
    return [str(note.outcome.value) for note in settled.attempts]


async def raced(start: Start, targets: list[str], more: str = "race = 2", **fields: Any) -> Any:
    field = await Field.open(start, model("m", targets, more))
    return field, *(await field.fly("m", stream=False, **fields))[:2]


async def asked(field: Field, client: str, **more: Any) -> tuple[Answer, Settled]:
    path, body = CLIENTS[client]
    answer = await field.rig.ask(path, body | more, **field.headers)
    await field.at_peace()
    return answer, field.rig.settled()[-1]


@pytest.mark.parametrize("provider", ["lab", "anthropic", "gemini"])
@pytest.mark.parametrize("client", CLIENTS)
async def test_every_client_hears_every_provider(start: Start, client: str, provider: str) -> None:
    targets = [f"{provider}/plain", f"{provider}/plain!hang"]
    serial = model("alone", targets[:1])
    serial = serial[: serial.index("[prices")] if provider != "lab" else serial
    field = await Field.open(start, model("m", targets, "race = 2") + serial)
    answer, settled = await asked(field, client)
    assert answer.status == 200, answer.body
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-lightgate-target"] == targets[0]
    assert "x-lightgate-ttft-ms" not in answer.headers
    assert float(answer.headers["x-lightgate-cost-usd"]) > 0
    assert len(text_of(client, answer.json)) > 24
    exchange = settled.exchange
    assert (exchange.streamed, exchange.status, exchange.outcome) == (False, 200, "ok")
    won, lost = settled.attempts
    assert (won.streamed, won.outcome.value, lost.outcome.value) == (True, "ok", "cancelled")
    assert (won.facts.won, lost.facts.won) == (True, False)
    assert won.first is not None
    assert won.last is not None
    assert exchange.tokens_out == won.tokens_out == 24
    assert exchange.loser_cost_nano
    # The same as a target that is asked alone, and whole, says.
    path, body = CLIENTS[client]
    path = path.replace("models/m", "models/alone")
    body = body | ({"model": "alone"} if "model" in body else {})
    alone = await field.rig.ask(path, body, **field.headers)
    await field.at_peace()
    assert not field.rig.settled()[-1].attempts[0].streamed
    assert shape(plain(alone.json)) == shape(plain(answer.json))


def shape(value: Any) -> Any:
    """Names and types; the words of a model differ from answer to answer."""
    if isinstance(value, dict):
        return {name: shape(one) for name, one in sorted(value.items())}
    if isinstance(value, list):
        return [shape(one) for one in value]
    return type(value).__name__


@pytest.mark.parametrize("kind", ["think", "tool", "mixed", "hidden", "rough"])
async def test_all_that_a_model_says_is_in_it(start: Start, kind: str) -> None:
    models = model("m", [f"lab/{kind}", HANG], "race = 2") + model("n", ["lab/plain"])
    field = await Field.open(start, models)
    answer, settled, _ = await field.fly("m", stream=False, max_tokens=40)
    alone = await field.rig.chat(f"lab/{kind}", headers=field.headers, stream=False, max_tokens=40)
    assert answer.status == alone.status == 200
    assert settled.attempts[0].streamed
    assert shape(plain(alone.json)) == shape(plain(answer.json))
    assert plain(alone.json)["usage"] == plain(answer.json)["usage"]


async def test_completions_are_raced_too(start: Start) -> None:
    field = await Field.open(start, model("m", ["lab/plain", HANG], "race = 2"))
    body = {"model": "m", "prompt": "Say", "max_tokens": 12}
    answer = await field.rig.ask("/v1/completions", body, **field.headers)
    assert answer.json["object"] == "text_completion"
    assert answer.json["choices"][0]["finish_reason"] == "stop"
    assert answer.json["usage"]["completion_tokens"] == 12
    assert answer.json["choices"][0]["text"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/embeddings", {"model": "m", "input": "Hi"}),
        ("/v1/completions", {"model": "m", "prompt": "Say", "max_tokens": 4, "best_of": 2}),
    ],
)
async def test_what_cannot_be_streamed_is_asked_once(
    start: Start, path: str, body: dict[str, Any]
) -> None:
    field = await Field.open(start, model("m", ["lab/plain", "lab/mixed"], "race = 2"))
    answer = await field.rig.ask(path, body, **field.headers)
    await field.at_peace()
    assert answer.status == 200, answer.body
    assert [note.streamed for note in field.rig.settled()[-1].attempts] == [False]


async def test_a_plan_without_overlap_stays_whole_inside(start: Start) -> None:
    _, answer, settled = await raced(start, ["lab/plain!status:500", "lab/plain"], "")
    assert answer.status == 200
    assert [note.streamed for note in settled.attempts] == [False, False]


@pytest.mark.parametrize(
    ("fault", "outcome"),
    [
        ("rate-limited:2", "rate_limited"),
        ("status:503", "http_error"),
        ("stream-error:0", "stream_error"),
        ("truncated:0", "truncated"),
        ("reset:0", "reset"),
        ("garbage", "truncated"),
        ("html", "stream_error"),
        ("empty", "empty"),
        ("hang", "cancelled"),
        ("stall:0", "cancelled"),
        ("early-role:0.4", "cancelled"),
    ],
)
async def test_one_that_says_nothing_loses(start: Start, fault: str, outcome: str) -> None:
    _, answer, settled = await raced(start, [f"lab/plain!{fault}", "lab/plain!silence:0.1"])
    assert answer.status == 200, answer.body
    assert settled.exchange.winner == "lab/plain!silence:0.1"
    assert outcomes(settled) == [outcome, "ok"]


@pytest.mark.parametrize(
    ("fault", "outcome"),
    [
        ("truncated:5", "truncated"),
        ("reset:5", "reset"),
        ("stream-error:1", "stream_error"),
        ("stream-error:9", "stream_error"),
        ("stall:5", "timeout"),
        ("bad-chunk:1", "stream_error"),
        ("finish:abort", "stream_error"),
    ],
)
async def test_a_winner_that_breaks_off_is_followed(start: Start, fault: str, outcome: str) -> None:
    """It has the race, and then nothing to show for it: the client hears of another one only."""
    field, answer, settled = await raced(start, [f"lab/plain!{fault}", SLOW])
    assert answer.status == 200, answer.body
    assert len(answer.json["choices"][0]["message"]["content"]) > 12
    assert outcomes(settled) == [outcome, "cancelled", "ok"]
    assert [note.facts.role for note in settled.attempts] == ["racer", "racer", "fallback"]
    assert [note.facts.won for note in settled.attempts] == [False, False, True]
    assert settled.exchange.winner == SLOW
    assert settled.exchange.error is None
    assert field.rig.state.learned.forms.form(SLOW).in_flight == 0


async def test_it_is_followed_by_the_next_of_the_plan_too(start: Start) -> None:
    targets = ["lab/plain!truncated:5", "lab/plain!stall:5", "lab/plain"]
    _, answer, settled = await raced(start, targets)
    assert answer.status == 200
    assert settled.exchange.winner == "lab/plain"
    assert [note.facts.target for note in settled.attempts][-1] == "lab/plain"


async def test_a_broken_answer_is_never_a_200(start: Start) -> None:
    """Nobody is left, or may be asked: the client is told so, in its dialect."""
    field = await Field.open(start, model("m", ["lab/plain!truncated:5", SLOW], "race = 2"))
    spend_all(field)
    answer, settled, _ = await field.fly("m", stream=False)
    assert answer.status == 502
    assert "truncated" in json.dumps(answer.json) or "terminal marker" in json.dumps(answer.json)
    assert outcomes(settled) == ["truncated", "cancelled"]
    assert settled.exchange.winner is None
    assert (settled.exchange.status, settled.exchange.outcome) == (502, "truncated")

    broken = ["lab/plain!truncated:5", "lab/plain!truncated:4"]
    field = await Field.open(start, model("m", broken, "race = 2"))
    answer, settled, _ = await field.fly("m", stream=False)
    assert answer.status == 502
    assert [word for word in outcomes(settled) if word != "cancelled"] == ["truncated"] * 2


@pytest.mark.parametrize("dialect", ["anthropic", "gemini"])
async def test_errors_inside_are_told_in_the_clients_shape(start: Start, dialect: str) -> None:
    targets = [f"{dialect}/plain!truncated:5", f"{dialect}/plain!truncated:4"]
    field = await Field.open(start, model("m", targets, "race = 2"))
    answer, settled = await asked(field, dialect)
    assert answer.status == 502
    assert answer.json["error"]["message"]
    assert settled.exchange.streamed is False


async def test_losers_are_closed_when_the_first_one_speaks(start: Start) -> None:
    """The winner is still in the middle of its answer, and nobody else has a socket."""
    field = await Field.open(start, model("m", ["lab/plain!stall:5,0.4", HANG], "race = 2"))
    rig = field.rig
    task = asyncio.create_task(rig.chat("m", headers=field.headers, stream=False))
    await rig.until(lambda: rig.upstream == 2)
    await rig.until(lambda: any(one.winner is not None for one in rig.exchanges))
    await rig.until(lambda: rig.upstream == 1)
    assert not task.done()
    answer = await task
    assert answer.status == 200
    await field.at_peace()
    won, _ = rig.settled()[-1].attempts
    (closed,) = [entry for entry in rig.sim.log.entries if entry.fault == "hang"]
    assert closed.gone
    assert won.first is not None
    assert closed.ended_ns is not None
    assert closed.ended_ns - won.first < 100_000_000


@pytest.mark.parametrize("fault", ["hang", "silence:0.5", "early-role:0.4"])
async def test_a_hedge_answers_whole_for_one_that_is_late(start: Start, fault: str) -> None:
    targets = [f"lab/plain!{fault}", "lab/plain"]
    models = model("m", targets, HEDGE).replace('hedge = "off"\n', "", 1)
    field = await Field.open(start, models)
    save_up(field)
    answer, settled, _ = await field.fly("m", stream=False)
    assert answer.status == 200
    assert answer.json["object"] == "chat.completion"
    assert settled.exchange.winner == "lab/plain"
    assert [note.facts.role for note in settled.attempts] == ["primary", "hedge"]
    assert outcomes(settled) == ["cancelled", "ok"]


async def test_a_hedge_that_is_not_needed_costs_nothing(start: Start) -> None:
    models = model("m", ["lab/plain", "lab/mixed"], 'hedge = "1s"').replace(
        'hedge = "off"\n', "", 1
    )
    field = await Field.open(start, models)
    save_up(field)
    answer, settled, _ = await field.fly("m", stream=False)
    assert answer.status == 200
    assert [(note.facts.role, note.streamed) for note in settled.attempts] == [("primary", True)]
    assert settled.exchange.loser_cost_nano is None


async def test_the_predicted_end_decides(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who speaks first is held back while a better finisher is silent; the plan need not say so."""
    first, better = "lab/plain!stall:5,0.5", "lab/plain!silence:0.1"

    def wait(spoke: Rival, *rest: Any) -> int | None:
        return int(rest[-1] + 1_000_000_000) if spoke.target == first else None

    monkeypatch.setattr(settle, "waits_ns", wait)
    _, answer, settled = await raced(start, [first, better])
    assert answer.headers["x-lightgate-target"] == better
    assert outcomes(settled) == ["cancelled", "ok"]


async def test_one_that_is_held_back_answers_where_nobody_better_comes(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settle, "waits_ns", lambda *rest: rest[-1] + 50_000_000)
    _, answer, settled = await raced(start, ["lab/plain!stall:5,0.3", HANG])
    assert answer.status == 200
    assert outcomes(settled) == ["ok", "cancelled"]


async def test_an_answer_that_is_too_long_is_no_answer(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole, "ASSEMBLED_LIMIT", 300)
    _, answer, settled = await raced(start, ["lab/plain", SLOW], max_tokens=200)
    assert answer.status >= 400
    assert set(outcomes(settled)) <= {"stream_error", "cancelled"}
    assert "larger than 300 bytes" in (settled.exchange.error or "")


@pytest.mark.parametrize("client", ["anthropic", "responses", "gemini"])
async def test_a_large_answer_is_translated_beside_the_loop(
    client: str, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside: list[bytes] = []

    async def noted(exchange: Any, prepared: Any, body: bytes) -> Any:
        beside.append(body)
        return await read_large_answer(exchange, prepared, body)

    monkeypatch.setattr(whole, "read_large_answer", noted)
    field = await Field.open(start, model("m", ["lab/plain", "lab/plain!silence:0.01"], "race = 2"))
    assert (await asked(field, client))[0].status == 200
    assert beside == []  # it is small
    monkeypatch.setattr(whole, "TRANSLATED_LIMIT", 300)
    answer, settled = await asked(field, client)
    assert answer.status == 200
    (body,) = beside
    assert text_of(client, json.loads(answer.body)) == text_of("chat", json.loads(body))
    assert settled.exchange.outcome == "ok"
    assert (await asked(field, "chat"))[0].status == 200
    assert len(beside) == 1  # nothing is translated for a client of chat


async def test_a_large_answer_that_cannot_be_translated_beside_is_no_answer(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def failing(*_: Any) -> Any:
        raise LightgateError("The process beside ended.")

    monkeypatch.setattr(whole, "TRANSLATED_LIMIT", 300)
    monkeypatch.setattr(whole, "read_large_answer", failing)
    field = await Field.open(start, model("m", ["lab/plain", "lab/plain!silence:0.01"], "race = 2"))
    answer, settled = await asked(field, "anthropic")
    assert answer.status >= 400
    assert "The process beside ended." in (settled.exchange.error or "")


async def test_a_defect_beside_the_loop_ends_the_request(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: Any) -> Any:
        raise RuntimeError("defect")

    monkeypatch.setattr(whole, "TRANSLATED_LIMIT", 300)
    monkeypatch.setattr(whole, "read_large_answer", broken)
    field = await Field.open(start, model("m", ["lab/plain", "lab/plain!silence:0.01"], "race = 2"))
    answer, settled = await asked(field, "anthropic")
    assert answer.status == 500
    assert settled.exchange.outcome != "ok"


async def test_a_provider_that_does_not_stream_may_answer_whole(start: Start) -> None:
    """It was asked to stream and did not; the client does not mind."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
    message = {"role": "assistant", "content": "Hello"}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    body = json.dumps({"object": "chat.completion", "choices": [choice]}).encode()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await reader.readuntil(b"\r\n\r\n")
        assert b"text/event-stream" in asked
        writer.write(head % (len(body), body))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    deaf = f'[providers.deaf]\nbase_url = "http://127.0.0.1:{port}/v1"\ndialect = "openai"\n'
    deaf += 'api_key = "none"\n'
    field = await Field.open(start, deaf + model("m", ["deaf/plain", HANG], "race = 2"))
    answer = await field.rig.chat("m", headers=field.headers, stream=False)
    server.close()
    assert answer.body == body
    await field.rig.until(lambda: bool(field.rig.settled()))
    settled = field.rig.settled()[-1]
    assert outcomes(settled) == ["ok", "cancelled"]
    assert [note.streamed for note in settled.attempts] == [False, False]


async def test_a_client_that_leaves_closes_the_winner_too(start: Start) -> None:
    field = await Field.open(start, model("m", ["lab/plain!stall:5", HANG], "race = 2"))
    rig = field.rig
    line = await rig.line()
    body = json.dumps(CLIENTS["chat"][1]).encode()
    line.send("POST", "/v1/chat/completions", body, field.headers)
    await rig.until(lambda: any(one.winner is not None for one in rig.exchanges))
    await line.close()
    await field.at_peace()
    settled = rig.settled()[-1]
    assert (settled.exchange.status, settled.exchange.outcome) == (499, "cancelled")
    assert outcomes(settled) == ["cancelled", "cancelled"]


async def test_a_worker_that_stops_says_so(start: Start) -> None:
    field = await Field.open(start, model("m", ["lab/plain!stall:5", HANG], "race = 2"))
    rig = field.rig
    task = asyncio.create_task(rig.chat("m", headers=field.headers, stream=False))
    await rig.until(lambda: any(one.winner is not None for one in rig.exchanges))
    for one in list(rig.exchanges):
        one.stop()
    answer = await task
    await field.at_peace()
    assert answer.status == 503
    settled = rig.settled()[-1]
    assert (settled.exchange.status, settled.exchange.winner) == (503, None)


async def test_a_checked_tier_is_raced_and_read(start: Start) -> None:
    """A cascade checks what was gathered, as it checks a whole answer."""
    prices = [f'[prices."{name}"]\ninput = 1\noutput = 2\n' for name in (HANG, "lab/mixed")]
    schema = {"name": "s", "schema": {"type": "object", "required": ["zero"]}}
    models = (
        '[models.m]\npolicy = "cascade"\nrace = 2\nverify = ["json_schema"]\ntimeout = "2s"\n'
        f'tiers = [{{{{ upto = "medium", targets = ["lab/plain", "{HANG}"] }}}},'
        ' {{ targets = ["lab/mixed"] }}]\n'
    )
    field = await Field.open(start, models + "".join(prices))
    wish = {"type": "json_schema", "json_schema": schema}
    answer, settled, _ = await field.fly("m", stream=False, response_format=wish)
    assert answer.status == 200, answer.body
    assert settled.attempts[0].streamed
    assert "failed json_schema" in settled.exchange.plan
    assert settled.exchange.winner == "lab/mixed"


async def test_many_at_once_have_one_winner_each(start: Start) -> None:
    field = await Field.open(start, model("m", ["lab/plain", "lab/mixed"], "race = 2"))
    rig: Rig = field.rig
    answers = await asyncio.gather(
        *(rig.chat("m", headers=field.headers, stream=False) for _ in range(40))
    )
    await field.at_peace()
    assert all(answer.status == 200 for answer in answers)
    for settled in rig.settled():
        assert sum(bool(note.facts.won) for note in settled.attempts) == 1


WHOLE_ONLY = """
[providers.shy]
base_url = "http://127.0.0.1:{shy}/v1"
api_key = "none"
[models.m]
targets = ["shy/model", "lab/plain!hang"]
policy = "fastest"
hedge = "10s"
[models.streamed]
targets = ["shy/model", "lab/plain"]
policy = "ordered"
"""
ANSWER = {
    "id": "x",
    "object": "chat.completion",
    "choices": [
        {"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}
    ],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
}
NO_STREAM = {"message": "Unsupported value: 'stream' does not support true.", "param": "stream"}


@pytest.fixture
async def shy() -> AsyncIterator[tuple[int, list[bool]]]:
    """A provider that answers whole only: its port, and for each request whether to stream it."""
    asked: list[bool] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        wanted = json.loads(await reader.readexactly(length))
        asked.append(bool(wanted.get("stream")))
        wrong = asked[-1] or "streamer" in wanted
        status = b"400 Bad Request" if wrong else b"200 OK"
        body = json.dumps({"error": NO_STREAM} if wrong else ANSWER).encode()
        line = b"HTTP/1.1 %b\r\ncontent-type: application/json\r\nconnection: close\r\n"
        writer.write(line % status + b"content-length: %d\r\n\r\n%b" % (len(body), body))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1], asked
    server.close()


async def before(start: Start, port: int) -> Rig:
    """A gateway that takes the shy one for the fastest, and may hedge."""
    rig = await start(WHOLE_ONLY.replace("{shy}", str(port)))
    rig.state.learned.forms.first("shy/model", 0, rig.state.now_ns(), 1_000_000)
    for _ in range(20):  # so many requests that a hedge is within its share
        rig.state.learned.budgets.deposit("")
    rig.state.learned.budgets.paid("", 1e9)
    return rig


async def test_a_target_that_will_not_stream_is_asked_for_the_whole(
    start: Start, shy: tuple[int, list[bool]]
) -> None:
    port, asked = shy
    rig = await before(start, port)
    for _ in range(2):
        answer = await rig.ask("/v1/chat/completions", {"model": "m", "messages": SAY})
        assert (answer.status, answer.json["choices"][0]["message"]["content"]) == (200, "Hi")
    assert asked == [True, False, False]  # once is enough to know it
    await rig.until(lambda: len(rig.settled()) == 2)
    first, second = rig.settled()
    assert [note.status for note in first.attempts] == [400, 200]
    assert [note.status for note in second.attempts] == [200]
    assert first.exchange.winner == "shy/model"


async def test_a_wrong_request_does_not_make_a_target_shy(
    start: Start, shy: tuple[int, list[bool]]
) -> None:
    """Or one tenant could take the hedges of all others away."""
    port, asked = shy
    rig = await before(start, port)
    wrong = {"model": "m", "messages": SAY, "streamer": 1}
    answer = await rig.ask("/v1/chat/completions", wrong)
    assert answer.status == 400
    assert asked == [True, False]
    assert not rig.state.learned.unstreamable


async def test_a_client_that_wants_a_stream_gets_it_elsewhere_or_is_told(
    start: Start, shy: tuple[int, list[bool]]
) -> None:
    port, asked = shy
    rig = await before(start, port)
    body = {"model": "shy/model", "messages": SAY, "stream": True}
    answer = await rig.ask("/v1/chat/completions", body)
    assert answer.status == 400
    assert b"does not support true" in answer.body
    answer = await rig.ask("/v1/chat/completions", body | {"model": "streamed"})
    assert answer.status == 200
    assert answer.headers["x-lightgate-target"] == "lab/plain"
    assert asked == [True, True]
