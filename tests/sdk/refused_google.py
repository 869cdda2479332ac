"""Drives the google-genai SDK to providers that refuse, through a gateway; prints what it saw."""

from __future__ import annotations

import json
import sys
from typing import Any

from google import genai  # type: ignore[import-not-found]  # only in the SDK's own environment
from google.genai import errors, types  # type: ignore[import-not-found]  # same


def failed(client: Any, model: str) -> dict[str, Any]:
    try:
        client.models.generate_content(model=model, contents="Hi")
    except errors.APIError as error:
        return {
            "class": type(error).__name__, "code": error.code, "status": error.status,
            "message": error.message,
        }  # fmt: skip
    return {"class": None}


def main() -> None:
    options = types.HttpOptions(base_url=sys.argv[1], timeout=20_000)
    client = genai.Client(api_key="none", http_options=options, vertexai=False)
    cases: dict[str, Any] = {}
    for provider in ("openai", "anthropic", "gemini"):
        for model in ("long", "limited"):
            cases[f"{model}-{provider}"] = failed(client, f"{provider}/{model}")
    told = client.models.generate_content(model="gemini/m", contents="Hi")
    cases["fine"] = {"text": told.text, "headers": dict(told.sdk_http_response.headers)}
    sys.stdout.write(json.dumps(cases))


main()
