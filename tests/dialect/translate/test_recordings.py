"""The recordings that the scanners are tested with, retold, and read by the scanners again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dialect.translate.cases import events, made
from lightgate.dialect.kinds import AUDIO, REASONING, REFUSAL, TEXT
from lightgate.dialect.registry import TRANSLATED as DIALECTS
from lightgate.dialect.registry import dialect_for
from lightgate.errors import AttemptError

if TYPE_CHECKING:
    from lightgate.dialect.registry import Family
    from lightgate.dialect.request import Kind
    from lightgate.dialect.scanner import Scanner

GOLDEN = Path(__file__).parents[1] / "golden"
RECORDINGS = sorted(
    path.relative_to(GOLDEN)
    for dialect in DIALECTS
    for path in (GOLDEN / dialect).iterdir()
    if not path.name.endswith((".expect.json", ".facts.json"))
)
SPEAKS: dict[str, tuple[Family, Kind]] = {
    "openai-chat": ("openai", "chat"),
    "openai-responses": ("openai", "responses"),
    "anthropic-messages": ("anthropic", "chat"),
    "gemini": ("gemini", "chat"),
}


def scanned(dialect: str, body: bytes, *, stream: bool) -> Scanner:
    scanner = dialect_for(*SPEAKS[dialect]).scanner()
    if not stream:
        scanner.whole(body)
        return scanner
    for name, data in events(body):
        scanner.event(name, data)
    scanner.eof()
    return scanner


@pytest.mark.parametrize("target", DIALECTS)
@pytest.mark.parametrize("recording", RECORDINGS, ids=str)
def test_a_retold_recording_is_read_as_the_recording_was(recording: Path, target: str) -> None:
    source, stream = recording.parts[0], recording.suffix == ".sse"
    body = (GOLDEN / recording).read_bytes()
    before = scanned(source, body, stream=stream)
    telling = made(source, target)
    if stream:
        told = b"".join([telling.event(name, data) for name, data in events(body)])
        if before.done:
            told += telling.finish()
        if not before.done and before.error is None:  # truncated: nothing may look like an end
            assert not scanned(target, told, stream=True).done
            return
    else:
        try:
            told = telling.whole(body)
        except AttemptError:
            assert before.error is not None
            return
    after = scanned(target, told, stream=stream)
    assert (after.error is None) == (before.error is None)
    if before.error is not None or before.kinds & AUDIO:  # sound is not told
        return
    assert after.done
    if not before.kinds & ~(TEXT | REASONING | REFUSAL):
        assert after.chars == before.chars
    if before.usage is not None and after.usage is not None:
        assert after.usage.tokens_in == before.usage.tokens_in
        assert after.usage.tokens_out == (before.usage.tokens_out or 0)
