"""Golden recordings: what each dialect sends, and what must be read from it event by event."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from lightgate.dialect.kinds import names
from lightgate.dialect.registry import dialect_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lightgate.dialect.registry import Dialect
    from lightgate.dialect.scanner import Scanner

GOLDEN = Path(__file__).parent / "golden"
DIALECTS: dict[str, Dialect] = {
    "openai-chat": dialect_for("openai", "chat"),
    "openai-completions": dialect_for("openai", "completion"),
    "openai-responses": dialect_for("openai", "responses"),
    "openai-embeddings": dialect_for("openai", "embedding"),
    "anthropic-messages": dialect_for("anthropic", "chat"),
    "gemini": dialect_for("gemini", "chat"),
}
CASES = sorted(
    path.relative_to(GOLDEN)
    for path in GOLDEN.glob("*/*")
    if path.suffix in {".sse", ".json"} and not path.name.endswith((".expect.json", ".facts.json"))
)


def events(body: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Split a well-formed recording; the real splitter is wire's and has its own tests."""
    for block in body.replace(b"\r\n", b"\n").split(b"\n\n"):
        fields = [line.partition(b": ") for line in block.split(b"\n") if not line.startswith(b":")]
        data = [value for field, _, value in fields if field == b"data"]
        if data:
            name = next((value for field, _, value in fields if field == b"event"), b"")
            yield name, b"\n".join(data)


def state(scanner: Scanner) -> dict[str, Any]:
    usage = msgspec.to_builtins(scanner.usage)
    rare = ("tokens_audio", "tokens_cache_write_1h", "seconds", "tier", "calls", "media")
    for name in rare:
        if usage is not None and not usage[name]:
            del usage[name]
    error = msgspec.to_builtins(scanner.error)
    if error is not None:
        del error["words"]  # tests/dialect/test_fault.py has them
    return {
        "usage": usage,
        "usage_running": scanner.usage_running,
        "finish": scanner.finish,
        "error": error,
        "done": scanner.done,
        "chars": scanner.chars,
        "reasoning_weight": scanner.reasoning_weight,
    }


@pytest.mark.parametrize("case", CASES, ids=str)
def test_recording_is_read_as_expected(case: Path) -> None:
    expected = json.loads((GOLDEN / case).with_suffix(".expect.json").read_text("utf-8"))
    scanner = DIALECTS[case.parts[0]].scanner()
    body = (GOLDEN / case).read_bytes()
    if case.suffix == ".json":
        kinds = [list(names(scanner.whole(body)))]
    else:
        kinds = [list(names(scanner.event(name, data))) for name, data in events(body)]
        scanner.eof()
    assert kinds == expected.pop("events")
    assert state(scanner) == expected
    assert names(scanner.kinds) == names(
        sum({flag for flag in (1, 2, 4, 8, 16) for k in kinds if set(names(flag)) & set(k)})
    )


def test_every_dialect_has_recordings_of_both_sorts() -> None:
    for dialect in DIALECTS:
        suffixes = {case.suffix for case in CASES if case.parts[0] == dialect}
        assert suffixes == ({".json"} if dialect == "openai-embeddings" else {".json", ".sse"})


def test_every_expectation_has_its_recording() -> None:
    expected = {path.name.removesuffix(".expect.json") for path in GOLDEN.glob("*/*.expect.json")}
    assert expected == {case.stem for case in CASES}
