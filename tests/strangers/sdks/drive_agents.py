"""Drives openai-agents: its runner over responses, its default, and over chat completions."""

from __future__ import annotations

from functools import cache
from typing import Any

import openai
from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from drive import ASKED, Weather, drive
from pydantic import BaseModel

set_tracing_disabled(disabled=True)
made_client = cache(openai.AsyncOpenAI)


class Thing(BaseModel):
    name: str
    quote: str


def ways(kind: Any) -> dict[str, Any]:
    def agent(url: str, key: str, model: str, **more: Any) -> Any:
        client = made_client(base_url=f"{url}/v1", api_key=key, max_retries=0)
        made = kind(model=model, openai_client=client)
        return Agent(name="reporter", instructions="Be brief.", model=made, **more)

    async def chat(url: str, key: str) -> Any:
        return (await Runner.run(agent(url, key, "talk"), ASKED)).final_output

    async def stream(url: str, key: str) -> Any:
        run = Runner.run_streamed(agent(url, key, "talk"), ASKED)
        return [
            event.data.delta
            async for event in run.stream_events()
            if event.type == "raw_response_event"
            and event.data.type == "response.output_text.delta"
        ]

    async def tools(url: str, key: str) -> Any:
        weather = Weather()

        @function_tool
        def get_weather(city: str) -> str:
            """Tell the weather of a city."""
            return weather.get_weather(city)

        done = await Runner.run(agent(url, key, "looker", tools=[get_weather]), ASKED)
        return done.final_output, weather.asked

    async def structured(url: str, key: str) -> Any:
        done = await Runner.run(agent(url, key, "thing", output_type=Thing), ASKED)
        return done.final_output.model_dump()

    return {"chat": chat, "stream": stream, "tools": tools, "structured": structured}


if __name__ == "__main__":
    drive(
        {
            "responses": ways(OpenAIResponsesModel),
            "chat completions": ways(OpenAIChatCompletionsModel),
        },
        "openai-agents",
    )
