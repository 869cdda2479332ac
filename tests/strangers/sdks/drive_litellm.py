"""Drives litellm's own client with the prefixes of three dialects."""

from __future__ import annotations

import json
import os
from typing import Any

# Else it asks for a list of prices when it is imported.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
import litellm
from drive import ASKED, Weather, drive
from pydantic import BaseModel

litellm.telemetry = False
litellm.suppress_debug_info = True
PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
}
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": PARAMETERS}}


class Thing(BaseModel):
    name: str
    quote: str


def ways(prefix: str, path: str) -> dict[str, Any]:
    def asked(url: str, key: str, model: str, talk: Any = None, **more: Any) -> Any:
        return litellm.completion(
            model=f"{prefix}/{model}", api_base=f"{url}{path}", api_key=key,
            messages=talk or [{"role": "user", "content": ASKED}], num_retries=0, **more,
        )  # fmt: skip

    def chat(url: str, key: str) -> Any:
        return asked(url, key, "talk").choices[0].message.content

    def stream(url: str, key: str) -> Any:
        chunks = [chunk.choices[0].delta.content for chunk in asked(url, key, "talk", stream=True)]
        return [text for text in chunks if text]

    def tools(url: str, key: str) -> Any:
        weather, talk = Weather(), [{"role": "user", "content": ASKED}]
        while True:
            message = asked(url, key, "looker", talk, tools=[TOOL]).choices[0].message
            talk.append(message)
            if not message.tool_calls:
                return message.content, weather.asked
            for call in message.tool_calls:
                result = weather.get_weather(**json.loads(call.function.arguments))
                talk.append({"role": "tool", "tool_call_id": call.id, "content": result})

    def structured(url: str, key: str) -> Any:
        done = asked(url, key, "thing", response_format=Thing)
        return json.loads(done.choices[0].message.content)

    return {"chat": chat, "stream": stream, "tools": tools, "structured": structured}


def embeddings(url: str, key: str) -> Any:
    done = litellm.embedding(
        model="openai/talk", api_base=f"{url}/v1", api_key=key, input=["one", "two"]
    )
    return [item["embedding"] for item in done.data]


if __name__ == "__main__":
    drive(
        {
            "openai/": ways("openai", "/v1") | {"embeddings": embeddings},
            "anthropic/": ways("anthropic", ""),
            "gemini/": ways("gemini", "/v1beta"),
        },
        "litellm",
    )
