"""Drives the anthropic SDK's calls beside chat through a gateway and prints what came of them."""

from __future__ import annotations

from typing import Any

import anthropic  # type: ignore[import-not-found]  # only in the SDK's own environment

from sdk import through

WORDS = "Tell me what a lighthouse is for, and who keeps it."
TARGETS = ("openai/plain", "anthropic/plain", "gemini/plain", "lab/plain")


def count(client: Any, model: str) -> dict[str, Any]:
    said = [{"role": "user", "content": WORDS}]
    raw = client.messages.with_raw_response.count_tokens(model=model, messages=said)
    return {"tokens": raw.parse().input_tokens, "source": raw.headers["x-lightgate-count-source"]}


def main() -> None:
    url, keys = through.facts()
    client = anthropic.Anthropic(base_url=url, api_key=keys["open"], max_retries=0)
    cases = through.Cases()
    for model in TARGETS:
        cases.take(f"count-{model}", count, client, model)
    cases.print()


if __name__ == "__main__":
    main()
