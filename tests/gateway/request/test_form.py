"""Forms: whatever they hold, only the model is another afterwards."""

from __future__ import annotations

from email import message_from_bytes
from email.policy import HTTP
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightgate.errors import UsageError
from lightgate.gateway.request.endpoint import find
from lightgate.gateway.request.form import read_form

found = find(b"/v1/audio/transcriptions")
assert found is not None
ENDPOINT = found.endpoint
NAMES = st.from_regex(r"[a-z_]{1,12}(\[\])?", fullmatch=True).filter(
    lambda name: name not in {"model", "file"}
)
CONTENT = st.binary(max_size=300)


def body_of(parts: list[tuple[str, bytes, bool]], mark: bytes) -> bytes:
    out = b""
    for name, value, is_file in parts:
        file = '; filename="a b.wav"\r\ncontent-type: audio/wav' if is_file else ""
        head = f'Content-Disposition: form-data; name="{name}"{file}\r\n\r\n'.encode()
        out += b"--" + mark + b"\r\n" + head + value + b"\r\n"
    return out + b"--" + mark + b"--\r\n"


def read_by_another(body: bytes, kind: bytes) -> list[tuple[Any, Any]]:
    """The parts as Python's own reader of MIME sees them."""
    whole = message_from_bytes(b"content-type: " + kind + b"\r\n\r\n" + body, policy=HTTP)
    return [
        (part.get_param("name", header="content-disposition"), part.get_payload(decode=True))
        for part in whole.iter_parts()
    ]


@given(
    fields=st.dictionaries(NAMES, st.text("abc \u00e9", max_size=9), max_size=4),
    recording=CONTENT,
    at=st.integers(0, 5),
)
def test_only_the_model_changes(fields: dict[str, str], recording: bytes, at: int) -> None:
    mark = b"mark-0d1f"
    parts = [(name, value.encode(), False) for name, value in fields.items()]
    parts.append(("file", recording, True))
    parts.insert(min(at, len(parts)), ("model", b"mine", False))
    body = body_of(parts, mark)
    kind = b"multipart/form-data; boundary=" + mark
    request = read_form(ENDPOINT, body, kind)
    assert request.model == "mine"
    assert request.form is not None
    sent = b"".join(request.form.addressed("whisper-large-v3"))
    expected = [(n, b"whisper-large-v3" if n == "model" else v, f) for n, v, f in parts]
    assert sent == body_of(expected, mark)
    # And another reader sees the same model as we do.
    seen = read_by_another(sent, request.form.content_type.removeprefix(b"content-type: ").strip())
    assert [value for name, value in seen if name == "model"] == [b"whisper-large-v3"]


@given(body=st.binary(max_size=400), kind=st.binary(max_size=60))
def test_rubbish_is_refused_in_words(body: bytes, kind: bytes) -> None:
    for content_type in (kind, b"multipart/form-data; boundary=x", None):
        with pytest.raises(UsageError):
            read_form(ENDPOINT, b"--x\r\n" + body, content_type)


@given(place=st.integers(0, 400), byte=st.integers(0, 255))
def test_a_damaged_form_is_refused_or_names_the_model_that_is_sent(place: int, byte: int) -> None:
    """One byte is another: what is read here is still what another reader finds."""
    parts = [("prompt", b"hello", False), ("model", b"mine", False), ("file", b"\0" * 40, True)]
    body = bytearray(body_of(parts, b"mark"))
    body[place % len(body)] = byte
    try:
        request = read_form(ENDPOINT, bytes(body), b"multipart/form-data; boundary=mark")
    except UsageError:
        return
    assert request.form is not None
    sent = b"".join(request.form.addressed("theirs"))
    start, end = request.form.start, request.form.start + len(b"theirs")
    assert sent[start:end] == b"theirs"
    assert sent.count(b'name="model"') == 1


@pytest.mark.parametrize(
    ("length", "said"),
    [(256, None), (257, "no model's name"), (1024, "no model's name"), (1025, "is too long")],
)
def test_the_name_of_a_model_has_a_longest_length(length: int, said: str | None) -> None:
    body = body_of([("model", b"m" * length, False), ("file", b"x", True)], b"mark")
    kind = b"multipart/form-data; boundary=mark"
    if said is None:
        assert read_form(ENDPOINT, body, kind).model == "m" * length
    else:
        with pytest.raises(UsageError, match=said):
            read_form(ENDPOINT, body, kind)
