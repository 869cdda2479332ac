"""Drives LangChain: its models for OpenAI and Anthropic, its agent, its structured output."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from drive import ASKED, Weather, drive
from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from pydantic import BaseModel

if TYPE_CHECKING:
    from collections.abc import Callable

    Made = Callable[[str, str, str], Any]


class Thing(BaseModel):
    """A thing."""

    name: str
    quote: str


@cache
def openai_chat(url: str, key: str, model: str) -> Any:
    return ChatOpenAI(base_url=f"{url}/v1", api_key=key, model=model, max_retries=0)


@cache
def openai_responses(url: str, key: str, model: str) -> Any:
    return ChatOpenAI(
        base_url=f"{url}/v1", api_key=key, model=model, max_retries=0, use_responses_api=True
    )


@cache
def anthropic(url: str, key: str, model: str) -> Any:
    return ChatAnthropic(base_url=url, api_key=key, model=model, max_retries=0, max_tokens=500)


def ways(made: Made) -> dict[str, Any]:
    def chat(url: str, key: str) -> Any:
        return made(url, key, "talk").invoke(ASKED).text

    def stream(url: str, key: str) -> Any:
        chunks = [chunk.text for chunk in made(url, key, "talk").stream(ASKED)]
        return [text for text in chunks if text]

    def tools(url: str, key: str) -> Any:
        weather = Weather()
        agent = create_agent(made(url, key, "looker"), [weather.get_weather])
        done = agent.invoke({"messages": [{"role": "user", "content": ASKED}]})
        return done["messages"][-1].text, weather.asked

    def structured(url: str, key: str) -> Any:
        sure = made(url, key, "thing").with_structured_output(Thing)
        return sure.invoke(ASKED).model_dump()

    return {"chat": chat, "stream": stream, "tools": tools, "structured": structured}


def by_function(url: str, key: str) -> Any:
    sure = openai_chat(url, key, "thing").with_structured_output(Thing, method="function_calling")
    return sure.invoke(ASKED).model_dump()


def by_json_mode(url: str, key: str) -> Any:
    sure = openai_chat(url, key, "thing").with_structured_output(Thing, method="json_mode")
    return sure.invoke(f"{ASKED} Answer in JSON.").model_dump()


def embeddings(url: str, key: str) -> Any:
    # Without the check it sends text; with it, token ids of a tokenizer that it downloads.
    made = OpenAIEmbeddings(
        base_url=f"{url}/v1", api_key=key, model="talk", check_embedding_ctx_length=False
    )
    return made.embed_documents(["one", "two"])


if __name__ == "__main__":
    drive(
        {
            "ChatOpenAI": ways(openai_chat) | {"embeddings": embeddings},
            "ChatOpenAI, function_calling": {"structured": by_function},
            "ChatOpenAI, json_mode": {"structured": by_json_mode},
            "ChatOpenAI, responses": ways(openai_responses),
            "ChatAnthropic": ways(anthropic),
        },
        "langchain",
        "langchain-openai",
        "langchain-anthropic",
    )
