"""Responses with an id: kept here or by their target, gone on from, and never another key's."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from gateway.security.conftest import say, whole
from lightgate.gateway.kept import store as kept_store
from lightgate.gateway.kept.store import FILE
from lightgate.ledger.store.keys import KeyTerms

if TYPE_CHECKING:
    from gateway.conftest import Rig, Start
    from gateway.security.conftest import Upstream
    from sim.conftest import Answer

OPENAI = """
[providers.openai]
base_url = "http://127.0.0.1:{port}/lab/v1"
api_key = "none"
[models.both]
targets = ["anthropic/plain", "openai/plain", "openai/think"]
policy = "ordered"
hedge = "off"
"""
FIRST, SECOND = "Remember the word harbour.", "Which word was it?"
TARGETS = ("lab/plain", "anthropic/plain", "gemini/plain", "openai/plain")
every_target = pytest.mark.parametrize("target", TARGETS)


async def ask(rig: Rig, target: str, words: Any, *, key: str = "", **more: Any) -> Answer:
    headers = {"authorization": f"Bearer {rig.keys[key]}"} if key else {}
    body = {"model": target, "input": words, "max_output_tokens": 12, **more}
    return await rig.ask("/v1/responses", body, **headers)


async def send(rig: Rig, method: str, path: str, key: str = "") -> Answer:
    line = await rig.line()
    headers = {"authorization": f"Bearer {rig.keys[key]}"} if key else {}
    answer = await line.ask(method, path, b"", headers)
    await line.close()
    return answer


def made(answer: Answer, *, streamed: bool) -> dict[str, Any]:
    """The response object of an answer."""
    assert answer.status == 200, answer.body
    found: dict[str, Any] = answer.json if not streamed else answer.chunks[-1]["response"]
    return found


@pytest.mark.parametrize("streamed", [False, True])
@every_target
async def test_a_conversation_goes_on(start: Start, target: str, streamed: bool) -> None:
    """The target hears what was said before, whoever keeps it; a third turn too."""
    rig = await start(OPENAI)
    response = made(await ask(rig, target, FIRST, stream=streamed), streamed=streamed)
    heard = []
    for words in (SECOND, [{"role": "user", "content": "Sure?"}]):
        more = {"previous_response_id": response["id"], "stream": streamed}
        response = made(await ask(rig, target, words, **more), streamed=streamed)
        heard.append(response["usage"]["input_tokens"])
        if target != "openai/plain":
            assert response["previous_response_id"] == more["previous_response_id"]
            assert response["store"] is True
    asked = len(FIRST) // 4
    assert heard[0] > asked + 3
    assert heard[1] > heard[0]


@every_target
async def test_a_response_is_found_again_and_deleted(start: Start, target: str) -> None:
    rig = await start(OPENAI)
    response = made(await ask(rig, target, FIRST), streamed=False)
    path = f"/v1/responses/{response['id']}"
    again = await send(rig, "GET", path)
    assert (again.status, again.json["output"]) == (200, response["output"])
    items = await send(rig, "GET", f"{path}/input_items")
    assert (items.status, items.json["object"], len(items.json["data"])) == (200, "list", 1)
    assert items.json["data"][0]["content"][0]["text"] == FIRST
    cancelled = await send(rig, "POST", f"{path}/cancel")
    assert (cancelled.status, "cancel" in cancelled.json["error"]["message"].lower()) == (400, True)
    gone = await send(rig, "DELETE", path)
    assert gone.json == {"id": response["id"], "object": "response", "deleted": True}
    assert (await send(rig, "GET", path)).status == 404
    again = await ask(rig, target, SECOND, previous_response_id=response["id"])
    # Without keys a provider that keeps responses itself is asked, and says so in its own words.
    assert again.status == (400 if target == "openai/plain" else 404)


@every_target
async def test_what_was_not_to_be_stored_is_not_there(start: Start, target: str) -> None:
    rig = await start(OPENAI, terms={"me": KeyTerms(name="me")})
    response = made(await ask(rig, target, FIRST, key="me", store=False), streamed=False)
    assert (await send(rig, "GET", f"/v1/responses/{response['id']}", "me")).status == 404
    again = await ask(rig, target, SECOND, key="me", previous_response_id=response["id"])
    assert (again.status, again.json["error"]["code"]) == (404, "previous_response_not_found")


@every_target
async def test_another_keys_response_does_not_exist(start: Start, target: str) -> None:
    rig = await start(OPENAI, terms={name: KeyTerms(name=name) for name in ("me", "you")})
    mine = made(await ask(rig, target, FIRST, key="me"), streamed=False)["id"]
    never = mine[:-4] + "0000"
    before = len(rig.sim.log)
    for method, tail in (("GET", ""), ("DELETE", ""), ("GET", "/input_items"), ("POST", "/cancel")):
        theirs = await send(rig, method, f"/v1/responses/{mine}{tail}", "you")
        nobodys = await send(rig, method, f"/v1/responses/{never}{tail}", "you")
        assert theirs.status == nobodys.status == 404
        assert theirs.body.replace(mine.encode(), b"") == nobodys.body.replace(never.encode(), b"")
        assert (await send(rig, method, f"/v1/responses/{mine}{tail}")).status == 401
    stolen = await ask(rig, target, SECOND, key="you", previous_response_id=mine)
    assert (stolen.status, FIRST in stolen.body.decode()) == (404, False)
    body = {"model": target, "input": SECOND, "previous_response_id": mine}
    headers = {"authorization": f"Bearer {rig.keys['you']}"}
    assert (await rig.ask("/v1/responses/input_tokens", body, **headers)).status == 404
    assert len(rig.sim.log) == before
    assert (await send(rig, "GET", f"/v1/responses/{mine}", "me")).status == 200


async def test_a_response_of_a_target_that_keeps_it_stays_there(start: Start) -> None:
    """The alias has another target first, which would know nothing of the conversation."""
    rig = await start(OPENAI)
    first = made(await ask(rig, "openai/think", FIRST), streamed=False)
    answer = await ask(rig, "both", SECOND, previous_response_id=first["id"])
    assert answer.headers["x-lightgate-target"] == "openai/think"
    lost = await ask(rig, "anthropic/plain", SECOND, previous_response_id=first["id"])
    assert (lost.status, "openai/think" in lost.json["error"]["message"]) == (400, True)


async def test_store_said_aloud_is_honoured_and_not_named_as_dropped(start: Start) -> None:
    rig = await start()
    answer = await ask(rig, "anthropic/plain", FIRST, store=True)
    assert made(answer, streamed=False)["store"] is True
    assert "store" not in answer.headers.get("x-lightgate-dropped", "")
    assert (await send(rig, "GET", f"/v1/responses/{answer.json['id']}")).status == 200


async def test_a_response_from_the_cache_can_be_asked_for(start: Start) -> None:
    rig = await start('[models.m]\ntargets = ["lab/plain"]\ncache = {{ mode = "any" }}\n')
    first, again = [await ask(rig, "m", FIRST) for _ in range(2)]
    assert again.headers["x-lightgate-cache"] == "hit"
    assert first.json["id"] == again.json["id"]
    assert (await send(rig, "GET", f"/v1/responses/{again.json['id']}")).status == 200


async def test_a_response_in_the_background_is_passed_on(start: Start, upstream: Upstream) -> None:
    """It has no answer yet; its id is known, and can be asked for, cancelled and deleted."""
    queued = {"id": "resp_b", "object": "response", "status": "queued", "background": True,
              "output": [], "error": None, "usage": None}  # fmt: skip
    upstream.script = whole(json.dumps(queued).encode())
    rig = await start(
        f'[providers.openai]\nbase_url = "http://127.0.0.1:{upstream.port}/v1"\napi_key = "none"\n'
    )
    answer = await ask(rig, "openai/m", FIRST, background=True)
    assert (answer.status, answer.json["status"]) == (200, "queued")
    for method, tail in (("GET", ""), ("POST", "/cancel"), ("GET", "/input_items?limit=3&x=1")):
        assert (await send(rig, method, f"/v1/responses/resp_b{tail}")).status == 200
    lines = [heard.head.split(b"\r\n", 1)[0] for heard in upstream.heard[1:]]
    assert lines == [
        b"GET /v1/responses/resp_b HTTP/1.1",
        b"POST /v1/responses/resp_b/cancel HTTP/1.1",
        b"GET /v1/responses/resp_b/input_items?limit=3 HTTP/1.1",
    ]


async def test_a_tool_loop_by_id_alone(start: Start) -> None:
    """The second request holds nothing but the tool's result."""
    rig = await start()
    tools = [{"type": "function", "name": "look", "parameters": {"type": "object"}}]
    first = made(
        await ask(rig, "anthropic/tool", FIRST, tools=tools, tool_choice="required"), streamed=False
    )
    (call,) = [item for item in first["output"] if item["type"] == "function_call"]
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"}
    second = await ask(
        rig, "anthropic/plain", [result], previous_response_id=first["id"], tools=tools
    )
    assert second.status == 200, second.body


