"""Drives the anthropic SDK to providers that refuse, through a gateway, and prints what it saw."""

from __future__ import annotations

import json
import sys
from typing import Any

import anthropic  # type: ignore[import-not-found,unused-ignore]  # only in the SDK's environment

TALK: list[Any] = [{"role": "user", "content": "Hi"}]


def failed(client: Any, model: str) -> dict[str, Any]:
    try:
        client.messages.create(model=model, messages=TALK, max_tokens=9)
    except anthropic.APIStatusError as error:
        body: Any = error.body
        return {
            "class": type(error).__name__, "status": error.status_code, "id": error.request_id,
            "type": body["error"]["type"], "message": body["error"]["message"],
            "headers": dict(error.response.headers),
        }  # fmt: skip
    return {"class": None}


def main() -> None:
    client = anthropic.Anthropic(base_url=sys.argv[1], api_key="none", max_retries=0)
    cases: dict[str, Any] = {}
    for provider in ("openai", "anthropic", "gemini"):
        for model in ("long", "limited"):
            cases[f"{model}-{provider}"] = failed(client, f"{provider}/{model}")
    raw = client.messages.with_raw_response.create(
        model="anthropic/m", messages=TALK, max_tokens=9,
        extra_headers={"anthropic-beta": "tools-1", "openai-beta": "x=1"},
    )  # fmt: skip
    told = raw.parse()
    cases["fine"] = {
        "text": told.content[0].text, "id": told._request_id, "headers": dict(raw.headers),
    }  # fmt: skip
    sys.stdout.write(json.dumps(cases))


main()
