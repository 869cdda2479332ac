"""Drives the anthropic SDK against a simulator and prints what it made of it, as one JSON document.

    python drive_anthropic.py BASE_URL KEYED_BASE_URL

Every call's request id is its case's name: so the test finds it in the simulator's log.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import anthropic  # type: ignore[import-not-found]  # only in the SDK's own environment

from sdk.through import failing

SAY = [{"role": "user", "content": "Say something."}]
CAP = 50
TOOLS: list[dict[str, Any]] = [
    {
        "name": "look",
        "description": "Look at something.",
        "input_schema": {"type": "object", "properties": {"a": {"type": "string"}}},
    }
]


def asked(case: str, model: str, fault: str = "", cap: int = CAP) -> dict[str, Any]:
    headers = {"x-request-id": case} | ({"x-sim-fault": fault} if fault else {})
    return {"model": model, "max_tokens": cap, "messages": SAY, "extra_headers": headers}


def message_facts(message: Any) -> Any:
    by_type = {block.type: block for block in message.content}
    text, thought, tool = (by_type.get(name) for name in ("text", "thinking", "tool_use"))
    return {
        "blocks": [block.type for block in message.content],
        "text": text.text if text else "",
        "thinking": thought.thinking if thought else "",
        "tool": [tool.name, tool.input] if tool else None,
        "stop": message.stop_reason,
        "usage": message.usage.model_dump(exclude_none=True),
    }


def models(client: Any) -> Any:
    listed = [model.id for model in client.models.list()]
    return {"listed": listed, "one": client.models.retrieve(listed[0]).id}


def create(client: Any, case: str, model: str = "plain", cap: int = CAP, **more: Any) -> Any:
    return message_facts(client.messages.create(**asked(case, model, cap=cap), **more))


def stream(client: Any, case: str, model: str = "plain", fault: str = "", **more: Any) -> Any:
    """The helper's accumulated message, beside its events added up by hand."""
    seen: dict[str, Any] = {"types": [], "text_deltas": "", "thinking_deltas": "", "json": ""}
    with client.messages.stream(**asked(case, model, fault), **more) as events:
        for event in events:
            seen["types"].append(event.type)
            if event.type == "content_block_delta":
                delta = event.delta
                seen["text_deltas"] += getattr(delta, "text", "")
                seen["thinking_deltas"] += getattr(delta, "thinking", "")
                seen["json"] += getattr(delta, "partial_json", "")
        done = events.get_final_message()
    return seen | message_facts(done)


def stream_raw(client: Any, case: str) -> Any:
    """`create(stream=True)`: the events as they come."""
    events = client.messages.create(**asked(case, "plain"), stream=True)
    return {"types": [event.type for event in events]}


def refused(client: Any, case: str, fault: str) -> Any:
    return failing(lambda: client.messages.create(**asked(case, "plain", fault)).id)


def main() -> None:
    # The SDK brings the version of the path itself.
    base, keyed = (url.removesuffix("/v1") for url in sys.argv[1:])
    client = anthropic.Anthropic(base_url=base, api_key="sk-any", max_retries=0, timeout=20)
    stranger = anthropic.Anthropic(base_url=keyed, api_key="sk-wrong", max_retries=0, timeout=20)
    friend = anthropic.Anthropic(base_url=keyed, api_key="sk-right", max_retries=0, timeout=20)
    forced: dict[str, Any] = {"tools": TOOLS, "tool_choice": {"type": "any"}}
    cases = {
        "models": models(client),
        "create": create(client, "create"),
        "create-think": create(client, "create-think", "think"),
        "create-tool": create(client, "create-tool", **forced),
        "create-capped": create(client, "create-capped", cap=5),
        "stream": stream(client, "stream"),
        "stream-think": stream(client, "stream-think", "think"),
        "stream-tool": stream(client, "stream-tool", **forced),
        "stream-mixed": stream(client, "stream-mixed", "mixed", tools=TOOLS),
        "stream-rough": stream(client, "stream-rough", "rough"),
        "stream-raw": stream_raw(client, "stream-raw"),
        "unknown-model": failing(lambda: create(client, "unknown-model", "nobody")),
        "wrong-key": failing(lambda: create(stranger, "wrong-key")),
        "right-key": failing(lambda: create(friend, "right-key")),
        "rate-limited": refused(client, "rate-limited", "rate-limited:7"),
        "overloaded": refused(client, "overloaded", "status:529"),
        "bad-request": refused(client, "bad-request", "status:400"),
        "in-stream-error": failing(
            lambda: stream(client, "in-stream-error", fault="stream-error:3")
        ),
        "truncated": failing(lambda: stream(client, "truncated", fault="truncated:5")),
        "reset": failing(lambda: stream(client, "reset", fault="reset:5")),
    }
    json.dump({"version": anthropic.__version__, "cases": cases}, sys.stdout)


if __name__ == "__main__":
    main()
