"""Reads the golden answers with the google-genai SDK, from its own environment."""

from __future__ import annotations

import base64
import json
import sys
from typing import Any

from google import genai  # type: ignore[import-not-found]  # only in the SDK's own environment
from google.genai import types  # type: ignore[import-not-found]  # same

from sdk.retold import goldens, invalid, served


def answer(chunks: list[Any]) -> dict[str, Any]:
    heard: dict[str, Any] = {"text": "", "reasoning": "", "refusal": "", "signature": ""}
    heard |= {"calls": [], "logprobs": [], "finish": None, "usage": None}
    for chunk in chunks:
        (candidate,) = chunk.candidates
        for part in candidate.content.parts:
            signature = part.thought_signature
            heard["signature"] += base64.b64encode(signature).decode() if signature else ""
            if part.function_call:
                call = part.function_call
                heard["calls"].append([call.id, call.name, call.args])
            else:
                heard["reasoning" if part.thought else "text"] += part.text
        found = candidate.logprobs_result
        if found:
            for one, top in zip(found.chosen_candidates, found.top_candidates, strict=True):
                others = [[t.token, t.log_probability] for t in top.candidates]
                heard["logprobs"].append([one.token, one.log_probability, others])
        heard["finish"] = candidate.finish_reason and candidate.finish_reason.value
        used = chunk.usage_metadata
        heard["usage"] = used and used.model_dump(by_alias=True, exclude_none=True)
    return heard


def read(client: Any, model: str) -> Any:
    stream = client.models.generate_content_stream(model=model, contents="Say something.")
    streamed = answer(list(stream))
    whole = client.models.generate_content(model=model, contents="Say something.")
    return {"stream": streamed, "whole": answer([whole])}


def main() -> None:
    answers = sys.argv[1]
    check = types.GenerateContentResponse.model_validate
    with served(answers) as base:
        options = types.HttpOptions(base_url=base)
        client = genai.Client(api_key="test", http_options=options, vertexai=False)
        found = {
            model: read(client, model) | {"invalid": invalid(answers, model, check, check)}
            for model in goldens(answers, "gemini")
        }
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
