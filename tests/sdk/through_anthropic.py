"""Drives the anthropic SDK through a gateway and prints what it made of it.

Every call's request id is the SDK's name and the case's: so the test finds it in the journal.
"""

from __future__ import annotations

from typing import Any

import anthropic  # type: ignore[import-not-found]  # only in the SDK's own environment

from sdk.through import FAMILIES, PARAMETERS, SCHEMA, Cases, facts

SAY = [{"role": "user", "content": "Say something."}]
TOOLS: dict[str, Any] = {
    "tools": [{"name": "look", "description": "Look.", "input_schema": PARAMETERS}],
    "tool_choice": {"type": "any"},
}
JSON: dict[str, Any] = {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}}


def asked(case: str, model: str, more: dict[str, Any]) -> dict[str, Any]:
    headers = {"x-request-id": f"anthropic-{case}"}
    return {"model": model, "max_tokens": 12, "messages": SAY, "extra_headers": headers} | more


def history(case: str) -> list[dict[str, Any]]:
    """A talk in which two tools were called at once and have answered."""

    def call(id_: str, city: str) -> dict[str, Any]:
        return {"type": "tool_use", "id": id_, "name": "get_weather", "input": {"city": city}}

    def result(id_: str, said: str) -> dict[str, Any]:
        return {"type": "tool_result", "tool_use_id": id_, "content": said}

    return [
        {"role": "user", "content": case},
        {"role": "assistant", "content": [call("c1", "Oslo"), call("c2", "Bergen")]},
        {"role": "user", "content": [result("c1", "rain"), result("c2", "more rain")]},
    ]


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


def same(cases: Cases, client: Any) -> None:
    cases.take("models", lambda: {"ids": [model.id for model in client.models.list()]})
    cases.take("rescued", headers, client, "rescued", "rescued-anthropic")
    cases.take("headers", headers, client, "headers", "claude/plain")


def family(cases: Cases, client: Any, name: str, dialect: str) -> None:
    """Every way to ask, of one provider's dialect."""
    model, golden = f"{name}/plain", f"golden-{name}/parallel.{dialect}"
    schema = f"golden-{name}/schema.{dialect}"

    def take(kind: str, work: Any, asked: str = model, **more: Any) -> None:
        case = f"{kind}-{name}"
        cases.take(case, work, client, case, asked, **more)

    def said(kind: str) -> dict[str, Any]:
        return {"messages": [{"role": "user", "content": f"anthropic-{kind}-{name}"}]}

    take("chat", create)
    take("stream", stream)
    take("think", stream, f"{name}/think")
    take("tool", create, **TOOLS)
    take("tool-stream", stream, **TOOLS)
    take("schema", create, schema, **JSON, **said("schema"))
    take("schema-stream", stream, schema, **JSON, **said("schema-stream"))
    take("parallel", create, golden)
    take("parallel-helper", stream, golden)
    talk = history(f"anthropic-history-{name}")
    take("history", create, golden, messages=talk, system="Be brief.")


def errors(cases: Cases, client: Any, url: str, keys: dict[str, str]) -> None:
    stranger = anthropic.Anthropic(base_url=url, api_key="lg-wrong", max_retries=0)
    slow = anthropic.Anthropic(base_url=url, api_key=keys["slow-anthropic"], max_retries=0)
    eager = anthropic.Anthropic(base_url=url, api_key=keys["open"], max_retries=2, timeout=20)
    cases.take("wrong-key", create, stranger, "wrong-key", "fast")
    cases.take("wrong-key-models", lambda: {"ids": list(stranger.models.list())})
    cases.take("unknown-model", create, client, "unknown-model", "fats")
    cases.take("slow-first", create, slow, "slow-first", "claude/plain")
    cases.take("slow-second", create, slow, "slow-second", "claude/plain")
    cases.take("limited", create, eager, "limited", "limited-anthropic")
    cases.take("gone", create, eager, "gone", "gone-anthropic")
    cases.take("gone-stream", stream, eager, "gone-stream", "gone-anthropic")
    cases.take("refused", create, eager, "refused", "refusing")
    for fault, model in (("broken", "stream-error:3"), ("cut", "truncated:5")):
        cases.take(fault, stream, client, fault, f"claude/plain!{model}")
        cases.take(f"{fault}-across", stream, client, fault, fault)


def main() -> None:
    url, keys = facts()
    client = anthropic.Anthropic(base_url=url, api_key=keys["open"], max_retries=0, timeout=20)
    cases = Cases()
    for case, model in (("quiet", "silence:1.2"), ("pausing", "stall:3,1.2")):
        cases.take_slowly(case, stream, client, case, f"claude/plain!{model}")
    same(cases, client)
    errors(cases, client, url, keys)
    for name, dialect in FAMILIES.items():
        family(cases, client, name, dialect)
    cases.print()


if __name__ == "__main__":
    main()
