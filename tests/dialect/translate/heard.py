"""What a client makes of an answer: plain accumulators, one for each dialect, whole or streamed."""

from __future__ import annotations

import json
from typing import Any

from dialect.translate.cases import events
from lightgate.dialect.neutral.seal import opened


def nothing() -> dict[str, Any]:
    return {
        "text": "", "reasoning": "", "refusal": "", "signature": "", "calls": [], "logprobs": [],
        "finish": None, "usage": None,
    }  # fmt: skip


def signed(signature: str) -> str:
    """Return a provider's signature, also out of the seal in which another's client has it."""
    seal = opened(signature)
    return signature if seal is None else seal.signature


def likely(entries: Any) -> list[Any]:
    return [
        [e["token"], e["logprob"], [[t["token"], t["logprob"]] for t in e["top_logprobs"]]]
        for e in entries or ()
    ]


def chat_stream(body: bytes) -> dict[str, Any]:
    heard = nothing()
    calls: list[list[str]] = []
    said = list(events(body))
    assert said[-1] == (b"", b"[DONE]")
    chunks = [json.loads(data) for _, data in said[:-1]]
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    for chunk in chunks:
        heard["usage"] = chunk["usage"] or heard["usage"]
        for choice in chunk["choices"]:
            assert heard["finish"] is None  # nothing follows the finish chunk but usage
            delta = choice["delta"]
            heard["text"] += delta.get("content") or ""
            heard["reasoning"] += delta.get("reasoning_content") or ""
            heard["refusal"] += delta.get("refusal") or ""
            for detail in delta.get("reasoning_details") or ():
                heard["signature"] += signed(detail["signature"])
            heard["logprobs"] += likely((choice["logprobs"] or {}).get("content"))
            heard["finish"] = choice["finish_reason"]
            for call in delta.get("tool_calls") or ():
                if "id" in call:
                    assert call["index"] == len(calls)
                    calls.append([call["id"], call["function"]["name"], ""])
                calls[call["index"]][2] += call["function"]["arguments"]
    heard["calls"] = [[id_, name, json.loads(given)] for id_, name, given in calls]
    return heard


def chat_whole(body: bytes) -> dict[str, Any]:
    answer = json.loads(body)
    choice = answer["choices"][0]
    message = choice["message"]
    assert answer["object"] == "chat.completion"
    return nothing() | {
        "text": message["content"] or "",
        "reasoning": message.get("reasoning_content", ""),
        "refusal": message["refusal"] or "",
        "signature": "".join(signed(d["signature"]) for d in message.get("reasoning_details", ())),
        "calls": [
            [call["id"], call["function"]["name"], json.loads(call["function"]["arguments"])]
            for call in message.get("tool_calls", ())
        ],
        "logprobs": likely((choice["logprobs"] or {}).get("content")),
        "finish": choice["finish_reason"],
        "usage": answer["usage"],
    }


def responses_whole(body: bytes) -> dict[str, Any]:
    heard, answer = nothing(), json.loads(body)
    for item in answer["output"]:
        if item["type"] == "reasoning":
            heard["reasoning"] += "".join(part["text"] for part in item["summary"])
            heard["signature"] += signed(item.get("encrypted_content", ""))
        elif item["type"] == "message":
            for part in item["content"]:
                heard["text"] += part.get("text", "")
                heard["refusal"] += part.get("refusal", "")
                heard["logprobs"] += likely(part.get("logprobs"))
        else:
            heard["calls"].append([item["call_id"], item["name"], json.loads(item["arguments"])])
    why = answer["incomplete_details"]
    heard["finish"] = f"{answer['status']}: {why['reason']}" if why else answer["status"]
    heard["usage"] = answer["usage"]
    return heard


def responses_stream(body: bytes) -> dict[str, Any]:
    said = [(name.decode(), json.loads(data)) for name, data in events(body)]
    assert [event["sequence_number"] for _, event in said] == list(range(len(said)))
    assert all(name == event["type"] for name, event in said)
    assert [name for name, _ in said[:2]] == ["response.created", "response.in_progress"]
    pieces: dict[int, str] = {}
    done: list[Any] = []
    for name, event in said:
        if name == "response.output_item.added":
            assert event["output_index"] == len(pieces) == len(done)
            pieces[event["output_index"]] = ""
        elif name.endswith(".delta"):
            pieces[event["output_index"]] += event["delta"]
        elif name == "response.output_item.done":
            done.append(event["item"])
    last = said[-1][1]["response"]
    assert said[-1][0] == f"response.{last['status']}"
    assert done == last["output"]
    for index, item in enumerate(done):
        one = responses_whole(json.dumps({**last, "output": [item]}).encode())
        given = [json.dumps(call[2]) for call in one["calls"]]
        if given:
            assert json.loads(pieces[index]) == json.loads(given[0])
        else:
            assert pieces[index] == one["text"] + one["refusal"] + one["reasoning"]
    return responses_whole(json.dumps(last).encode())


