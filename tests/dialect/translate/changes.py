"""What one change in a body does to its translation: every field in turn left out, or another.

    tests/fixtures/translate/changes/requests.DIALECT.txt    clients' requests, told to providers
    tests/fixtures/translate/changes/answers.DIALECT.txt     providers' answers, told to clients

A line is a golden body, the place of the change, and what becomes of it: the field by which it is
refused, or a digest of what each dialect is told (`=`: the same as without the change). The last
one of a request is what those see that only look: schema, functions, effort, a call that must be.
`python -m dialect.translate.changes` (from tests/) writes the files anew; read what differs.
"""

from __future__ import annotations

import copy
import hashlib
import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from dialect.translate.cases import ANSWERS, CASES, events, made
from lightgate.dialect.registry import DIALECTS, TRANSLATED, dialect_for
from lightgate.dialect.translate import read_request
from lightgate.errors import LightgateError
from lightgate.provider.generations import generations

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lightgate.dialect.neutral.dialect import Dialect
    from lightgate.dialect.request import Request

FIXTURES = Path(__file__).parents[2] / "fixtures" / "translate"
CHANGES = FIXTURES / "changes"
TARGETS = {
    "openai-chat": dialect_for("openai", "chat"),
    "openai-responses": dialect_for("openai", "responses"),
    "anthropic-messages": dialect_for("anthropic", "chat"),
    "gemini": dialect_for("gemini", "chat"),
}


def places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Every place in a JSON value, from the outside in."""
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    for key, one in inner:
        yield (*path, key)
        if isinstance(one, dict | list):
            yield from places(one, (*path, key))


def changed(value: Any, path: tuple[str | int, ...], new: Callable[[Any], Any] | None) -> Any:
    """Copy a JSON value with one place changed, or left out."""
    whole = copy.deepcopy(value)
    holder = whole
    for key in path[:-1]:
        holder = holder[key]
    if new is None:
        del holder[path[-1]]
    else:
        holder[path[-1]] = new(holder[path[-1]])
    return whole


def other(value: Any) -> Any:
    """Another value of the same kind."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case str():
            return f"{value}?"
        case None:
            return 1
    return "?"


def swapped(value: Any) -> Any:
    """A value of another kind."""
    return 3 if isinstance(value, str | dict) else {"a": "?"}


WAYS: dict[str, Callable[[Any], Any] | None] = {"out": None, "other": other, "kind": swapped}
STREAMED: dict[str, Callable[[Any], Any] | None] = {"out": None, "other": other}


def digest(said: bytes | str) -> str:
    text = said if isinstance(said, bytes) else said.encode()
    return hashlib.sha256(text).hexdigest()[:6]


def spoken(path: tuple[str | int, ...]) -> str:
    return ".".join(map(str, path))


def refusal(error: LightgateError) -> str:
    return f"{type(error).__name__}({getattr(error, 'field', '')})"


def told(dialect: str, body: Any) -> list[str]:
    """What each dialect is told of a client's request, or why it cannot be."""
    raw = json.dumps(body, ensure_ascii=False).encode()
    try:
        request = read_request(dialect, raw, model="m", untranslatable="drop")
    except LightgateError as error:
        return [refusal(error), seen(dialect, raw)]
    return [*(built_by(target, request) for target in TARGETS.values()), seen(dialect, raw)]


def seen(dialect: str, raw: bytes) -> str:
    """What is seen of a request by those that only look, and never refuse."""
    shape = DIALECTS[dialect].shape
    body = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    tools = msgspec.json.decode(body.get("tools", msgspec.Raw(b"null")))
    looks = (shape.schema(body), shape.functions(tools), shape.must_call(body), shape.effort(body))
    return digest(repr(looks))


def by_generation(name: str, dialect: str, body: Any) -> Iterator[str]:
    """What each generation of models is told of a client's request."""
    raw = json.dumps(body, ensure_ascii=False).encode()
    request = read_request(dialect, raw, model="m", untranslatable="drop")
    for family, rows in generations().items():
        target = dialect_for(family, "chat")  # type: ignore[arg-type] # rows of a file
        for row in rows:
            asked = msgspec.structs.replace(request, generation=row)
            yield f"{name} to {row.match[0]}: {built_by(target, asked)}"


