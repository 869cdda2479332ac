"""Drives the openai package for Python: chat completions, responses, embeddings."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import openai
from drive import ASKED, Weather, drive
from pydantic import BaseModel

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
CHAT_TOOL = {
    "type": "function",
    "function": {"name": "get_weather", "parameters": SCHEMA, "strict": True},
}
TOOL = {"type": "function", "name": "get_weather", "parameters": SCHEMA, "strict": True}
TALK: list[Any] = [{"role": "user", "content": ASKED}]


class Thing(BaseModel):
    name: str
    quote: str


@cache
def client(url: str, key: str) -> Any:
    return openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0)


def chat(url: str, key: str) -> Any:
    done = client(url, key).chat.completions.create(model="talk", messages=TALK)
    return done.choices[0].message.content


def stream(url: str, key: str) -> Any:
    with client(url, key).chat.completions.stream(model="talk", messages=TALK) as events:
        return [event.delta for event in events if event.type == "content.delta"]


def tools(url: str, key: str) -> Any:
    weather, talk = Weather(), list(TALK)
    while True:
        done = client(url, key).chat.completions.create(
            model="looker", messages=talk, tools=[CHAT_TOOL]
        )
        message = done.choices[0].message
        talk.append(message)
        if not message.tool_calls:
            return message.content, weather.asked
        for call in message.tool_calls:
            result = weather.get_weather(**json.loads(call.function.arguments))
            talk.append({"role": "tool", "tool_call_id": call.id, "content": result})


def structured(url: str, key: str) -> Any:
    done = client(url, key).chat.completions.parse(
        model="thing", messages=TALK, response_format=Thing
    )
    return done.choices[0].message.parsed.model_dump()


def embeddings(url: str, key: str) -> Any:
    done = client(url, key).embeddings.create(model="talk", input=["one", "two"])
    return [item.embedding for item in done.data]


def response(url: str, key: str) -> Any:
    return client(url, key).responses.create(model="talk", input=ASKED).output_text


def response_stream(url: str, key: str) -> Any:
    with client(url, key).responses.stream(model="talk", input=ASKED) as events:
        return [event.delta for event in events if event.type == "response.output_text.delta"]


def response_tools(url: str, key: str) -> Any:
    weather, talk = Weather(), list(TALK)
    while True:
        done = client(url, key).responses.create(
            model="looker", input=talk, tools=[TOOL], store=False,
            include=["reasoning.encrypted_content"],
        )  # fmt: skip
        talk += done.output
        calls = [item for item in done.output if item.type == "function_call"]
        if not calls:
            return done.output_text, weather.asked
        for call in calls:
            result = weather.get_weather(**json.loads(call.arguments))
            talk.append({"type": "function_call_output", "call_id": call.call_id, "output": result})


def response_structured(url: str, key: str) -> Any:
    done = client(url, key).responses.parse(model="thing", input=ASKED, text_format=Thing)
    return done.output_parsed.model_dump()


if __name__ == "__main__":
    drive(
        {
            "chat completions": {
                "chat": chat,
                "stream": stream,
                "tools": tools,
                "structured": structured,
                "embeddings": embeddings,
            },
            "responses": {
                "chat": response,
                "stream": response_stream,
                "tools": response_tools,
                "structured": response_structured,
            },
        },
        "openai",
    )