def messages_whole(body: bytes) -> dict[str, Any]:
    heard, answer = nothing(), json.loads(body)
    assert (answer["type"], answer["role"]) == ("message", "assistant")
    for block in answer["content"]:
        if block["type"] == "text":
            heard["text"] += block["text"]
        elif block["type"] == "thinking":
            heard["reasoning"] += block["thinking"]
            heard["signature"] += signed(block["signature"])
        else:
            heard["calls"].append([block["id"], block["name"], block["input"]])
    return heard | {"finish": answer["stop_reason"], "usage": answer["usage"]}


FIELDS = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
    "input_json_delta": "partial_json",
}


def messages_stream(body: bytes) -> dict[str, Any]:
    said = [(name.decode(), json.loads(data)) for name, data in events(body)]
    assert all(name == event["type"] for name, event in said)
    (first, start), *middle, (_, delta), (last, _) = said
    assert (first, last) == ("message_start", "message_stop")
    blocks: list[Any] = []
    is_open = False
    for name, event in middle:
        if name == "content_block_start":
            assert (event["index"], is_open) == (len(blocks), False)
            blocks.append({**event["content_block"], "partial_json": ""})
            is_open = True
        elif name == "content_block_delta":
            assert (event["index"], is_open) == (len(blocks) - 1, True)
            field = FIELDS[event["delta"]["type"]]
            blocks[-1][field] += event["delta"][field]
        else:
            assert (name, event["index"], is_open) == ("content_block_stop", len(blocks) - 1, True)
            is_open = False
    assert not is_open
    for block in blocks:
        given = block.pop("partial_json")
        if block["type"] == "tool_use":
            block["input"] = json.loads(given)
    end = {"content": blocks, "usage": delta["usage"], **delta["delta"]}
    return messages_whole(json.dumps({**start["message"], **end}).encode())


def gemini_whole(body: bytes) -> dict[str, Any]:
    heard, answer = nothing(), json.loads(body)
    (candidate,) = answer["candidates"]
    assert candidate["content"]["role"] == "model"
    for part in candidate["content"]["parts"]:
        heard["signature"] += signed(part.get("thoughtSignature", ""))
        if "functionCall" in part:
            call = part["functionCall"]
            heard["calls"].append([call["id"], call["name"], call["args"]])
        else:
            heard["reasoning" if part.get("thought") else "text"] += part["text"]
    found = candidate.get("logprobsResult", {"chosenCandidates": [], "topCandidates": []})
    for one, top in zip(found["chosenCandidates"], found["topCandidates"], strict=True):
        others = [[t["token"], t["logProbability"]] for t in top["candidates"]]
        heard["logprobs"].append([one["token"], one["logProbability"], others])
    return heard | {"finish": candidate.get("finishReason"), "usage": answer.get("usageMetadata")}


def gemini_stream(body: bytes) -> dict[str, Any]:
    heard = nothing()
    for _, data in events(body):
        assert heard["finish"] is None  # the finish is in the last chunk
        one = gemini_whole(data)
        for field, value in one.items():
            heard[field] = value if field in {"finish", "usage"} else heard[field] + value
    return heard


STREAMS = {
    "openai-chat": chat_stream,
    "openai-responses": responses_stream,
    "anthropic-messages": messages_stream,
    "gemini": gemini_stream,
}
WHOLES = {
    "openai-chat": chat_whole,
    "openai-responses": responses_whole,
    "anthropic-messages": messages_whole,
    "gemini": gemini_whole,
}
PREFIXES = {"anthropic-messages": "toolu"}


def expected(want: dict[str, Any], target: str, made_from: str) -> dict[str, Any]:
    """What a client of a dialect should hear, from a case's expectation."""
    out = nothing() | want
    out["finish"], out["usage"] = want["finish"][target], want["usage"][target]
    made = f"{PREFIXES.get(target, 'call')}_{made_from}_"
    out["calls"] = [[id_.replace("made ", made), *call] for id_, *call in want["calls"]]
    if target in {"anthropic-messages", "gemini"}:  # words of refusal are text there
        out["text"], out["refusal"] = out["text"] + out["refusal"], ""
    if target == "anthropic-messages":
        out["logprobs"] = []
    return out
