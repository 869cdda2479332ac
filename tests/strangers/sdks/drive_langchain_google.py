"""Drives LangChain's ChatGoogleGenerativeAI, which needs an older google-genai than the others."""

from __future__ import annotations

from functools import cache
from typing import Any

from drive import ASKED, Weather, drive
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_google_genai import ChatGoogleGenerativeAI
from pydantic import BaseModel


class Thing(BaseModel):
    """A thing."""

    name: str
    quote: str


@cache
def made(url: str, key: str, model: str) -> Any:
    return ChatGoogleGenerativeAI(base_url=url, api_key=key, model=model, max_retries=1)


def chat(url: str, key: str) -> Any:
    return made(url, key, "talk").invoke(ASKED).text


def stream(url: str, key: str) -> Any:
    return [text for chunk in made(url, key, "talk").stream(ASKED) if (text := chunk.text)]


def tools(url: str, key: str) -> Any:
    weather, talk = Weather(), [HumanMessage(ASKED)]

    @tool
    def get_weather(city: str) -> str:
        """Tell the weather of a city."""
        return weather.get_weather(city)

    model = made(url, key, "looker").bind_tools([get_weather])
    while True:
        said = model.invoke(talk)
        talk.append(said)
        if not said.tool_calls:
            return said.text, weather.asked
        for call in said.tool_calls:
            result = get_weather.invoke(call["args"])
            talk.append(ToolMessage(result, tool_call_id=call["id"], name=call["name"]))


def structured(url: str, key: str) -> Any:
    return made(url, key, "thing").with_structured_output(Thing).invoke(ASKED).model_dump()


if __name__ == "__main__":
    ways = {"chat": chat, "stream": stream, "tools": tools, "structured": structured}
    drive({"ChatGoogleGenerativeAI": ways}, "langchain-google-genai")
