"""Drives LlamaIndex: its models for OpenAI, Anthropic and Google, its agent, its programs."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from drive import ASKED, Weather, drive
from google.genai.types import HttpOptions
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms import ChatMessage
from llama_index.core.prompts import PromptTemplate
from llama_index.embeddings.openai import OpenAIEmbedding
from llama_index.llms.anthropic import Anthropic
from llama_index.llms.google_genai import GoogleGenAI
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel

if TYPE_CHECKING:
    from collections.abc import Callable

    Made = Callable[[str, str, str], Any]


class Thing(BaseModel):
    name: str
    quote: str


@cache
def openai_like(url: str, key: str, model: str) -> Any:
    return OpenAILike(
        api_base=f"{url}/v1", api_key=key, model=model, max_retries=0,
        is_chat_model=True, is_function_calling_model=True,
    )  # fmt: skip


@cache
def anthropic(url: str, key: str, model: str) -> Any:
    # It asks its own table for the size of the context, by the model's name.
    class Gated(Anthropic):
        @property
        def metadata(self) -> Any:
            return Anthropic(model="claude-sonnet-4-5", api_key=key).metadata

    return Gated(base_url=url, api_key=key, model=model, max_retries=0)


@cache
def google(url: str, key: str, model: str) -> Any:
    return GoogleGenAI(
        model=model, api_key=key, http_options=HttpOptions(base_url=url), max_tokens=500,
        context_window=100_000, max_retries=0,
    )  # fmt: skip


def ways(made: Made) -> dict[str, Any]:
    def chat(url: str, key: str) -> Any:
        return made(url, key, "talk").chat([ChatMessage(ASKED)]).message.content

    def stream(url: str, key: str) -> Any:
        chunks = made(url, key, "talk").stream_chat([ChatMessage(ASKED)])
        return [chunk.delta for chunk in chunks if chunk.delta]

    async def tools(url: str, key: str) -> Any:
        weather = Weather()
        agent = FunctionAgent(tools=[weather.get_weather], llm=made(url, key, "looker"))
        return str(await agent.run(ASKED)), weather.asked

    def structured(url: str, key: str) -> Any:
        prompt = PromptTemplate("{asked}")
        done = made(url, key, "thing").structured_predict(Thing, prompt, asked=ASKED)
        return done.model_dump()

    return {"chat": chat, "stream": stream, "tools": tools, "structured": structured}


def embeddings(url: str, key: str) -> Any:
    made = OpenAIEmbedding(api_base=f"{url}/v1", api_key=key, model_name="talk", max_retries=0)
    return made.get_text_embedding_batch(["one", "two"])


if __name__ == "__main__":
    drive(
        {
            "OpenAILike": ways(openai_like) | {"embeddings": embeddings},
            "Anthropic": ways(anthropic),
            "GoogleGenAI": ways(google),
        },
        "llama-index-core",
    )
