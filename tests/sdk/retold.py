"""Serves the golden answers to an SDK, from inside its own environment: the standard library alone.

The model that is asked for names the golden: CASE.SOURCE--TARGET.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sdk.door import opened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextlib.contextmanager
def served(answers: str) -> Iterator[str]:
    with opened(Path(answers), []) as port:
        yield f"http://127.0.0.1:{port}"


def goldens(answers: str, target: str) -> list[str]:
    files = Path(answers).glob(f"*/*--{target}.sse")
    return sorted(f"{file.parent.name}.{file.stem}" for file in files)


def invalid(
    answers: str, model: str, check: Callable[[Any], Any], whole: Callable[[Any], Any]
) -> list[str]:
    """Hold every event, and the body, against the SDK's own types, which it trusts unchecked."""
    case, _, name = model.partition(".")
    lines = (Path(answers) / case / f"{name}.sse").read_text("utf-8").split("\n")
    said = [line[6:] for line in lines if line.startswith("data: ")]
    body = (Path(answers) / case / f"{name}.json").read_text("utf-8")
    found = []
    for test, data in [*((check, data) for data in said if data != "[DONE]"), (whole, body)]:
        try:
            test(json.loads(data))
        except ValueError as problem:
            found.append(str(problem))
    return found