async def test_it_survives_a_restart_and_its_file_is_the_owners_alone(start: Start) -> None:
    rig = await start()
    response = made(await ask(rig, "lab/plain", FIRST), streamed=False)
    rig.gateway.close()  # what follows is another life of the worker
    path = rig.data / FILE
    assert path.stat().st_mode & 0o077 == 0
    assert (await send(rig, "GET", f"/v1/responses/{response['id']}")).status == 200


async def test_switched_off_nothing_is_written(start: Start) -> None:
    rig = await start("[gateway.responses]\nkeep = false\n" + OPENAI)
    response = made(await ask(rig, "lab/plain", FIRST), streamed=False)
    assert response["store"] is False
    answer = await ask(rig, "lab/plain", SECOND, previous_response_id=response["id"])
    assert answer.status == 404
    native = made(await ask(rig, "openai/plain", FIRST), streamed=False)
    more = await ask(rig, "openai/plain", SECOND, previous_response_id=native["id"])
    assert more.status == 200  # its target keeps it; only where it is, is known here
    rig.gateway.close()
    assert FIRST.encode() not in (rig.data / FILE).read_bytes()


async def test_what_is_too_old_is_gone(start: Start, own: Any) -> None:
    rig = await start('[gateway.responses]\nttl = "1h"\n')
    response = made(await ask(rig, "lab/plain", FIRST), streamed=False)
    store = rig.gateway._responses.store
    assert await store.find("", response["id"]) is not None
    clock = store._clock

    class Later:
        now_ns = staticmethod(clock.now_ns)

        @staticmethod
        def wall_ns() -> int:
            return clock.wall_ns() + 3601 * 10**9

    store._clock = Later()
    assert await store.find("", response["id"]) is None


