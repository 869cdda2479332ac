"""What the drivers share: the standard library alone, for every SDK's own environment."""

from __future__ import annotations

import json
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

FAMILIES = {"lab": "openai-chat", "claude": "anthropic-messages", "gem": "gemini"}
PARAMETERS = {"type": "object", "properties": {"a": {"type": "string"}}}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "quote": {"type": "string"}},
    "required": ["name", "quote"],
    "additionalProperties": False,
}


def facts() -> tuple[str, dict[str, str]]:
    """The gateway's address and its keys by name."""
    given = json.loads(sys.argv[1])
    return given["url"], given["keys"]


def described(error: BaseException) -> dict[str, Any]:
    """What an SDK raised: its own class, and what can be read off it."""
    headers = getattr(getattr(error, "response", None), "headers", None) or {}
    code = getattr(error, "status_code", None) or getattr(error, "code", None)
    return {
        "error": type(error).__name__,
        "kinds": [kind.__name__ for kind in type(error).__mro__],
        "status": code if isinstance(code, int) else None,
        "retry_after": headers.get("retry-after"),
        "should_retry": headers.get("x-should-retry"),
        "request_id": headers.get("x-request-id"),
        "message": str(error),
    }


class Cases:
    """Calls by name and what came of them; an error is a finding, not an end."""

    def __init__(self) -> None:
        self._seen: dict[str, Any] = {}
        self._slow: dict[str, Future[Any]] = {}
        self._pool = ThreadPoolExecutor(4)

    def take(self, name: str, work: Callable[..., dict[str, Any]], *args: Any, **more: Any) -> None:
        self._seen[name] = self._run(partial(work, *args, **more))

    def take_slowly(self, name: str, work: Callable[..., dict[str, Any]], *args: Any) -> None:
        """Beside the others: most of its time is silence."""
        self._slow[name] = self._pool.submit(self._run, partial(work, *args))

    def print(self) -> None:
        self._seen |= {name: future.result() for name, future in self._slow.items()}
        json.dump(self._seen, sys.stdout)

    def _run(self, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        try:
            return {"error": None} | work()
        except Exception as error:  # noqa: BLE001 - whatever the SDK lets through is the finding
            return described(error)
