"""Drives the google-genai package, with its automatic function calling."""

from __future__ import annotations

from functools import cache
from typing import Any

from drive import ASKED, Weather, drive
from google import genai
from pydantic import BaseModel


class Thing(BaseModel):
    name: str
    quote: str


@cache  # a client that is forgotten closes its connections
def client(url: str, key: str) -> Any:
    return genai.Client(api_key=key, http_options={"base_url": url})


def models(url: str, key: str) -> Any:
    return client(url, key).models


def chat(url: str, key: str) -> Any:
    return models(url, key).generate_content(model="talk", contents=ASKED).text


def stream(url: str, key: str) -> Any:
    chunks = models(url, key).generate_content_stream(model="talk", contents=ASKED)
    return [chunk.text for chunk in chunks if chunk.text]


def tools(url: str, key: str) -> Any:
    weather = Weather()
    done = models(url, key).generate_content(
        model="looker", contents=ASKED, config={"tools": [weather.get_weather]}
    )
    return done.text, weather.asked


def structured(url: str, key: str) -> Any:
    config = {"response_mime_type": "application/json", "response_schema": Thing}
    done = models(url, key).generate_content(model="thing", contents=ASKED, config=config)
    return done.parsed.model_dump()


def embeddings(url: str, key: str) -> Any:
    done = models(url, key).embed_content(model="talk", contents=["one", "two"])
    return [item.values for item in done.embeddings]


if __name__ == "__main__":
    ways = {
        "chat": chat,
        "stream": stream,
        "tools": tools,
        "structured": structured,
        "embeddings": embeddings,
    }
    drive({"generateContent": ways}, "google-genai")
