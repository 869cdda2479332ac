"""Drives the google-genai SDK through a gateway and prints what it made of it.

Every call's request id is the SDK's name and the case's: so the test finds it in the journal.
"""

from __future__ import annotations

from typing import Any

from google import genai  # type: ignore[import-not-found]  # only in the SDK's own environment
from google.genai import types  # type: ignore[import-not-found]  # same

from sdk.through import FAMILIES, PARAMETERS, SCHEMA, Cases, facts

SAY = "Say something."
TOOLS: dict[str, Any] = {
    "tools": [
        {
            "function_declarations": [
                {"name": "look", "description": "Look.", "parameters_json_schema": PARAMETERS}
            ]
        }
    ],
    "tool_config": {"function_calling_config": {"mode": "ANY"}},
    "automatic_function_calling": {"disable": True},
}
JSON: dict[str, Any] = {
    "response_mime_type": "application/json",
    "response_json_schema": SCHEMA,
}


def made(url: str, key: str, attempts: int | None = None) -> Any:
    options = types.HttpOptions(base_url=url, timeout=20_000)
    if attempts is not None:
        options.retry_options = types.HttpRetryOptions(
            attempts=attempts, initial_delay=0.01, jitter=0.01
        )
    return genai.Client(api_key=key, http_options=options, vertexai=False)


def asked(case: str, model: str, contents: Any, more: dict[str, Any]) -> dict[str, Any]:
    options = types.HttpOptions(headers={"x-request-id": f"google-{case}"})
    config = types.GenerateContentConfig(max_output_tokens=12, http_options=options, **more)
    return {"model": model, "contents": contents, "config": config}


def history(case: str) -> list[dict[str, Any]]:
    """A talk in which two tools were called at once and have answered."""

    def call(id_: str, city: str) -> dict[str, Any]:
        return {"function_call": {"id": id_, "name": "get_weather", "args": {"city": city}}}

    def result(id_: str, said: str) -> dict[str, Any]:
        answer = {"id": id_, "name": "get_weather", "response": {"output": said}}
        return {"function_response": answer}

    return [
        {"role": "user", "parts": [{"text": case}]},
        {"role": "model", "parts": [call("c1", "Oslo"), call("c2", "Bergen")]},
        {"role": "user", "parts": [result("c1", "rain"), result("c2", "more rain")]},
    ]


def answer(chunks: list[Any]) -> dict[str, Any]:
    seen: dict[str, Any] = {"text": "", "thought": "", "calls": [], "finish": None, "usage": None}
    for chunk in chunks:
        for candidate in chunk.candidates or []:
            for part in candidate.content.parts or [] if candidate.content else []:
                if part.function_call:
                    seen["calls"].append([part.function_call.name, part.function_call.args])
                seen["thought" if part.thought else "text"] += part.text or ""
            if candidate.finish_reason:
                seen["finish"] = candidate.finish_reason.value
        if chunk.usage_metadata:
            seen["usage"] = chunk.usage_metadata.model_dump(by_alias=True, exclude_none=True)
    headers = chunks[0].sdk_http_response.headers if chunks else {}
    return seen | {"model": chunks[0].model_version, "headers": dict(headers)}


def create(client: Any, case: str, model: str, contents: Any = SAY, **more: Any) -> dict[str, Any]:
    return answer([client.models.generate_content(**asked(case, model, contents, more))])


def stream(client: Any, case: str, model: str, contents: Any = SAY, **more: Any) -> dict[str, Any]:
    return answer([*client.models.generate_content_stream(**asked(case, model, contents, more))])


def same(cases: Cases, client: Any) -> None:
    cases.take("models", lambda: {"ids": [model.name for model in client.models.list()]})
    cases.take("rescued", create, client, "rescued", "rescued-google")


def family(cases: Cases, client: Any, name: str, dialect: str) -> None:
    """Every way to ask, of one provider's dialect."""
    model, golden = f"{name}/plain", f"golden-{name}/parallel.{dialect}"
    schema = f"golden-{name}/schema.{dialect}"

    def take(kind: str, work: Any, asked: str = model, **more: Any) -> None:
        case = f"{kind}-{name}"
        cases.take(case, work, client, case, asked, **more)

    def said(kind: str) -> dict[str, Any]:
        return {"contents": f"google-{kind}-{name}"}

    take("chat", create)
    take("stream", stream)
    take("think", stream, f"{name}/think")
    take("tool", create, **TOOLS)
    take("tool-stream", stream, **TOOLS)
    take("schema", create, schema, **JSON, **said("schema"))
    take("schema-stream", stream, schema, **JSON, **said("schema-stream"))
    take("parallel", create, golden)
    take("parallel-helper", stream, golden)
    talk = history(f"google-history-{name}")
    take("history", create, golden, contents=talk, system_instruction="Be brief.")


def errors(cases: Cases, client: Any, url: str, keys: dict[str, str]) -> None:
    stranger, slow = made(url, "lg-wrong"), made(url, keys["slow-google"])
    eager = made(url, keys["open"], attempts=3)
    cases.take("wrong-key", create, stranger, "wrong-key", "fast")
    cases.take("wrong-key-models", lambda: {"ids": list(stranger.models.list())})
    cases.take("unknown-model", create, client, "unknown-model", "fats")
    cases.take("slow-first", create, slow, "slow-first", "gem/plain")
    cases.take("slow-second", create, slow, "slow-second", "gem/plain")
    cases.take("limited", create, client, "limited", "limited-google")
    cases.take("gone", create, client, "gone", "gone-google")
    cases.take("gone-stream", stream, client, "gone-stream", "gone-google")
    cases.take("gone-eager", create, eager, "gone-eager", "gone-google")
    cases.take("refused", create, eager, "refused", "refusing")
    for fault in ("broken", "cut"):
        cases.take(fault, stream, client, fault, f"{fault}-gem")
        cases.take(f"{fault}-across", stream, client, fault, fault)


def main() -> None:
    url, keys = facts()
    client = made(url, keys["open"])
    cases = Cases()
    for case in ("quiet", "pausing"):
        cases.take_slowly(case, stream, client, case, f"{case}-gem")
    same(cases, client)
    errors(cases, client, url, keys)
    for name, dialect in FAMILIES.items():
        family(cases, client, name, dialect)
    cases.print()


if __name__ == "__main__":
    main()
