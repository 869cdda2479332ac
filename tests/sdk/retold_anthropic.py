"""Reads the golden answers with the anthropic SDK, from its own environment."""

from __future__ import annotations

import json
import sys
from typing import Any

import anthropic  # type: ignore[import-not-found]  # only in the SDK's own environment
import pydantic
from anthropic.types import (  # type: ignore[import-not-found]  # same
    Message,
    RawMessageStreamEvent,
)

from sdk.retold import goldens, invalid, served

ASK: dict[str, Any] = {
    "max_tokens": 64,
    "messages": [{"role": "user", "content": "Say something."}],
}


def message(done: Any) -> dict[str, Any]:
    heard: dict[str, Any] = {"text": "", "reasoning": "", "refusal": "", "signature": ""}
    heard |= {"calls": [], "logprobs": []}
    for block in done.content:
        if block.type == "text":
            heard["text"] += block.text
        elif block.type == "thinking":
            heard["reasoning"] += block.thinking
            heard["signature"] += block.signature
        else:
            heard["calls"].append([block.id, block.name, block.input])
    return heard | {"finish": done.stop_reason, "usage": done.usage.model_dump(exclude_unset=True)}


def read(client: Any, model: str) -> Any:
    with client.messages.stream(model=model, **ASK) as stream:
        streamed = message(stream.get_final_message())
    return {"stream": streamed, "whole": message(client.messages.create(model=model, **ASK))}


def main() -> None:
    answers = sys.argv[1]
    event = pydantic.TypeAdapter(RawMessageStreamEvent).validate_python
    with served(answers) as base:
        client = anthropic.Anthropic(base_url=base, api_key="test", max_retries=0)
        found = {
            model: read(client, model)
            | {"invalid": invalid(answers, model, event, Message.model_validate)}
            for model in goldens(answers, "anthropic-messages")
        }
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
