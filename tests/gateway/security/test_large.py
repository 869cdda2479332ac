"""Large bodies and large answers: never read on the loop, and otherwise like any other."""

from __future__ import annotations

import asyncio
import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from gateway.security.conftest import chat_body, events, whole
from lightgate.gateway.aside import jobs
from lightgate.gateway.request import body as request_body
from lightgate.gateway.request import weight, writer
from lightgate.ledger.store.keys import KeyTerms

if TYPE_CHECKING:
    from gateway.conftest import Rig, Start
    from gateway.security.conftest import Behind, Upstream

MANY = 2000  # parts: above what the loop reads, whatever their size
TEXT = [{"type": "text", "text": f"part {n}"} for n in range(MANY)]
BODIES: dict[str, tuple[str, Any]] = {
    "chat": (
        "/v1/chat/completions",
        {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": TEXT}]},
    ),
    "messages": (
        "/v1/messages",
        {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": TEXT}]},
    ),
    "responses": (
        "/v1/responses",
        {
            "model": "m",
            "max_output_tokens": 9,
            "input": [
                {"role": "user", "content": [{**part, "type": "input_text"} for part in TEXT]}
            ],
        },
    ),
    "gemini": (
        "/v1beta/models/{model}:generateContent",
        {
            "contents": [{"role": "user", "parts": [{"text": part["text"]} for part in TEXT]}],
            "generationConfig": {"maxOutputTokens": 9},
        },
    ),
}
TARGETS = ("raw/m", "rawant/m", "rawgem/m")


def answered(target: str, count: int) -> bytes:
    """A whole answer of so many parts."""
    if target == "raw/m":
        return chat_body("word " * (count * 40))
    if target == "rawant/m":
        parts = [{"type": "text", "text": f"part {n} "} for n in range(count)]
        usage = {"input_tokens": 1, "output_tokens": 2}
        answer = {"type": "message", "id": "m", "role": "assistant", "content": parts}
        return json.dumps({**answer, "stop_reason": "end_turn", "usage": usage}).encode()
    content = {"role": "model", "parts": [{"text": f"part {n} "} for n in range(count)]}
    usage = {"promptTokenCount": 1, "candidatesTokenCount": 2, "totalTokenCount": 3}
    candidates = [{"index": 0, "content": content, "finishReason": "STOP"}]
    return json.dumps({"candidates": candidates, "usageMetadata": usage}).encode()


def said_by_user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def asked(client: str, target: str) -> tuple[str, Any]:
    path, body = BODIES[client]
    return path.format(model=target), body if client == "gemini" else {**body, "model": target}


async def without_ids(rig: Rig, client: str, target: str) -> tuple[int, Any]:
    """The answer to a request, without what differs from one to the next."""
    path, body = asked(client, target)
    answer = await rig.ask(path, body)
    told = json.dumps(answer.json)
    return answer.status, json.loads(told.replace(answer.headers["x-lightgate-id"], "ID"))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("client", BODIES)
async def test_large_bodies_and_answers_are_as_small_ones(
    behind: Behind,
    upstream: Upstream,
    monkeypatch: pytest.MonkeyPatch,
    client: str,
    target: str,
) -> None:
    """What goes to the target and what comes back is what the loop itself would have made."""
    rig = await behind()
    upstream.script = whole(answered(target, MANY))
    large = await without_ids(rig, client, target)
    jobs_done = rig.state.aside.jobs
    assert jobs_done >= 2  # the request was read and the answer was, if no body was translated
    monkeypatch.setattr("lightgate.gateway.http.app.LIGHT_BYTES", 1 << 30)
    monkeypatch.setattr("lightgate.gateway.exchange.attempt.Attempt.reads", 1 << 30)
    small = await without_ids(rig, client, target)
    assert rig.state.aside.jobs == jobs_done
    assert large[0] == 200
    for one in (large[1], small[1]):
        for varying in ("created", "created_at", "system_fingerprint"):
            one.pop(varying, None)
    assert large == small
    first, second = upstream.heard
    assert first.json == second.json
    assert first.line == second.line
    notes = rig.settled()
    assert [note.exchange.tokens_out for note in notes] == [notes[0].exchange.tokens_out] * 2
    assert notes[0].attempts[0].outcome == notes[1].attempts[0].outcome


async def test_the_loop_reads_no_large_body(
    behind: Behind, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A body of many parts that needs translation is not looked into where clients are served."""
    rig = await behind()
    upstream.script = whole(answered("rawant/m", 1))
    inside = 0
    do = rig.state.aside.do

    async def counted(*order: Any) -> Any:
        nonlocal inside
        inside += 1
        try:
            return await do(*order)
        finally:
            inside -= 1

    def guarded(function: Any) -> Any:
        def called(*given: Any, **named: Any) -> Any:
            assert inside, "The loop reads a large body."
            return function(*given, **named)

        return called

    monkeypatch.setattr(rig.state.aside, "do", counted)
    for module, name in (
        (jobs, "read_request_body"),
        (jobs, "billed_parts"),
        (request_body, "_take_apart"),
        (writer.BodyWriter, "translated"),
    ):
        monkeypatch.setattr(module, name, guarded(getattr(module, name)))
    path, body = asked("gemini", "rawant/m")
    assert (await rig.ask(path, body)).status == 200


async def test_a_body_with_too_many_values_is_refused(start: Start) -> None:
    rig = await start("[gateway.limits]\nvalues = 2500\n")
    path, body = asked("gemini", "anthropic/plain")
    assert (await rig.ask(path, body)).status == 200
    body = {"contents": [{"role": "user", "parts": [{"text": "a"}] * 2500}]}
    answer = await rig.ask(path, body)
    assert answer.status == 413
    assert "more than 2500 JSON objects and lists" in answer.json["error"]["message"]
    assert "[gateway.limits]" in answer.json["error"]["message"]
    text = "{[" * 200_000  # braces in a text are no values
    answer = await rig.ask(path, {"contents": [{"role": "user", "parts": [{"text": text}]}]})
    assert answer.status == 200
    assert len(rig.reserved()) == 2


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"model":"lab/plain","messages":[' + b"[" * 50_000, "nested too deeply"),
        (b'{"model":"lab/plain","messages":["' + b"a" * 300_000, "not valid JSON"),
        (b'{"model":7,"messages":["' + b"a" * 300_000 + b'"]}', "`model` is not a string"),
        (b'["' + b"a" * 300_000 + b'"]', "not a JSON object"),
        (b'{"model":"lab/plain","messages":["' + b"\xff" * 300_000 + b'"]}', "not UTF-8"),
    ],
)
async def test_what_is_wrong_with_a_large_body_is_said(rig: Rig, body: bytes, said: str) -> None:
    answer = await rig.ask("/v1/chat/completions", body)
    assert answer.status == 400
    assert said in answer.json["error"]["message"]
    assert not rig.reserved()


async def test_a_budget_counts_the_pictures_of_a_large_body(start: Start) -> None:
    terms = {"poor": KeyTerms(name="poor", budget_usd=Decimal("0.05"))}
    rig = await start(terms=terms)
    picture = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    for parts, status in (([], 200), ([picture] * 100, 402)):
        content = [*TEXT[:1600], *parts]
        body = {"model": "lab/plain", "max_tokens": 1, "messages": [said_by_user(content)]}
        authorization = f"Bearer {rig.keys['poor']}"
        answer = await rig.ask("/v1/chat/completions", body, authorization=authorization)
        assert answer.status == status, answer.body


async def test_a_client_that_leaves_while_its_body_is_written_is_settled(
    behind: Behind, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = await behind()
    do, hold = rig.state.aside.do, asyncio.Event()

    async def held(owner: str, job: Any, *more: Any) -> Any:
        if job is jobs.write:
            await hold.wait()
        return await do(owner, job, *more)

    monkeypatch.setattr(rig.state.aside, "do", held)
    path, body = asked("chat", "rawant/m")
    line = await rig.line()
    asking = asyncio.ensure_future(line.ask("POST", path, json.dumps(body).encode(), {}))
    await rig.until(lambda: len(rig.reserved()) == 1)
    await line.close()
    asking.cancel()
    await rig.until(lambda: len(rig.settled()) == 1)
    hold.set()
    await asyncio.gather(asking, return_exceptions=True)
    assert rig.settled()[0].exchange.status == 499
    assert not rig.exchanges
    assert not upstream.heard


async def test_a_target_that_cannot_be_told_is_passed_over(
    behind: Behind, upstream: Upstream
) -> None:
    models = '[models.two]\ntargets = ["rawant/m", "raw/m"]\npolicy = "ordered"\nhedge = "off"\n'
    rig = await behind(models)
    upstream.script = whole(chat_body())
    _, body = asked("chat", "two")
    answer = await rig.ask("/v1/chat/completions", {**body, "model": "two", "n": 2})
    assert answer.status == 200
    assert answer.headers["x-lightgate-skipped"].startswith("rawant/m=n")
    assert [heard.line.split()[1] for heard in upstream.heard] == [b"/v1/chat/completions"]


async def test_large_bodies_are_shared_counted_and_shortened(start: Start) -> None:
    rig = await start(
        '[models.kept]\ntargets = ["lab/plain"]\ncache = {{ mode = "any" }}\n'
        '[models.short]\ntargets = ["lab/plain"]\nconcise = true\ntrim = true\n'
    )
    _, body = asked("chat", "kept")
    said = [
        (await rig.ask("/v1/chat/completions", {**body, "model": "kept"})).headers for _ in range(2)
    ]
    assert [one["x-lightgate-cache"] for one in said] == ["miss", "hit"]
    spaced = [{"type": "text", "text": "word   \nand   "}, *TEXT]
    body = {**body, "model": "short", "messages": [said_by_user(spaced)]}
    answer = await rig.ask("/v1/chat/completions", body)
    assert answer.status == 200
    assert int(answer.headers["x-lightgate-trimmed-bytes"]) > 0
    answer = await rig.ask(
        "/v1/messages/count_tokens", {"model": "lab/plain", "messages": [said_by_user(TEXT)]}
    )
    assert answer.json["input_tokens"] > MANY
    assert answer.headers["x-lightgate-count-source"] == "estimate"


@pytest.mark.parametrize("target", ["anthropic/plain", "gemini/plain"])
async def test_a_large_conversation_goes_on(start: Start, target: str) -> None:
    rig = await start()
    _, body = asked("responses", target)
    first = (await rig.ask("/v1/responses", body)).json
    more = {"model": target, "input": "And now?", "previous_response_id": first["id"]}
    answer = await rig.ask("/v1/responses", more)
    assert answer.status == 200
    assert answer.json["previous_response_id"] == first["id"]
    assert answer.json["usage"]["input_tokens"] > MANY
    listed = await rig.ask(f"/v1/responses/{answer.json['id']}/input_items?limit=2&order=asc")
    assert listed.json["data"][0]["content"] == body["input"][0]["content"]
    assert listed.json["has_more"]


async def test_a_large_answer_that_is_none_fails_over(behind: Behind, upstream: Upstream) -> None:
    rig = await behind()
    upstream.script = whole(b'{"candidates":[' + b"{}," * 3000 + b"7]}")
    path, body = asked("chat", "rawgem/m")
    answer = await rig.ask(path, body)
    assert answer.status == 502
    assert rig.settled()[0].attempts[0].outcome == "stream_error"


def test_the_limits_leave_the_loop_time() -> None:
    """Every limit is a multiple of the next: a body is small, then maybe large, then surely."""
    assert weight.LIGHT_BYTES < weight.HEAVY_BYTES
    assert weight.MOST_NESTS * 12 < weight.HEAVY_BYTES


@pytest.mark.parametrize("client", ["chat", "gemini"])
async def test_an_event_with_too_many_values_ends_the_stream(
    behind: Behind, upstream: Upstream, client: str
) -> None:
    """Braces in its text do not count."""
    rig = await behind()
    first = b'data: {"candidates":[{"content":{"parts":[{"text":"%b"}]}}]}\n\n'
    many = b'data: {"candidates":[{"content":{"parts":[%b]}}]}\n\n'
    end = b'data: {"candidates":[{"finishReason":"STOP"}]}\n\n'
    path, body = asked(client, "rawgem/m")
    path, body = path.replace(":generate", ":streamGenerate"), {**body, "stream": True}
    if client == "gemini":
        path, body = f"{path}?alt=sse", asked(client, "rawgem/m")[1]
    upstream.script = events(first % b"a", first % (b"{[" * 40_000), end)
    assert (await rig.ask(path, body)).end == "complete"
    upstream.script = events(first % b"a", many % b",".join([b'{"text":"a"}'] * 6000), end)
    answer = await rig.ask(path, body)
    assert b"more values than an answer can need" in answer.body
    outcomes = [note.attempts[0].outcome for note in rig.settled()]
    assert outcomes == ["ok", "stream_error"]
