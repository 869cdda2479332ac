"""Speech as bytes or events, and transcripts as JSON, text or events, in OpenAI's words."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Final

from msgspec.json import encode

from lightgate.sim.answer.answer import plain
from lightgate.sim.answer.script import FINISH, ROLE, TEXT, Tail

if TYPE_CHECKING:
    from lightgate.sim.answer.answer import SimAnswer
    from lightgate.sim.answer.request import SimRequest

TAIL: Final = Tail((FINISH,), opens=False)
TOKEN_BYTES: Final = 480  # of speech for each token: 20 ms at 192 kbit/s
_TYPES: Final = {
    "mp3": b"audio/mpeg",
    "wav": b"audio/wav",
    "pcm": b"audio/pcm",
    "opus": b"audio/ogg",
}
_EVENTS: Final = b"text/event-stream"


class SpeechRenderer:
    """One spoken text: a pattern of bytes by which a piece that is lost or doubled shows."""

    def __init__(self, answer: SimAnswer, request: SimRequest) -> None:
        self._answer = answer
        self._events = request.stream_format == "sse"
        kind = _TYPES.get(request.form or "mp3", b"application/octet-stream")
        self.content_type = _EVENTS if self._events else kind

    def beat(self, kind: int, first: int, tokens: int) -> bytes:
        """The sound of some tokens."""
        if kind == ROLE:
            return b""
        if kind == FINISH:
            done = {"type": "speech.audio.done", "usage": self._counts()}
            return b"data: %b\n\n" % encode(done) if self._events else b""
        sound = sound_of(first, tokens)
        if not self._events:
            return sound
        delta = {"type": "speech.audio.delta", "audio": base64.b64encode(sound).decode()}
        return b"data: %b\n\n" % encode(delta)

    def whole(self) -> bytes:
        """All of it."""
        return sound_of(0, self._answer.counts.streamed)

    def usage(self, *, streamed: bool = True) -> dict[str, object] | None:  # noqa: ARG002 - the protocol's
        """The counts, where events carry them."""
        return self._counts() if self._events else None

    def _counts(self) -> dict[str, object]:
        tokens_in, out = self._answer.tokens_in, self._answer.counts.total
        return {"input_tokens": tokens_in, "output_tokens": out, "total_tokens": tokens_in + out}


class TranscriptRenderer:
    """One transcript; of a recording in a simulation nobody can tell what it says."""

    def __init__(self, answer: SimAnswer, request: SimRequest) -> None:
        self._answer = answer
        self._seconds = request.seconds
        self._form = request.form or "json"
        plainly = {"text": b"text/plain; charset=utf-8", "srt": b"text/plain", "vtt": b"text/vtt"}
        whole = plainly.get(self._form, b"application/json")
        self.content_type = _EVENTS if request.stream else whole

    def beat(self, kind: int, first: int, tokens: int) -> bytes:
        """Some words."""
        if kind == ROLE:
            return b""
        if kind == FINISH:
            done = {"type": "transcript.text.done", "text": self._text(), "usage": self._counts()}
            return b"data: %b\n\n" % encode(done)
        delta = {
            "type": "transcript.text.delta",
            "delta": plain(self._answer.piece(TEXT, first, tokens)),
        }
        return b"data: %b\n\n" % encode(delta)

    def whole(self) -> bytes:
        """The transcript in the form that was asked for."""
        text = self._text()
        if self._form in {"text", "srt", "vtt"}:
            return text.encode() + b"\n"
        if self._form == "verbose_json":
            facts = {"task": "transcribe", "language": "english", "duration": self._seconds}
            return encode({**facts, "text": text, "segments": []})
        return encode({"text": text, "usage": self._counts()})

    def usage(self, *, streamed: bool = False) -> dict[str, object]:  # noqa: ARG002 - the protocol's
        """The length of the recording."""
        return self._counts()

    def _counts(self) -> dict[str, object]:
        return {"type": "duration", "seconds": self._seconds}

    def _text(self) -> str:
        return plain(self._answer.piece(TEXT, 0, self._answer.counts.text))


def sound_of(first: int, tokens: int) -> bytes:
    """The bytes of some tokens, counted from the first."""
    start = first * TOKEN_BYTES
    return bytes(place % 251 for place in range(start, start + tokens * TOKEN_BYTES))
