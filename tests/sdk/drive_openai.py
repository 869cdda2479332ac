"""Drives the openai SDK against a simulator and prints what it made of it, as one JSON document.

    python drive_openai.py BASE_URL KEYED_BASE_URL

Every call's request id is its case's name: so the test finds it in the simulator's log.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import openai  # type: ignore[import-not-found]  # only in the SDK's own environment

from sdk.through import failing

SAY = [{"role": "user", "content": "Say something."}]
CAP = 12
TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "look",
            "description": "Look at something.",
            "parameters": {"type": "object", "properties": {"a": {"type": "string"}}},
        },
    }
]
FLAT_TOOLS = [{"type": "function", "strict": False, **TOOLS[0]["function"]}]


def marked(case: str, fault: str = "") -> dict[str, Any]:
    headers = {"x-request-id": case} | ({"x-sim-fault": fault} if fault else {})
    return {"extra_headers": headers}


def usage_of(usage: Any) -> Any:
    return None if usage is None else usage.model_dump(exclude_none=True)


def models(client: Any) -> Any:
    listed = [model.id for model in client.models.list()]
    return {"listed": listed, "one": client.models.retrieve(listed[0]).id}


def completed(done: Any) -> Any:
    choice = done.choices[0]
    calls = choice.message.tool_calls or []
    return {
        "text": choice.message.content,
        "finish": choice.finish_reason,
        "tools": [[call.function.name, call.function.arguments] for call in calls],
        "usage": usage_of(done.usage),
    }


def chat(client: Any, case: str, model: str = "plain", cap: int = CAP, **more: Any) -> Any:
    return completed(
        client.chat.completions.create(
            model=model, messages=SAY, max_tokens=cap, **marked(case), **more
        )
    )


def chat_stream(client: Any, case: str, model: str = "plain", fault: str = "", **more: Any) -> Any:
    """Read a stream to its end, adding up what it brings."""
    seen: dict[str, Any] = {"text": "", "reasoning": "", "name": "", "arguments": ""}
    seen |= {"chunks": 0, "finish": None, "usage": None, "call_ids": []}
    stream = client.chat.completions.create(
        model=model, messages=SAY, max_tokens=CAP, stream=True, **marked(case, fault), **more
    )
    for chunk in stream:
        seen["usage"] = usage_of(chunk.usage) or seen["usage"]
        for choice in chunk.choices:
            delta = choice.delta
            seen["chunks"] += bool(delta.content)
            seen["text"] += delta.content or ""
            seen["reasoning"] += getattr(delta, "reasoning_content", None) or ""
            seen["finish"] = choice.finish_reason or seen["finish"]
            for call in delta.tool_calls or []:
                seen["call_ids"] += [call.id] if call.id else []
                seen["name"] += call.function.name or ""
                seen["arguments"] += call.function.arguments or ""
    return seen


def chat_helper(client: Any, case: str, model: str = "plain", **more: Any) -> Any:
    """The SDK's own accumulator, which is strict about the order and the shape of chunks."""
    with client.chat.completions.stream(
        model=model, messages=SAY, stream_options={"include_usage": True}, **marked(case), **more
    ) as stream:
        return completed(stream.get_final_completion())


def response_facts(done: Any) -> Any:
    items = {item.type: item for item in done.output}
    call, thought = items.get("function_call"), items.get("reasoning")
    return {
        "status": done.status,
        "text": done.output_text,
        "items": [item.type for item in done.output],
        "reasoning": "".join(part.text for part in thought.summary) if thought else "",
        "tool": [call.name, call.arguments] if call else None,
        "usage": usage_of(done.usage),
    }


def respond(client: Any, case: str, model: str = "plain", **more: Any) -> Any:
    return response_facts(client.responses.create(model=model, input=SAY, **marked(case), **more))


def respond_stream(client: Any, case: str, model: str = "plain", **more: Any) -> Any:
    """Deltas by hand, beside the SDK's own accumulated snapshot."""
    seen: dict[str, Any] = {"deltas": "", "numbers": [], "types": []}
    with client.responses.stream(model=model, input=SAY, **marked(case), **more) as stream:
        for event in stream:
            seen["numbers"].append(event.sequence_number)
            seen["types"].append(event.type)
            if event.type.endswith(".delta"):
                seen["deltas"] += event.delta
        done = stream.get_final_response()
    return seen | response_facts(done)


def respond_raw(client: Any, case: str) -> Any:
    stream = client.responses.create(
        model="plain", input=SAY, max_output_tokens=5, stream=True, **marked(case)
    )
    events = list(stream)
    return {"last": events[-1].type} | response_facts(events[-1].response)


