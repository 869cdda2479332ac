"""Sound: what the clock hears of speech, transcripts and translations."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from lightgate.clock.tokens import Usage
from lightgate.dialect.kinds import AUDIO, TEXT
from lightgate.dialect.registry import DIALECTS, dialect_for
from lightgate.dialect.request import Request
from lightgate.errors import UsageError

if TYPE_CHECKING:
    from lightgate.dialect.scanner import Scanner

KINDS = {"speech": "speech", "transcriptions": "transcription", "translations": "translation"}


def heard(*said: Any) -> tuple[Scanner, list[int]]:
    scanner = DIALECTS["openai-transcriptions"].scanner()
    kinds = []
    for one in said:
        data = one if isinstance(one, bytes) else json.dumps(one).encode()
        kinds.append(scanner.event(b"", data))
    return scanner, kinds


def whole(body: bytes) -> Scanner:
    scanner = DIALECTS["openai-transcriptions"].scanner()
    scanner.whole(body)
    return scanner


@pytest.mark.parametrize(("name", "kind"), KINDS.items())
def test_endpoints_of_sound(name: str, kind: Any) -> None:
    found = dialect_for("openai", kind)
    assert (found.name, found.path) == (f"openai-{name}", f"/audio/{name}")
    assert found.sound == ("speech" if kind == "speech" else "form")
    assert not found.tokens
    if kind != "speech":
        with pytest.raises(UsageError, match=f"{kind}.*never built"):
            found.build(Request(model="m", kind=kind))


def test_a_request_for_speech_is_one_text_in_a_voice() -> None:
    dialect = dialect_for("openai", "speech")
    asked = Request(model="m", kind="speech", inputs=("Hello.",), extra={"voice": "nova"})
    built = dialect.build(asked)
    assert built.path == "/audio/speech"
    assert json.loads(built.body) == {"model": "m", "input": "Hello.", "voice": "nova"}
    plain = dialect.build(Request(model="m", kind="speech", inputs=("Hello.",)))
    assert json.loads(plain.body)["voice"] == "alloy"
    with pytest.raises(UsageError, match="one text"):
        dialect.build(Request(model="m", kind="speech", inputs=("a", "b")))
    with pytest.raises(UsageError, match="inputs"):
        dialect.build(Request(model="m", kind="speech"))


def test_a_transcript_that_streams() -> None:
    usage = {"input_tokens": 14, "output_tokens": 3, "input_token_details": {"audio_tokens": 12}}
    scanner, kinds = heard(
        {"type": "transcript.text.delta", "delta": "Hel"},
        {"type": "transcript.text.delta", "delta": ""},
        {"type": "transcript.text.delta", "delta": "lo"},
        {"type": "transcript.text.done", "text": "Hello", "usage": usage},
    )
    assert kinds[0] == kinds[2] == TEXT
    assert kinds[1] != TEXT
    assert scanner.done
    assert (scanner.finish, scanner.chars) == ("stop", 5)
    assert scanner.usage == Usage(tokens_in=14, tokens_out=3, tokens_audio=12)


def test_speech_that_streams() -> None:
    scanner, kinds = heard(
        {"type": "speech.audio.delta", "audio": "AAAA"},
        {"type": "speech.audio.delta"},
        {"type": "speech.audio.done", "usage": {"input_tokens": 2, "output_tokens": 9}},
    )
    assert kinds[0] == AUDIO
    assert kinds[1] != AUDIO
    assert scanner.done
    assert scanner.chars == 0
    assert scanner.usage == Usage(tokens_in=2, tokens_out=9)


def test_errors_and_strange_events() -> None:
    scanner, _ = heard({"error": {"message": "No.", "code": 400}})
    assert scanner.error is not None
    assert scanner.error.message == "No."
    scanner, _ = heard({"type": "transcript.text.segment", "text": "x"})
    assert (scanner.error, scanner.done) == (None, False)
    scanner, _ = heard({"type": "transcript.text.done"})
    assert (scanner.done, scanner.usage) == (True, None)


@pytest.mark.parametrize(
    ("body", "chars", "usage"),
    [
        (b'{"text": "Hello"}', 5, None),
        (b' {"text": ""}', 0, None),
        (b'{"text": "Hello", "duration": 2.5}', 5, Usage(seconds=2.5)),
        (b'{"text": "x", "duration": 2.5, "usage": {"seconds": 3}}', 1, Usage(seconds=3)),
        (b'{"text": "x", "usage": {"seconds": 0}}', 1, Usage(seconds=0)),
        (b'{"text": "x", "usage": {"input_tokens": 4}}', 1, Usage(tokens_in=4)),
        (b'{"text": "x", "usage": {"output_tokens": 4}}', 1, Usage(tokens_out=4)),
        (b"1\n00:00 --> 00:01\nHello\n", 24, None),
        (b"{broken", 7, None),
        (b"caf\xc3\xa9", 4, None),
    ],
)
def test_a_whole_transcript(body: bytes, chars: int, usage: Usage | None) -> None:
    scanner = whole(body)
    assert scanner.error is None
    assert (scanner.chars, scanner.usage) == (chars, usage)


def test_a_whole_error() -> None:
    scanner = whole(b'{"text": "x", "error": {"message": "No.", "code": 400}}')
    assert scanner.error is not None
    assert (scanner.error.message, scanner.chars) == ("No.", 0)


def test_bytes_that_are_not_utf_8_are_no_transcript() -> None:
    assert whole(b"caf\xff").error is not None
