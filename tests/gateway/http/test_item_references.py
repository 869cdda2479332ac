"""Items that a request only names: a tool loop of the Vercel AI SDK, which keeps ids alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lightgate.ledger.store.keys import KeyTerms

if TYPE_CHECKING:
    from gateway.conftest import Rig, Start
    from sim.conftest import Answer

ASK = {"role": "user", "content": "What is the weather in Paris?"}
TOOL = {
    "type": "function",
    "name": "weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}


async def ask(rig: Rig, model: str, items: list[Any], *, key: str = "", **more: Any) -> Answer:
    headers = {"authorization": f"Bearer {rig.keys[key]}"} if key else {}
    body = {"model": model, "input": items, "tools": [TOOL], "max_output_tokens": 64, **more}
    return await rig.ask("/v1/responses", body, **headers)


def loop(output: list[dict[str, Any]]) -> list[Any]:
    """The second request of a loop: everything that was answered by name, then the result."""
    call = next(item for item in output if item["type"] == "function_call")
    named = [{"type": "item_reference", "id": item["id"]} for item in output]
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "Rain."}
    return [ASK, *named, result]


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("model", ["lab/mixed", "anthropic/mixed", "gemini/mixed"])
async def test_named_items_are_said_to_the_target(start: Start, model: str, streamed: bool) -> None:
    rig = await start()
    first = await ask(rig, model, [ASK], stream=streamed)
    made = first.chunks[-1]["response"] if streamed else first.json
    assert {item["type"] for item in made["output"]} >= {"message", "function_call"}
    second = await ask(rig, model, loop(made["output"]), stream=False)
    assert second.status == 200, second.body
    said = await ask(rig, model, [ASK], stream=False)
    assert second.json["usage"]["input_tokens"] > said.json["usage"]["input_tokens"]


async def test_an_item_that_nobody_knows_is_refused_by_its_place(start: Start) -> None:
    rig = await start()
    answer = await ask(rig, "anthropic/plain", [ASK, {"type": "item_reference", "id": "msg_1"}])
    assert answer.status == 400
    assert answer.json["error"]["param"] == "input[1].type"
    # Reasoning is no loss: the loop goes on without it.
    answer = await ask(rig, "anthropic/plain", [ASK, {"type": "item_reference", "id": "rs_1"}])
    assert answer.status == 200
    assert answer.headers["x-lightgate-dropped"] == "input[1]"


async def test_another_keys_items_do_not_exist(start: Start) -> None:
    rig = await start(terms={"ann": KeyTerms(name="ann"), "ben": KeyTerms(name="ben")})
    first = await ask(rig, "anthropic/mixed", [ASK], key="ann", stream=False)
    items = loop(first.json["output"])
    assert (await ask(rig, "anthropic/mixed", items, key="ann", stream=False)).status == 200
    assert (await ask(rig, "anthropic/mixed", items, key="ben", stream=False)).status == 400
