"""The simulated providers that strangers meet: one of each dialect, with scripted models."""

from __future__ import annotations

import json
from typing import Any

NOTE = "hello from the model"
WRITTEN = "The note is written."
SAID = "It rains in Oslo today."
CITY = "Oslo"
THING = {"name": "Ada", "quote": "It computes."}
# How Codex's own models call a tool: a program that runs a command.
PROGRAM = f"const done = await tools.exec_command({{cmd: 'echo {NOTE} > note.txt'}}); text(done);"
# What each agent's tools are called. The first that is on offer is called.
WRITES: list[dict[str, Any]] = [
    {"tool": "Write", "arguments": {"file_path": "note.txt", "content": f"{NOTE}\n"}},
    {"tool": "write_file", "arguments": {"file_path": "note.txt", "content": f"{NOTE}\n"}},
    {"tool": "exec", "arguments": {"input": PROGRAM}},
    {"tool": "functions__exec", "arguments": {"input": PROGRAM}},  # where there are no namespaces
    {"tool": "exec_command", "arguments": {"cmd": f"echo {NOTE} > note.txt"}},
]
TURNS: dict[str, list[dict[str, Any]]] = {
    "agent": [{"calls": WRITES}, {"say": WRITTEN}],
    # gemini-cli asks a small model which of two others is good enough for a task.
    "router": [{"say": json.dumps({"complexity_reasoning": "Short.", "complexity_score": 90})}],
    "talk": [{"say": SAID}],
    "looker": [
        {"calls": [{"tool": "get_weather", "arguments": {"city": CITY}}]},
        {"say": SAID},
    ],
    "thing": [{"calls": [{"tool": "*", "arguments": THING}], "say": json.dumps(THING)}],
}
# Models that think before they answer: their thoughts come back in the next request.
THINKING = ("agent", "looker")
PROVIDERS = {"openai": "openai", "anthropic": "anthropic", "gemini": "gemini"}


def world_text() -> str:
    """The world as TOML."""
    lines = ['name = "strangers"\ntitle = "Models that follow a script"\nsource = "the tests"']
    for provider, dialect in PROVIDERS.items():
        lines.append(f'[providers.{provider}]\ndialect = "{dialect}"')
        for model, turns in TURNS.items():
            lines.append(
                f"[providers.{provider}.models.{model}]\nexact = {{ ttft_ms = 1, gap_ms = 0 }}\n"
                f"shape = {{ reasoning = {0.2 if model in THINKING else 0.0} }}\n"
                f"turns = {_toml(turns)}"
            )
    return "\n".join(lines)


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(one)}" for key, one in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)
