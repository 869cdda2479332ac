"""What the drivers share: the standard library alone, for every SDK's own environment."""

from __future__ import annotations

import json
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    Way = Callable[..., dict[str, Any]]  # of a client, a case, a model, and what else there is

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
        "body": getattr(error, "body", None),
        "message": str(error),
    }


def failing(work: Callable[[], Any]) -> dict[str, Any]:
    """What a call said or raised: whatever an SDK lets through is the finding."""
    try:
        return {"error": None, "said": work()}
    except Exception as error:  # noqa: BLE001 - see above
        return described(error)


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

    def ask(self, way: Way, client: Any, case: str, model: str, **more: Any) -> None:
        """Call a model, under the case's name."""
        self.take(case, way, client, case, model, **more)

    def ask_slowly(self, way: Way, client: Any, case: str, model: str) -> None:
        self.take_slowly(case, way, client, case, model)

    def print(self) -> None:
        self._seen |= {name: future.result() for name, future in self._slow.items()}
        json.dump(self._seen, sys.stdout)

    def _run(self, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        try:
            return {"error": None} | work()
        except Exception as error:  # noqa: BLE001 - whatever the SDK lets through is the finding
            return described(error)


class Ways(NamedTuple):
    """To ask for a whole answer, for its pieces, and with the SDK's own accumulator."""

    create: Way
    stream: Way
    helper: Way


class Wishes(NamedTuple):
    """What a way is told beside the model.

    A tool that must be called, a schema, one message of these words, a talk with tools in it.
    """

    tools: dict[str, Any]
    json: dict[str, Any]
    said: Callable[[str], dict[str, Any]]
    history: Callable[[str], dict[str, Any]]


class Sdk(NamedTuple):
    """How one SDK asks for what all of them can ask for; `home` is a model of its own dialect."""

    name: str
    home: str
    ways: Ways
    wishes: Wishes


class Clients(NamedTuple):
    """One may ask for all, one tries twice more, one is unknown, and one may ask once a minute."""

    open: Any
    eager: Any
    stranger: Any
    slow: Any


def clients(sdk: Sdk, made: Callable[..., Any], keys: dict[str, str]) -> Clients:
    """Make them of their keys."""
    return Clients(
        open=made(keys["open"]),
        eager=made(keys["open"], retries=2),
        stranger=made("lg-wrong"),
        slow=made(keys[f"slow-{sdk.name}"]),
    )


def models(cases: Cases, listed: Callable[[], list[str]], retrieved: Callable[[str], str]) -> None:
    """All models, and one by its name: an alias, a target, and one that there is not."""
    cases.take("models", lambda: {"ids": listed()})
    cases.take("model", lambda: {"ids": [retrieved("fast"), retrieved("lab/plain")]})
    cases.take("unlisted-model", lambda: {"ids": [retrieved("fats")]})


def families(cases: Cases, sdk: Sdk, client: Any) -> None:
    """Every way to ask, of every provider's dialect."""
    create, stream, helper = sdk.ways
    tools, json_, said, history = sdk.wishes
    for name, dialect in FAMILIES.items():
        schema, parallel = (f"golden-{name}/{case}.{dialect}" for case in ("schema", "parallel"))
        ask = partial(_ask_of, cases, client, name)
        ask("chat", create)
        ask("stream", stream)
        ask("think", stream, f"{name}/think")
        ask("silent", create, f"silent-{name}")
        ask("silent-stream", stream, f"silent-{name}")
        ask("unmarked", stream, f"unmarked-{name}")
        ask("tool", create, **tools)
        ask("tool-stream", stream, **tools)
        ask("schema", create, schema, **json_, **said(f"{sdk.name}-schema-{name}"))
        ask("schema-stream", stream, schema, **json_, **said(f"{sdk.name}-schema-stream-{name}"))
        ask("parallel", create, parallel)
        ask("parallel-helper", helper, parallel)
        ask("history", create, parallel, **history(f"{sdk.name}-history-{name}"))


def _ask_of(
    cases: Cases, client: Any, family: str, kind: str, way: Way, model: str = "", **more: Any
) -> None:
    cases.ask(way, client, f"{kind}-{family}", model or f"{family}/plain", **more)


def errors(cases: Cases, sdk: Sdk, by: Clients, told: Any) -> None:
    """What every SDK is refused; `told` is the client that hears that trying again is no use."""
    create, stream, _ = sdk.ways
    cases.ask(create, by.stranger, "wrong-key", "fast")
    cases.take("wrong-key-models", lambda: {"ids": list(by.stranger.models.list())})
    cases.ask(create, by.open, "unknown-model", "fats")
    cases.ask(create, by.slow, "slow-first", sdk.home)
    cases.ask(create, by.slow, "slow-second", sdk.home)
    cases.ask(create, told, "limited", f"limited-{sdk.name}")
    cases.ask(create, told, "gone", f"gone-{sdk.name}")
    cases.ask(stream, told, "gone-stream", f"gone-{sdk.name}")
    cases.ask(create, by.eager, "refused", "refusing")