def built_by(target: Dialect, request: Request) -> str:
    try:
        built = target.build(request)
    except LightgateError as error:
        return refusal(error)
    return digest(b"\n".join((built.body, repr(built.dropped).encode())))


def line(name: str, way: str, path: tuple[str | int, ...], was: list[str], now: list[str]) -> str:
    if len(now) == len(was):
        now = ["=" if new == old else new for old, new in zip(was, now, strict=True)]
    return f"{name} {way} {spoken(path)}: {' '.join(now)}"


def requests(dialect: str) -> Iterator[str]:
    """The lines of all golden requests of a dialect."""
    found = [*(FIXTURES / "requests").glob(f"*.{dialect}.json"), *CHANGES.glob(f"*.{dialect}.json")]
    for path in sorted(found, key=lambda one: one.name):
        if ".to." in path.name:
            continue
        body = json.loads(path.read_text("utf-8"))
        name, was = path.name.split(".")[0], told(dialect, body)
        yield f"{name}: {' '.join(was)}"
        yield from by_generation(name, dialect, body)
        for place in places(body):
            for way, new in WAYS.items():
                yield line(name, way, place, was, told(dialect, changed(body, place, new)))


def retold(source: str, said: list[tuple[bytes, bytes]]) -> list[str]:
    """What each client is told of a stream, or how it fails."""
    found = []
    for target in TRANSLATED:
        telling = made(source, target)
        pieces: list[bytes] = []
        try:
            pieces += [telling.event(name, data) for name, data in said]
            pieces.append(telling.finish())
        except LightgateError as error:
            pieces.append(refusal(error).encode())
        found.append(digest(b"".join(pieces)))
    return found


def rewhole(source: str, body: Any) -> list[str]:
    """What each client is told of a whole answer, or how it fails."""
    found = []
    raw = json.dumps(body, ensure_ascii=False).encode()
    for target in TRANSLATED:
        try:
            found.append(digest(made(source, target).whole(raw)))
        except LightgateError as error:
            found.append(refusal(error))
    return found


def answers(dialect: str) -> Iterator[str]:
    """The lines of all golden answers of a dialect, streamed and whole."""
    for case in CASES:
        stream = ANSWERS / case / f"{dialect}.sse"
        if not stream.exists():
            continue
        said = list(events(stream.read_bytes()))
        was = retold(dialect, said)
        yield f"{case} streamed: {' '.join(was)}"
        for number, (name, data) in enumerate(said):
            rest = said[number + 1 :]
            now = retold(dialect, [*said[:number], *rest])
            yield line(case, "out", (f"event {number}",), was, now)
            if not data.startswith(b"{"):
                continue
            event = json.loads(data)
            for place in places(event):
                for way, new in STREAMED.items():
                    other_data = json.dumps(changed(event, place, new)).encode()
                    now = retold(dialect, [*said[:number], (name, other_data), *rest])
                    yield line(case, way, (f"event {number}", *place), was, now)
        body = json.loads((ANSWERS / case / f"{dialect}.json").read_text("utf-8"))
        was = rewhole(dialect, body)
        yield f"{case} whole: {' '.join(was)}"
        for place in places(body):
            for way, new in WAYS.items():
                yield line(
                    case, f"whole {way}", place, was, rewhole(dialect, changed(body, place, new))
                )


LINES: dict[str, Callable[[], Iterator[str]]] = {
    **{f"requests.{name}": partial(requests, name) for name in TRANSLATED},
    **{f"answers.{name}": partial(answers, name) for name in TRANSLATED},
}


def main() -> None:
    for name, lines in LINES.items():
        (CHANGES / f"{name}.txt").write_text("\n".join(lines()) + "\n", "utf-8")


if __name__ == "__main__":
    main()