def complete(client: Any, case: str) -> Any:
    done = client.completions.create(model="plain", prompt="Once", max_tokens=CAP, **marked(case))
    choice = done.choices[0]
    return {"text": choice.text, "finish": choice.finish_reason, "usage": usage_of(done.usage)}


def complete_stream(client: Any, case: str) -> Any:
    seen: dict[str, Any] = {"text": "", "finish": None, "usage": None}
    for chunk in client.completions.create(
        model="plain",
        prompt="Once",
        max_tokens=CAP,
        stream=True,
        stream_options={"include_usage": True},
        **marked(case),
    ):
        seen["usage"] = usage_of(chunk.usage) or seen["usage"]
        for choice in chunk.choices:
            seen["text"] += choice.text
            seen["finish"] = choice.finish_reason or seen["finish"]
    return seen


def embed(client: Any, case: str, **more: Any) -> Any:
    done = client.embeddings.create(
        model="plain", input=["first text", "second text"], **marked(case), **more
    )
    vectors = [item.embedding for item in done.data]
    return {
        "sizes": [len(vector) for vector in vectors],
        "lengths": [sum(x * x for x in vector) for vector in vectors],
        "first": vectors[0][:4],
        "usage": usage_of(done.usage),
    }


def refused(client: Any, case: str, fault: str) -> Any:
    def call() -> Any:
        return client.chat.completions.create(
            model="plain", messages=SAY, max_tokens=CAP, **marked(case, fault)
        ).id

    return failing(call)


def main() -> None:
    base, keyed = sys.argv[1:]
    client = openai.OpenAI(base_url=base, api_key="sk-any", max_retries=0, timeout=20)
    stranger = openai.OpenAI(base_url=keyed, api_key="sk-wrong", max_retries=0, timeout=20)
    friend = openai.OpenAI(base_url=keyed, api_key="sk-right", max_retries=0, timeout=20)
    usage: dict[str, Any] = {"stream_options": {"include_usage": True}}
    forced: dict[str, Any] = {"tools": TOOLS, "tool_choice": "required"}
    cases = {
        "models": models(client),
        "chat": chat(client, "chat"),
        "chat-capped": chat(client, "chat-capped", cap=5),
        "chat-tool": chat(client, "chat-tool", **forced),
        "chat-stream": chat_stream(client, "chat-stream", **usage),
        "chat-stream-no-usage": chat_stream(client, "chat-stream-no-usage"),
        "chat-stream-think": chat_stream(client, "chat-stream-think", "think", **usage),
        "chat-stream-tool": chat_stream(client, "chat-stream-tool", **usage, **forced),
        "chat-stream-rough": chat_stream(client, "chat-stream-rough", "rough", **usage),
        "chat-helper": chat_helper(client, "chat-helper", "long"),
        "chat-helper-tool": chat_helper(client, "chat-helper-tool", "long", **forced),
        "respond": respond(client, "respond"),
        "respond-think": respond(client, "respond-think", "think"),
        "respond-stream": respond_stream(client, "respond-stream"),
        "respond-stream-think": respond_stream(client, "respond-stream-think", "think"),
        "respond-stream-tool": respond_stream(
            client, "respond-stream-tool", tools=FLAT_TOOLS, tool_choice="required"
        ),
        "respond-capped": respond_raw(client, "respond-capped"),
        "complete": complete(client, "complete"),
        "complete-stream": complete_stream(client, "complete-stream"),
        "embed": embed(client, "embed"),
        "embed-float": embed(client, "embed-float", encoding_format="float", dimensions=8),
        "unknown-model": failing(lambda: chat(client, "unknown-model", "nobody")),
        "wrong-key": failing(lambda: chat(stranger, "wrong-key")),
        "right-key": failing(lambda: chat(friend, "right-key")),
        "rate-limited": refused(client, "rate-limited", "rate-limited:7"),
        "overloaded": refused(client, "overloaded", "status:503"),
        "bad-request": refused(client, "bad-request", "status:400"),
        "in-stream-error": failing(
            lambda: chat_stream(client, "in-stream-error", fault="stream-error:3")
        ),
        "truncated": failing(lambda: chat_stream(client, "truncated", fault="truncated:5")),
        "reset": failing(lambda: chat_stream(client, "reset", fault="reset:5")),
    }
    json.dump({"version": openai.__version__, "cases": cases}, sys.stdout)


if __name__ == "__main__":
    main()
