"""Read a Dockerfile: its instructions in order, each with its text."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

FILE: Final = Path(__file__).parents[2] / "deploy" / "docker" / "Dockerfile"


def instructions(text: str | None = None) -> list[tuple[str, str]]:
    """Every instruction and its text on one line, without comments."""
    told = FILE.read_text("utf-8") if text is None else text
    lines = [line for line in told.splitlines() if line.strip() and not line.startswith("#")]
    joined = re.sub(r"\s*\\\n\s*", " ", "\n".join(lines))
    pairs = (line.partition(" ") for line in joined.splitlines())
    return [(word, rest.strip()) for word, _, rest in pairs]


def last(word: str) -> str:
    """The text of the last instruction of a kind."""
    return [rest for name, rest in instructions() if name == word][-1]


def exec_form(word: str) -> list[str]:
    """The words of an instruction in exec form, after what stands before its list."""
    rest = last(word)
    found: list[str] = json.loads(rest[rest.index("[") :])
    return found


def words() -> dict[str, Any]:
    """The command and the health check of the image."""
    return {"command": exec_form("CMD"), "healthcheck": exec_form("HEALTHCHECK")}
