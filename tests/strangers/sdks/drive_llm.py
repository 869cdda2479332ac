"""Drives `llm` with its file of further OpenAI-compatible models."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from drive import ASKED, THING, Weather, drive

HOME = Path(tempfile.mkdtemp())
os.environ["LLM_USER_PATH"] = str(HOME)
import llm  # noqa: E402 - it reads its folder when it is imported

MODEL = """\
- model_id: {model}
  model_name: {model}
  api_base: {url}/v1
  api_key_name: lightgate
  supports_tools: true
  supports_schema: true
"""
SCHEMA = {
    "type": "object",
    "properties": {name: {"type": "string"} for name in THING},
    "required": list(THING),
}


def model(url: str, key: str, name: str) -> Any:
    (HOME / "keys.json").write_text(json.dumps({"lightgate": key}), "utf-8")
    text = "".join(MODEL.format(model=one, url=url) for one in ("talk", "looker", "thing"))
    (HOME / "extra-openai-models.yaml").write_text(text, "utf-8")
    return llm.get_model(name)


def chat(url: str, key: str) -> Any:
    return model(url, key, "talk").prompt(ASKED, stream=False).text()


def stream(url: str, key: str) -> Any:
    return [piece for piece in model(url, key, "talk").prompt(ASKED) if piece]


def tools(url: str, key: str) -> Any:
    weather = Weather()
    chain = model(url, key, "looker").chain(ASKED, tools=[weather.get_weather])
    return chain.text(), weather.asked


def structured(url: str, key: str) -> Any:
    return json.loads(model(url, key, "thing").prompt(ASKED, schema=SCHEMA).text())


if __name__ == "__main__":
    ways = {"chat": chat, "stream": stream, "tools": tools, "structured": structured}
    drive({"extra-openai-models.yaml": ways}, "llm")
