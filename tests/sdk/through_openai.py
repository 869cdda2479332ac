"""Drives the openai SDK through a gateway and prints what it made of it.

Every call's request id is the SDK's name and the case's: so the test finds it in the journal.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import openai  # type: ignore[import-not-found]  # only in the SDK's own environment

from sdk import through
from sdk.through import FAMILIES, PARAMETERS, SCHEMA, Cases

SAY = [{"role": "user", "content": "Say something."}]
LOOK = {"name": "look", "description": "Look at something.", "parameters": PARAMETERS}
TOOLS: dict[str, Any] = {
    "tools": [{"type": "function", "function": LOOK}],
    "tool_choice": "required",
}
FLAT: dict[str, Any] = {
    "tools": [{"type": "function", "strict": False, **LOOK}],
    "tool_choice": "required",
}
JSON: dict[str, Any] = {
    "response_format": {
        "type": "json_schema",
        "json_schema": {"name": "thing", "strict": True, "schema": SCHEMA},
    }
}
USAGE: dict[str, Any] = {"stream_options": {"include_usage": True}}


def made(url: str, key: str, retries: int = 0) -> Any:
    return openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=retries, timeout=20)


def marked(case: str) -> dict[str, Any]:
    return {"extra_headers": {"x-request-id": f"openai-{case}"}}


def said(words: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": words}]}


def history(case: str) -> dict[str, Any]:
    """A talk in which two tools were called at once and have answered."""

    def call(id_: str, city: str) -> dict[str, Any]:
        function = {"name": "get_weather", "arguments": f'{{"city":"{city}"}}'}
        return {"id": id_, "type": "function", "function": function}

    talk = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": case},
        {"role": "assistant", "tool_calls": [call("c1", "Oslo"), call("c2", "Bergen")]},
        {"role": "tool", "tool_call_id": "c1", "content": "rain"},
        {"role": "tool", "tool_call_id": "c2", "content": "more rain"},
    ]
    return {"messages": talk}


def dump(thing: Any) -> Any:
    return None if thing is None else thing.model_dump(exclude_none=True)


def completed(done: Any) -> dict[str, Any]:
    (choice,) = done.choices
    calls = choice.message.tool_calls or []
    return {
        "text": choice.message.content or "",
        "calls": [[call.function.name, json.loads(call.function.arguments)] for call in calls],
        "finish": choice.finish_reason,
        "usage": dump(done.usage),
        "model": done.model,
        "request_id": getattr(done, "_request_id", None),
    }


def chat(client: Any, case: str, model: str, **more: Any) -> dict[str, Any]:
    asked = {"model": model, "messages": SAY, "max_tokens": 12} | marked(case) | more
    return completed(client.chat.completions.create(**asked))


def chat_headers(client: Any, case: str, model: str) -> dict[str, Any]:
    raw = client.chat.completions.with_raw_response.create(
        model=model, messages=SAY, max_tokens=12, **marked(case)
    )
    return {"headers": dict(raw.headers), "id": raw.parse().id}


def stream(client: Any, case: str, model: str, **more: Any) -> dict[str, Any]:
    """Add a stream up by hand."""
    asked = {"model": model, "messages": SAY, "max_tokens": 12} | marked(case) | more
    seen: dict[str, Any] = {"text": "", "thought": "", "finish": None, "usage": None}
    calls: dict[int, list[str]] = {}
    events = client.chat.completions.create(stream=True, **asked)
    for chunk in events:
        seen["usage"] = dump(chunk.usage) or seen["usage"]
        for choice in chunk.choices:
            seen["text"] += choice.delta.content or ""
            seen["thought"] += getattr(choice.delta, "reasoning_content", None) or ""
            seen["finish"] = choice.finish_reason or seen["finish"]
            for call in choice.delta.tool_calls or []:
                known = calls.setdefault(call.index, ["", ""])
                known[0] += call.function.name or ""
                known[1] += call.function.arguments or ""
    seen["calls"] = [[name, json.loads(arguments)] for name, arguments in calls.values()]
    return seen | {"target": events.response.headers.get("x-lightgate-target")}


def helper(client: Any, case: str, model: str, **more: Any) -> dict[str, Any]:
    """The SDK's own accumulator, which is strict about the order and the shape of chunks."""
    with client.chat.completions.stream(
        model=model, messages=SAY, **USAGE, **marked(case), **more
    ) as events:
        return completed(events.get_final_completion())


