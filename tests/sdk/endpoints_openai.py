"""Drives the openai SDK's calls beside chat through a gateway and prints what it made of them."""

from __future__ import annotations

from typing import Any

import openai  # type: ignore[import-not-found]  # only in the SDK's own environment

from sdk import through

WORDS = "Tell me what a lighthouse is for, and who keeps it."
TARGETS = ("openai/plain", "anthropic/plain", "gemini/plain", "lab/plain")


def count(client: Any, model: str) -> dict[str, Any]:
    raw = client.responses.input_tokens.with_raw_response.count(model=model, input=WORDS)
    return {"tokens": raw.parse().input_tokens, "source": raw.headers["x-lightgate-count-source"]}


def main() -> None:
    url, keys = through.facts()
    client = openai.OpenAI(base_url=f"{url}/v1", api_key=keys["open"], max_retries=0)
    cases = through.Cases()
    for model in TARGETS:
        cases.take(f"count-{model}", count, client, model)
    cases.print()


if __name__ == "__main__":
    main()
