"""What is known of a request for sound before it is answered."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.request.test_form import body_of
from lightgate.gateway.request.body import read_request_body
from lightgate.gateway.request.endpoint import find
from lightgate.gateway.request.form import read_form


def speech(**fields: Any) -> Any:
    found = find(b"/v1/audio/speech")
    assert found is not None
    body = json.dumps({"model": "m", **fields}).encode()
    return read_request_body(found.endpoint, body).sound, len(body)


@pytest.mark.parametrize(
    ("speed", "slower"),
    [(None, 1.0), (1, 1.0), (2.5, 1.0), (0.5, 2.0), (0.25, 4.0), (0, 4.0), (-3, 4.0)],
)
def test_slow_speech_is_longer_and_fast_speech_no_shorter(
    speed: float | None, slower: float
) -> None:
    sound, size = speech(input="Hi there", **({} if speed is None else {"speed": speed}))
    assert sound == (8, 0, size, slower)


def test_speech_of_nothing_has_no_character() -> None:
    assert speech()[0].characters == 0
    assert speech(input="")[0].characters == 0


def test_a_recording_is_its_own_bytes_and_the_form_around_it_text() -> None:
    found = find(b"/v1/audio/transcriptions")
    assert found is not None
    parts = [("model", b"m", False), ("prompt", b"p" * 30, False), ("file", b"x" * 500, True)]
    body = body_of(parts, b"mark")
    sound = read_form(found.endpoint, body, b"multipart/form-data; boundary=mark").sound
    assert (sound.characters, sound.size, sound.slower) == (None, 500, 1.0)
    assert sound.text == len(body) - 500
