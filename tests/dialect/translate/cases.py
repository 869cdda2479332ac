"""The golden answers: what each provider says, and how each client is told.

    tests/fixtures/translate/answers/CASE/SOURCE.sse           the provider's stream
    tests/fixtures/translate/answers/CASE/SOURCE.json          the same answer, not streamed
    tests/fixtures/translate/answers/CASE/SOURCE--TARGET.*     what the client gets
    tests/fixtures/translate/answers/CASE/expect.json          what both say, written by hand

`python -m dialect.translate.cases` (from tests/) writes the SOURCE--TARGET files anew; read what
differs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightgate.dialect.registry import TRANSLATED as DIALECTS
from lightgate.dialect.translate import translator

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lightgate.dialect.translate import Translator

ANSWERS = Path(__file__).parents[2] / "fixtures" / "translate" / "answers"
MODEL, ID, CREATED = "fast-model", "0198f2", 1794723456
CASES = sorted(path.name for path in ANSWERS.iterdir())
SOURCES = sorted(
    (case, source)
    for case in CASES
    for source in DIALECTS
    if (ANSWERS / case / f"{source}.sse").exists()
)
PAIRS = [(case, source, target) for case, source in SOURCES for target in DIALECTS]


def made(source: str, target: str, *, include_usage: bool = True) -> Translator:
    return translator(
        source, target, model=MODEL, id=ID, created=CREATED, include_usage=include_usage
    )


def events(body: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Split a well-formed stream; the real splitter is wire's and has its own tests."""
    for block in body.replace(b"\r\n", b"\n").split(b"\n\n"):
        fields = [line.partition(b": ") for line in block.split(b"\n")]
        data = [value for field, _, value in fields if field == b"data"]
        if data:
            name = next((value for field, _, value in fields if field == b"event"), b"")
            yield name, b"\n".join(data)


def streamed(case: str, source: str, target: str) -> bytes:
    return retold((ANSWERS / case / f"{source}.sse").read_bytes(), source, target)


def whole(case: str, source: str, target: str) -> bytes:
    return made(source, target).whole((ANSWERS / case / f"{source}.json").read_bytes())


def retold(stream: bytes, source: str, target: str, *, include_usage: bool = True) -> bytes:
    """Retell a stream that ends well."""
    telling = made(source, target, include_usage=include_usage)
    told = [telling.event(name, data) for name, data in events(stream)]
    return b"".join(told) + telling.finish()


def golden(case: str, source: str, target: str, suffix: str) -> Path:
    return ANSWERS / case / f"{source}--{target}.{suffix}"


def expectation(case: str, source: str) -> dict[str, Any]:
    """What the answer says: what holds for all sources, and then what holds for this one."""
    found: dict[str, dict[str, Any]] = json.loads((ANSWERS / case / "expect.json").read_text())
    return {**found["all"], **found.get(source, {})}


def main() -> None:
    for case, source, target in PAIRS:
        golden(case, source, target, "sse").write_bytes(streamed(case, source, target))
        body = json.loads(whole(case, source, target))
        text = json.dumps(body, ensure_ascii=False, indent=1) + "\n"
        golden(case, source, target, "json").write_text(text, "utf-8")


if __name__ == "__main__":
    main()