async def test_one_key_cannot_fill_the_file(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_store, "PRUNE_NS", 0)
    terms = {name: KeyTerms(name=name) for name in ("me", "you")}
    rig = await start("[gateway.responses]\nmax_bytes = 1048576\n", terms=terms)
    mine = made(await ask(rig, "lab/plain", FIRST, key="me"), streamed=False)["id"]
    yours = [
        made(await ask(rig, "lab/plain", "x" * 60_000, key="you"), streamed=False)["id"]
        for _ in range(20)
    ]
    statuses = [(await send(rig, "GET", f"/v1/responses/{id_}", "you")).status for id_ in yours]
    assert statuses[:10] == [404] * 10
    assert statuses[-3:] == [200] * 3
    assert (await send(rig, "GET", f"/v1/responses/{mine}", "me")).status == 200


async def test_a_conversation_that_grew_too_long_is_refused(start: Start) -> None:
    rig = await start("[gateway]\nmax_body_bytes = 20000\n")
    id_ = None
    for _ in range(3):
        answer = await ask(rig, "lab/plain", "y" * 9000, previous_response_id=id_)
        if answer.status != 200:
            break
        id_ = answer.json["id"]
    assert (answer.status, "max_body_bytes" in answer.json["error"]["message"]) == (413, True)


@pytest.mark.parametrize("previous", [5, ["a"], {"id": "x"}, "../../x", "x" * 500, "resp_' OR 1=1"])
async def test_ids_that_are_none(rig: Rig, previous: Any) -> None:
    answer = await ask(rig, "lab/plain", FIRST, previous_response_id=previous)
    assert answer.status in {400, 404}
    assert "error" in answer.json


async def test_paths_that_are_no_responses(rig: Rig) -> None:
    for tail in ("%2e%2e", "a%2fb", "a/b", "..", "a/input_items/x", "x" * 201, "a%00"):
        raw = f"GET /v1/responses/{tail} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"
        got = await say(rig.port, raw.encode())
        assert int(got.split(b" ")[1]) in {400, 404}, tail


async def test_a_made_response_is_not_streamed_again(rig: Rig) -> None:
    response = made(await ask(rig, "lab/plain", FIRST), streamed=False)
    answer = await send(rig, "GET", f"/v1/responses/{response['id']}?stream=true")
    assert (answer.status, json.loads(answer.body)["error"]["param"]) == (400, "stream")
