"""Drives pydantic-ai: its models for OpenAI, Anthropic and Google, its agent's loop."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from drive import ASKED, Weather, drive
from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.google import GoogleModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.google import GoogleProvider
from pydantic_ai.providers.openai import OpenAIProvider

if TYPE_CHECKING:
    from collections.abc import Callable

    Made = Callable[[str, str, str], Any]


class Thing(BaseModel):
    name: str
    quote: str


@cache
def openai_chat(url: str, key: str, model: str) -> Any:
    return OpenAIChatModel(model, provider=OpenAIProvider(base_url=f"{url}/v1", api_key=key))


@cache
def openai_responses(url: str, key: str, model: str) -> Any:
    return OpenAIResponsesModel(model, provider=OpenAIProvider(base_url=f"{url}/v1", api_key=key))


@cache
def anthropic(url: str, key: str, model: str) -> Any:
    return AnthropicModel(model, provider=AnthropicProvider(base_url=url, api_key=key))


@cache
def google(url: str, key: str, model: str) -> Any:
    return GoogleModel(model, provider=GoogleProvider(base_url=url, api_key=key))


def ways(made: Made) -> dict[str, Any]:
    async def chat(url: str, key: str) -> Any:
        return (await Agent(made(url, key, "talk")).run(ASKED)).output

    async def stream(url: str, key: str) -> Any:
        async with Agent(made(url, key, "talk")).run_stream(ASKED) as run:
            return [text async for text in run.stream_text(delta=True, debounce_by=None)]

    async def tools(url: str, key: str) -> Any:
        weather = Weather()
        agent = Agent(made(url, key, "looker"), tools=[weather.get_weather])
        return (await agent.run(ASKED)).output, weather.asked

    async def structured(url: str, key: str) -> Any:
        return (
            await Agent(made(url, key, "thing"), output_type=Thing).run(ASKED)
        ).output.model_dump()

    return {"chat": chat, "stream": stream, "tools": tools, "structured": structured}


if __name__ == "__main__":
    drive(
        {
            "OpenAIChatModel": ways(openai_chat),
            "OpenAIResponsesModel, responses": ways(openai_responses),
            "AnthropicModel": ways(anthropic),
            "GoogleModel": ways(google),
        },
        "pydantic-ai-slim",
    )