def responded(done: Any) -> dict[str, Any]:
    calls = [item for item in done.output if item.type == "function_call"]
    return {
        "status": done.status,
        "text": done.output_text,
        "calls": [[call.name, json.loads(call.arguments)] for call in calls],
        "usage": dump(done.usage),
        "model": done.model,
    }


def respond(client: Any, case: str, model: str, **more: Any) -> dict[str, Any]:
    asked = {"model": model, "input": SAY, "max_output_tokens": 12} | marked(case) | more
    return responded(client.responses.create(**asked))


def respond_stream(client: Any, case: str, model: str, **more: Any) -> dict[str, Any]:
    asked = {"model": model, "input": SAY, "max_output_tokens": 12} | marked(case) | more
    with client.responses.stream(**asked) as events:
        types = [event.type for event in events]
        return {"types": types} | responded(events.get_final_response())


def respond_pieces(client: Any, case: str, model: str) -> dict[str, Any]:
    """The events alone: the SDK's accumulator takes no response but a completed one."""
    asked = {"model": model, "input": SAY, "max_output_tokens": 12} | marked(case)
    *_, last = client.responses.create(stream=True, **asked)
    return {"types": [last.type]} | responded(last.response)


def complete(client: Any, case: str, model: str, **more: Any) -> dict[str, Any]:
    done = client.completions.create(
        model=model, prompt="Once", max_tokens=12, **marked(case), **more
    )
    if not more:
        return {"text": done.choices[0].text, "usage": dump(done.usage)}
    return {"text": "".join(chunk.choices[0].text for chunk in done if chunk.choices)}


def embed(client: Any, case: str, model: str) -> dict[str, Any]:
    done = client.embeddings.create(model=model, input=["one", "two"], **marked(case))
    return {"sizes": [len(item.embedding) for item in done.data], "usage": dump(done.usage)}


OPENAI = through.Sdk(
    name="openai",
    home="fast",
    ways=through.Ways(chat, partial(stream, **USAGE), helper),
    wishes=through.Wishes(TOOLS, JSON, said, history),
)


def same(cases: Cases, client: Any) -> None:
    """Client and provider speak one dialect."""
    cases.ask(helper, client, "chat-helper", "fast")
    cases.ask(complete, client, "complete", "fast")
    cases.ask(complete, client, "complete-stream", "fast", stream=True)
    cases.ask(respond, client, "respond", "openai/plain")
    cases.ask(respond_stream, client, "respond-stream", "openai/plain")
    cases.ask(respond, client, "respond-silent", "silent-openai")
    cases.ask(respond_pieces, client, "respond-stream-silent", "silent-openai")
    cases.ask(embed, client, "embed", "fast")
    cases.ask(stream, client, "stream-without-usage", "fast")
    cases.ask(chat_headers, client, "rescued", "rescued-openai")
    cases.ask(stream, client, "rescued-stream", "rescued-openai")
    cases.ask(stream, client, "late-stream", "late")


def responses(cases: Cases, client: Any) -> None:
    for name in FAMILIES:
        model = f"{name}/plain"
        cases.ask(respond, client, f"respond-{name}", model)
        cases.ask(respond_stream, client, f"respond-stream-{name}", model)
        cases.ask(respond, client, f"respond-silent-{name}", f"silent-{name}")
        cases.ask(respond_pieces, client, f"respond-stream-silent-{name}", f"silent-{name}")
        cases.ask(respond, client, f"respond-tool-{name}", model, **FLAT)
        cases.ask(respond_stream, client, f"respond-tool-stream-{name}", model, **FLAT)


def main() -> None:
    url, keys = through.facts()
    by = through.clients(OPENAI, partial(made, url), keys)
    cases = Cases()
    for case in ("quiet", "pausing"):
        cases.ask_slowly(stream, by.open, case, case)
    through.models(
        cases,
        lambda: [model.id for model in by.open.models.list()],
        lambda name: by.open.models.retrieve(name).id,
    )
    same(cases, by.open)
    through.errors(cases, OPENAI, by, told=by.eager)
    for fault in ("broken", "cut"):
        cases.ask(stream, by.open, fault, fault)
    cases.ask(chat, by.open, "no-messages", "claude/plain", messages=[])
    cases.ask(embed, by.open, "embed-claude", "claude/plain")
    through.families(cases, OPENAI, by.open)
    responses(cases, by.open)
    cases.print()


if __name__ == "__main__":
    main()
