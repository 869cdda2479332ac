"""Drives instructor: its modes over the SDKs of OpenAI, Anthropic and Google."""

from __future__ import annotations

from functools import cache
from typing import Any

import anthropic
import instructor
import openai
from drive import ASKED, drive
from google import genai
from pydantic import BaseModel

TALK: list[Any] = [{"role": "user", "content": ASKED}]
openai_client = cache(openai.OpenAI)
anthropic_client = cache(anthropic.Anthropic)


@cache  # a client that is forgotten closes its connections
def google_client(url: str, key: str) -> Any:
    return genai.Client(api_key=key, http_options={"base_url": url})


class Thing(BaseModel):
    name: str
    quote: str


def openai_in(mode: instructor.Mode) -> dict[str, Any]:
    def structured(url: str, key: str) -> Any:
        client = openai_client(base_url=f"{url}/v1", api_key=key, max_retries=0)
        made = instructor.from_openai(client, mode=mode)
        done = made.chat.completions.create(
            model="thing", messages=list(TALK), response_model=Thing, max_retries=0
        )
        return done.model_dump()

    return {"structured": structured}


def anthropic_in(mode: instructor.Mode) -> dict[str, Any]:
    def structured(url: str, key: str) -> Any:
        client = anthropic_client(base_url=url, api_key=key, max_retries=0)
        made = instructor.from_anthropic(client, mode=mode)
        done = made.messages.create(
            model="thing", max_tokens=500, messages=list(TALK), response_model=Thing, max_retries=0
        )
        return done.model_dump()

    return {"structured": structured}


def google(url: str, key: str) -> Any:
    made = instructor.from_genai(google_client(url, key))
    return made.create(
        model="thing", messages=list(TALK), response_model=Thing, max_retries=0
    ).model_dump()


if __name__ == "__main__":
    drive(
        {
            "from_openai": openai_in(instructor.Mode.TOOLS),
            "from_openai, JSON": openai_in(instructor.Mode.JSON),
            "from_openai, MD_JSON": openai_in(instructor.Mode.MD_JSON),
            "from_openai, TOOLS_STRICT": openai_in(instructor.Mode.TOOLS_STRICT),
            "from_openai, JSON_SCHEMA": openai_in(instructor.Mode.JSON_SCHEMA),
            "from_anthropic": anthropic_in(instructor.Mode.ANTHROPIC_TOOLS),
            "from_anthropic, JSON": anthropic_in(instructor.Mode.ANTHROPIC_JSON),
            "from_genai": {"structured": google},
        },
        "instructor",
    )
