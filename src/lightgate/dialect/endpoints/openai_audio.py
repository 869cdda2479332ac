"""OpenAI's sound: text in and speech out; a recording in and its transcript out.

Requests of clients are passed on as they are; only one for speech can be built. Speech comes as
bytes, which the clock stamps by themselves, or as events; transcripts come as JSON, as text, or as
events.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from lightgate.clock.tokens import Usage
from lightgate.dialect.errors import error_of
from lightgate.dialect.kinds import AUDIO, TEXT
from lightgate.dialect.neutral.build import built, need
from lightgate.dialect.neutral.dialect import Dialect
from lightgate.dialect.neutral.events import Reader, marker, stray
from lightgate.dialect.neutral.json_text import Count, decoded
from lightgate.dialect.neutral.numbers import number
from lightgate.dialect.openai_chat.answer import error_event, error_words
from lightgate.errors import UsageError

if TYPE_CHECKING:
    from lightgate.dialect.neutral.events import Listener
    from lightgate.dialect.quirks import Quirks
    from lightgate.dialect.request import Built, Kind, Request

VOICE: Final = "alloy"  # of OpenAI's, which its compatible servers know too
# No sets: a type may be anything, a list even.
_DELTAS: Final = ("speech.audio.delta", "transcript.text.delta")
_ENDS: Final = ("speech.audio.done", "transcript.text.done")


def _build(request: Request, quirks: Quirks) -> Built:  # noqa: ARG001 - every builder is called alike
    """Refuse: a neutral request holds no sound."""
    raise UsageError(f"A request of the kind {request.kind!r} is passed on, never built.")


def _build_speech(request: Request, quirks: Quirks) -> Built:  # noqa: ARG001 - same
    """Build POST /audio/speech of one text; `extra` may name another voice and the format."""
    text, *more = need(request, "openai speech", "inputs")
    if more:
        raise UsageError("Speech is made of one text.")
    body = {"model": request.model, "input": text, "voice": VOICE}
    return built("/audio/speech", body, request.extra, stream=False)


class _Details(msgspec.Struct, gc=False):
    audio_tokens: Count = None


class _SoundUsage(msgspec.Struct, gc=False):
    input_tokens: Count = None
    output_tokens: Count = None
    input_token_details: _Details | None = None
    seconds: float | None = None


class _Sound(msgspec.Struct, gc=False):
    type: Any = None
    delta: Any = None
    audio: Any = None
    text: Any = None
    duration: float | None = None
    usage: _SoundUsage | None = None
    error: Any = None


_decoder: Final = msgspec.json.Decoder(_Sound, float_hook=number)


def _event(listener: Listener, name: bytes, data: bytes) -> None:
    event = decoded(_decoder, data)
    if event is None:
        marker(listener, data)
    elif event.error is not None:
        listener.fail(error_of(event.error))
    elif event.type in _DELTAS:
        if isinstance(event.delta, str) and event.delta:
            listener.say(TEXT, event.delta)
        elif event.audio:
            listener.other(AUDIO, "")  # base64, which has no text to weigh
    elif event.type in _ENDS:
        listener.use(_usage(event))
        listener.stop("stop")
        listener.end()
    else:
        stray(listener, name, data)


def _whole(listener: Listener, body: bytes) -> None:
    """Take a transcript: JSON with a text, or the text itself, as subtitles for example."""
    answer = decoded(_decoder, body) if body.lstrip().startswith(b"{") else None
    if answer is None:
        listener.say(TEXT, body.decode("utf-8", "replace"))
        return
    if answer.error is not None:
        listener.fail(error_of(answer.error))
        return
    if isinstance(answer.text, str) and answer.text:
        listener.say(TEXT, answer.text)
    listener.use(_usage(answer))


def _usage(said: _Sound) -> Usage | None:
    usage = said.usage or _SoundUsage()
    seconds = usage.seconds if usage.seconds is not None else said.duration
    if usage.input_tokens is None and usage.output_tokens is None and seconds is None:
        return None
    details = usage.input_token_details
    return Usage(
        tokens_in=usage.input_tokens,
        tokens_out=usage.output_tokens,
        tokens_audio=None if details is None else details.audio_tokens,
        seconds=seconds,
    )


def _endpoint(name: str, kind: Kind, *, form: bool) -> Dialect:
    return Dialect(
        name=f"openai-{name}",
        family="openai",
        kind=kind,
        path=f"/audio/{name}",
        tokens=False,
        sound="form" if form else "speech",
        builder=_build if form else _build_speech,
        reader=Reader(event=_event, whole=_whole, finishes={"stop": "stop"}),
        error_words=error_words,
        error_event=error_event,
    )


DIALECTS: Final = (
    _endpoint("speech", "speech", form=False),
    _endpoint("transcriptions", "transcription", form=True),
    _endpoint("translations", "translation", form=True),
)
