"""Drives the anthropic package for Python, with its own tool runner."""

from __future__ import annotations

from functools import cache
from typing import Any

import anthropic
from drive import ASKED, Weather, drive
from pydantic import BaseModel


class Thing(BaseModel):
    name: str
    quote: str


def talk() -> list[Any]:
    return [{"role": "user", "content": ASKED}]


@cache
def client(url: str, key: str) -> Any:
    return anthropic.Anthropic(base_url=url, api_key=key, max_retries=0)


def chat(url: str, key: str) -> Any:
    done = client(url, key).messages.create(model="talk", max_tokens=500, messages=talk())
    return done.content[0].text


def stream(url: str, key: str) -> Any:
    asked = {"model": "talk", "max_tokens": 500, "messages": talk()}
    with client(url, key).messages.stream(**asked) as events:
        return list(events.text_stream)


def tools(url: str, key: str) -> Any:
    weather = Weather()

    @anthropic.beta_tool
    def get_weather(city: str) -> str:
        """Tell the weather of a city.

        Args:
            city: Its name.
        """
        return weather.get_weather(city)

    runner = client(url, key).beta.messages.tool_runner(
        model="looker", max_tokens=4000, messages=talk(), tools=[get_weather],
        thinking={"type": "enabled", "budget_tokens": 2000},
    )  # fmt: skip
    done = runner.until_done()
    return "".join(block.text for block in done.content if block.type == "text"), weather.asked


def structured(url: str, key: str) -> Any:
    done = client(url, key).messages.parse(
        model="thing", max_tokens=500, messages=talk(), output_format=Thing
    )
    return done.parsed_output.model_dump()


if __name__ == "__main__":
    ways = {"chat": chat, "stream": stream, "tools": tools, "structured": structured}
    drive({"messages": ways}, "anthropic")
