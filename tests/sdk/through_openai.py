"""Drives the openai SDK through a gateway and prints what it made of it.

Every call's request id is the SDK's name and the case's: so the test finds it in the journal.
"""

from __future__ import annotations

from typing import Any

import openai  # type: ignore[import-not-found]  # only in the SDK's own environment

from sdk.through import FAMILIES, PARAMETERS, SCHEMA, Cases, facts

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


def marked(case: str) -> dict[str, Any]:
    return {"extra_headers": {"x-request-id": f"openai-{case}"}}


def history(case: str) -> list[dict[str, Any]]:
    """A talk in which two tools were called at once and have answered."""

    def call(id_: str, city: str) -> dict[str, Any]:
        function = {"name": "get_weather", "arguments": f'{{"city":"{city}"}}'}
        return {"id": id_, "type": "function", "function": function}

    return [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": case},
        {"role": "assistant", "tool_calls": [call("c1", "Oslo"), call("c2", "Bergen")]},
        {"role": "tool", "tool_call_id": "c1", "content": "rain"},
        {"role": "tool", "tool_call_id": "c2", "content": "more rain"},
    ]


def dump(thing: Any) -> Any:
    return None if thing is None else thing.model_dump(exclude_none=True)


def completed(done: Any) -> dict[str, Any]:
    (choice,) = done.choices
    calls = choice.message.tool_calls or []
    return {
        "text": choice.message.content or "",
        "calls": [[call.function.name, call.function.arguments] for call in calls],
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
    headers = events.response.headers
    return seen | {"calls": [*calls.values()], "target": headers.get("x-lightgate-target")}


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
        "calls": [[call.name, call.arguments] for call in calls],
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


def complete(client: Any, case: str, **more: Any) -> dict[str, Any]:
    done = client.completions.create(
        model="fast", prompt="Once", max_tokens=12, **marked(case), **more
    )
    if not more:
        return {"text": done.choices[0].text, "usage": dump(done.usage)}
    return {"text": "".join(chunk.choices[0].text for chunk in done if chunk.choices)}


def embed(client: Any, case: str, model: str = "fast") -> dict[str, Any]:
    done = client.embeddings.create(model=model, input=["one", "two"], **marked(case))
    return {"sizes": [len(item.embedding) for item in done.data], "usage": dump(done.usage)}


def same(cases: Cases, client: Any) -> None:
    """Client and provider speak one dialect."""
    cases.take("models", lambda: {"ids": [model.id for model in client.models.list()]})
    cases.take("chat-helper", helper, client, "chat-helper", "fast")
    cases.take("complete", complete, client, "complete")
    cases.take("complete-stream", complete, client, "complete-stream", stream=True)
    cases.take("respond", respond, client, "respond", "openai/plain")
    cases.take("respond-stream", respond_stream, client, "respond-stream", "openai/plain")
    cases.take("embed", embed, client, "embed")
    cases.take("stream-without-usage", stream, client, "stream-without-usage", "fast")
    cases.take("rescued", chat_headers, client, "rescued", "rescued-openai")
    cases.take("rescued-stream", stream, client, "rescued-stream", "rescued-openai")
    cases.take("late-stream", stream, client, "late-stream", "late")


def family(cases: Cases, client: Any, name: str, dialect: str) -> None:
    """Every way to ask, of one provider's dialect."""
    model, golden = f"{name}/plain", f"golden-{name}/parallel.{dialect}"
    schema = f"golden-{name}/schema.{dialect}"

    def take(kind: str, work: Any, asked: str = model, **more: Any) -> None:
        case = f"{kind}-{name}"
        cases.take(case, work, client, case, asked, **more)

    def said(kind: str) -> dict[str, Any]:
        return {"messages": [{"role": "user", "content": f"openai-{kind}-{name}"}]}

    take("chat", chat)
    take("stream", stream, **USAGE)
    take("think", stream, f"{name}/think", **USAGE)
    take("tool", chat, **TOOLS)
    take("tool-stream", stream, **TOOLS, **USAGE)
    take("schema", chat, schema, **JSON, **said("schema"))
    take("schema-stream", stream, schema, **JSON, **USAGE, **said("schema-stream"))
    take("parallel", chat, golden)
    take("parallel-helper", helper, golden)
    take("history", chat, golden, messages=history(f"openai-history-{name}"))
    take("respond", respond)
    take("respond-stream", respond_stream)
    take("respond-tool", respond, **FLAT)
    take("respond-tool-stream", respond_stream, **FLAT)


def errors(cases: Cases, client: Any, url: str, keys: dict[str, str]) -> None:
    stranger = openai.OpenAI(base_url=f"{url}/v1", api_key="lg-wrong", max_retries=0)
    slow = openai.OpenAI(base_url=f"{url}/v1", api_key=keys["slow-openai"], max_retries=0)
    eager = openai.OpenAI(base_url=f"{url}/v1", api_key=keys["open"], max_retries=2, timeout=20)
    cases.take("wrong-key", chat, stranger, "wrong-key", "fast")
    cases.take("wrong-key-models", lambda: {"ids": list(stranger.models.list())})
    cases.take("unknown-model", chat, client, "unknown-model", "fats")
    cases.take("slow-first", chat, slow, "slow-first", "fast")
    cases.take("slow-second", chat, slow, "slow-second", "fast")
    cases.take("limited", chat, eager, "limited", "limited-openai")
    cases.take("gone", chat, eager, "gone", "gone-openai")
    cases.take("gone-stream", stream, eager, "gone-stream", "gone-openai")
    cases.take("refused", chat, eager, "refused", "refusing")
    cases.take("broken", stream, client, "broken", "broken")
    cases.take("cut", stream, client, "cut", "cut")
    cases.take("no-messages", chat, client, "no-messages", "claude/plain", messages=[])
    cases.take("embed-claude", embed, client, "embed-claude", "claude/plain")


def main() -> None:
    url, keys = facts()
    client = openai.OpenAI(base_url=f"{url}/v1", api_key=keys["open"], max_retries=0, timeout=20)
    cases = Cases()
    cases.take_slowly("quiet", stream, client, "quiet", "quiet")
    cases.take_slowly("pausing", stream, client, "pausing", "pausing")
    same(cases, client)
    errors(cases, client, url, keys)
    for name, dialect in FAMILIES.items():
        family(cases, client, name, dialect)
    cases.print()


if __name__ == "__main__":
    main()
