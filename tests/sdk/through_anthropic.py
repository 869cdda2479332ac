"""Drives the anthropic SDK through a gateway and prints what it made of it.

Every call's request id is the SDK's name and the case's: so the test finds it in the journal.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import anthropic  # type: ignore[import-not-found]  # only in the SDK's own environment

from sdk import through
from sdk.through import PARAMETERS, SCHEMA

SAY = [{"role": "user", "content": "Say something."}]
TOOLS: dict[str, Any] = {
    "tools": [{"name": "look", "description": "Look.", "input_schema": PARAMETERS}],
    "tool_choice": {"type": "any"},
}
JSON: dict[str, Any] = {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}}


def made(url: str, key: str, retries: int = 0) -> Any:
    return anthropic.Anthropic(base_url=url, api_key=key, max_retries=retries, timeout=20)


def asked(case: str, model: str, more: dict[str, Any]) -> dict[str, Any]:
    headers = {"x-request-id": f"anthropic-{case}"}
    return {"model": model, "max_tokens": 12, "messages": SAY, "extra_headers": headers} | more


def said(words: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": words}]}


def history(case: str) -> dict[str, Any]:
    """A talk in which two tools were called at once and have answered."""

    def call(id_: str, city: str) -> dict[str, Any]:
        return {"type": "tool_use", "id": id_, "name": "get_weather", "input": {"city": city}}

    def result(id_: str, text: str) -> dict[str, Any]:
        return {"type": "tool_result", "tool_use_id": id_, "content": text}

    talk = [
        {"role": "user", "content": case},
        {"role": "assistant", "content": [call("c1", "Oslo"), call("c2", "Bergen")]},
        {"role": "user", "content": [result("c1", "rain"), result("c2", "more rain")]},
    ]
    return {"messages": talk, "system": "Be brief."}


def message(done: Any) -> dict[str, Any]:
    calls = [block for block in done.content if block.type == "tool_use"]
    return {
        "text": "".join(block.text for block in done.content if block.type == "text"),
        "thought": "".join(b.thinking for b in done.content if b.type == "thinking"),
        "calls": [[call.name, call.input] for call in calls],
        "finish": done.stop_reason,
        "usage": done.usage.model_dump(exclude_none=True),
        "model": done.model,
    }


def create(client: Any, case: str, model: str, **more: Any) -> dict[str, Any]:
    return message(client.messages.create(**asked(case, model, more)))


def headers(client: Any, case: str, model: str) -> dict[str, Any]:
    raw = client.messages.with_raw_response.create(**asked(case, model, {}))
    return {"headers": dict(raw.headers), "id": raw.parse().id}


def stream(client: Any, case: str, model: str, **more: Any) -> dict[str, Any]:
    """The helper's accumulated message, and the kinds of the events as they came."""
    with client.messages.stream(**asked(case, model, more)) as events:
        types = [event.type for event in events]
        done = message(events.get_final_message())
        target = events.response.headers.get("x-lightgate-target")
    return done | {"types": types, "target": target}


ANTHROPIC = through.Sdk(
    name="anthropic",
    home="claude/plain",
    ways=through.Ways(create, stream, helper=stream),
    wishes=through.Wishes(TOOLS, JSON, said, history),
)


def main() -> None:
    url, keys = through.facts()
    by = through.clients(ANTHROPIC, partial(made, url), keys)
    cases = through.Cases()
    for case, fault in (("quiet", "silence:2.2"), ("pausing", "stall:3,2.2")):
        cases.ask_slowly(stream, by.open, case, f"claude/plain!{fault}")
    through.models(
        cases,
        lambda: [model.id for model in by.open.models.list()],
        lambda name: by.open.models.retrieve(name).id,
    )
    cases.ask(headers, by.open, "rescued", "rescued-anthropic")
    cases.ask(headers, by.open, "headers", "claude/plain")
    through.errors(cases, ANTHROPIC, by, told=by.eager)
    for case, fault in (("broken", "stream-error:3"), ("cut", "truncated:5")):
        cases.ask(stream, by.open, case, f"claude/plain!{fault}")
        cases.ask(stream, by.open, f"{case}-across", case)
    through.families(cases, ANTHROPIC, by.open)
    cases.print()


if __name__ == "__main__":
    main()
