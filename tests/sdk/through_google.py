"""Drives the google-genai SDK through a gateway and prints what it made of it.

Every call's request id is the SDK's name and the case's: so the test finds it in the journal.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from google import genai  # type: ignore[import-not-found]  # only in the SDK's own environment
from google.genai import types  # type: ignore[import-not-found]  # same

from sdk import through
from sdk.through import PARAMETERS, SCHEMA

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


def made(url: str, key: str, retries: int = 0) -> Any:
    options = types.HttpOptions(base_url=url, timeout=20_000)
    if retries:
        options.retry_options = types.HttpRetryOptions(
            attempts=1 + retries, initial_delay=0.01, jitter=0.01
        )
    return genai.Client(api_key=key, http_options=options, vertexai=False)


def asked(case: str, model: str, contents: Any, more: dict[str, Any]) -> dict[str, Any]:
    options = types.HttpOptions(headers={"x-request-id": f"google-{case}"})
    config = types.GenerateContentConfig(max_output_tokens=12, http_options=options, **more)
    return {"model": model, "contents": contents, "config": config}


def said(words: str) -> dict[str, Any]:
    return {"contents": words}


def history(case: str) -> dict[str, Any]:
    """A talk in which two tools were called at once and have answered."""

    def call(id_: str, city: str) -> dict[str, Any]:
        return {"function_call": {"id": id_, "name": "get_weather", "args": {"city": city}}}

    def result(id_: str, text: str) -> dict[str, Any]:
        answer = {"id": id_, "name": "get_weather", "response": {"output": text}}
        return {"function_response": answer}

    talk = [
        {"role": "user", "parts": [{"text": case}]},
        {"role": "model", "parts": [call("c1", "Oslo"), call("c2", "Bergen")]},
        {"role": "user", "parts": [result("c1", "rain"), result("c2", "more rain")]},
    ]
    return {"contents": talk, "system_instruction": "Be brief."}


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
    headers = chunks[0].sdk_http_response.headers
    seen |= {"model": chunks[0].model_version, "headers": dict(headers)}
    return seen | {"target": headers.get("x-lightgate-target")}


def create(client: Any, case: str, model: str, contents: Any = SAY, **more: Any) -> dict[str, Any]:
    return answer([client.models.generate_content(**asked(case, model, contents, more))])


def stream(client: Any, case: str, model: str, contents: Any = SAY, **more: Any) -> dict[str, Any]:
    return answer([*client.models.generate_content_stream(**asked(case, model, contents, more))])


GOOGLE = through.Sdk(
    name="google",
    home="gem/plain",
    ways=through.Ways(create, stream, helper=stream),
    wishes=through.Wishes(TOOLS, JSON, said, history),
)


def main() -> None:
    url, keys = through.facts()
    by = through.clients(GOOGLE, partial(made, url), keys)
    cases = through.Cases()
    for case in ("quiet", "pausing"):
        cases.ask_slowly(stream, by.open, case, f"{case}-gem")
    through.models(
        cases,
        lambda: [model.name for model in by.open.models.list()],
        lambda name: by.open.models.get(model=name).name,
    )
    cases.ask(create, by.open, "rescued", "rescued-google")
    through.errors(cases, GOOGLE, by, told=by.open)  # its eager client would not listen
    cases.ask(create, by.eager, "gone-eager", "gone-google")
    for case in ("broken", "cut"):
        cases.ask(stream, by.open, case, f"{case}-gem")
        cases.ask(stream, by.open, f"{case}-across", case)
    through.families(cases, GOOGLE, by.open)
    cases.print()


if __name__ == "__main__":
    main()
