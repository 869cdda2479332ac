"""Drives google-genai's calls beside chat through a gateway and prints what it made of them."""

from __future__ import annotations

from typing import Any

from google import genai  # type: ignore[import-not-found]  # only in the SDK's own environment
from google.genai import types  # type: ignore[import-not-found]  # same

from sdk import through

WORDS = "Tell me what a lighthouse is for, and who keeps it."
TARGETS = ("openai/plain", "anthropic/plain", "gemini/plain", "lab/plain")


def count(client: Any, model: str) -> dict[str, Any]:
    found = client.models.count_tokens(model=model, contents=WORDS)
    headers = found.sdk_http_response.headers
    return {"tokens": found.total_tokens, "source": headers["x-lightgate-count-source"]}


def embed(client: Any, model: str) -> dict[str, Any]:
    size = types.EmbedContentConfig(output_dimensionality=16)
    found = client.models.embed_content(model=model, contents=[WORDS, "Sea."], config=size)
    return {"plain": [one.values for one in found.embeddings]}


def main() -> None:
    url, keys = through.facts()
    options = types.HttpOptions(base_url=url, timeout=20_000)
    client = genai.Client(api_key=keys["open"], http_options=options, vertexai=False)
    cases = through.Cases()
    for model in TARGETS:
        cases.take(f"count-{model}", count, client, model)
        if model != "anthropic/plain":
            cases.take(f"embed-{model}", embed, client, model)
    cases.print()


if __name__ == "__main__":
    main()
