"""Drives the openai SDK to providers that refuse, through a gateway, and prints what it saw."""

from __future__ import annotations

import json
import sys
from typing import Any

import openai  # type: ignore[import-not-found,unused-ignore]  # only in the SDK's environment

TALK: list[Any] = [
    {"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Hi"},
]  # fmt: skip
FORM = {
    "type": "json_schema",
    "json_schema": {"name": "x", "strict": True, "schema": {"type": "object"}},
}


def failed(client: Any, model: str) -> dict[str, Any]:
    try:
        client.chat.completions.create(model=model, messages=TALK)
    except openai.APIStatusError as error:
        return {
            "class": type(error).__name__, "status": error.status_code, "code": error.code,
            "param": error.param, "type": error.type, "id": error.request_id,
            "message": error.message, "headers": dict(error.response.headers),
        }  # fmt: skip
    return {"class": None}


def main() -> None:
    client = openai.OpenAI(
        base_url=f"{sys.argv[1]}/v1", api_key="none", organization="org-1", project="proj_1",
        max_retries=0, default_headers={"idempotency-key": "once"},
    )  # fmt: skip
    cases: dict[str, Any] = {}
    for provider in ("openai", "anthropic", "gemini"):
        for model in ("long", "limited"):
            cases[f"{model}-{provider}"] = failed(client, f"{provider}/{model}")
    raw = client.chat.completions.with_raw_response.create(model="openai/m", messages=TALK)
    told = raw.parse()
    cases["fine"] = {
        "text": told.choices[0].message.content, "id": told._request_id,
        "headers": dict(raw.headers),
    }  # fmt: skip
    for provider in ("mistral", "cohere", "together", "deepseek"):
        raw = client.chat.completions.with_raw_response.create(
            model=f"{provider}/m", messages=TALK, stream=True, max_completion_tokens=9, seed=1,
            stream_options={"include_usage": True}, response_format=FORM, store=False,
        )  # fmt: skip
        text = "".join(
            chunk.choices[0].delta.content or "" for chunk in raw.parse() if chunk.choices
        )
        cases[f"strict-{provider}"] = {"text": text, "headers": dict(raw.headers)}
    sys.stdout.write(json.dumps(cases))


main()
