"""A request as multipart/form-data: which part names the model; everything else stays as it came.

Providers read such forms in their own ways. A part whose header could be read in two ways is
refused, so that the model that is checked here is the one that the provider sees.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import msgspec

from lightgate.errors import UsageError
from lightgate.gateway.request.body import ClientRequest, FormBody

if TYPE_CHECKING:
    from lightgate.gateway.request.endpoint import Endpoint

_TYPE: Final = re.compile(
    rb"multipart/form-data *; *boundary=(?:\"([^\"\r\n]{1,70})\"|([!-~]{1,70}))", re.IGNORECASE
)
_BOUNDARY: Final = re.compile(rb"[A-Za-z0-9'()+_,./:=? -]{0,69}[A-Za-z0-9'()+_,./:=?-]")
_DISPOSITION: Final = re.compile(
    rb'form-data; *name="([A-Za-z0-9_.\[\]-]{1,64})"'
    rb'(?:; *filename="[^"\r\n]*")?(?:; *filename\*=[!-~]{1,512})?',
    re.IGNORECASE,
)
_MOST_PARTS: Final = 64
_MOST_HEAD: Final = 4096
_MOST_VALUE: Final = 1024  # of a field that is read here
_HINT: Final = "Send the fields and the file as an SDK or `curl -F` does."
_encode: Final = msgspec.json.Encoder().encode


def read_form(endpoint: Endpoint, body: bytes, content_type: bytes | None) -> ClientRequest:
    """Read the facts of a form; UsageError says what is wrong with it."""
    boundary = boundary_of(content_type)
    found: dict[str, tuple[int, int]] = {}
    largest = 0
    for name, start, end in _parts(body, b"--" + boundary):
        if name in found and not name.endswith("[]"):
            raise UsageError(f"The field `{name}` is given twice.")
        found[name] = start, end
        largest = max(largest, end - start)
    where = found.get("model")
    if where is None:
        hint = "Add a field `model`; GET /v1/models lists them."
        raise UsageError("The request names no model.", hint=hint)
    model = _value(body, where, "model")
    if not model or len(model) > 256 or not model.isprintable():
        raise UsageError("`model` is empty, or holds what no model's name does.")
    streamed = "stream" in found and _value(body, found["stream"], "stream").lower() == "true"
    line = b'content-type: multipart/form-data; boundary="%b"\r\n' % boundary
    fields = {
        name: msgspec.Raw(_encode(_value(body, place, name)))
        for name, place in found.items()
        if place[1] - place[0] <= _MOST_VALUE and name != "file"
    }
    return ClientRequest(
        endpoint=endpoint,
        model=model,
        streamed=streamed,
        max_tokens=None,
        include_usage=False,
        fields=fields,
        body=body,
        tokens_in=1,  # a recording is no prompt
        form=FormBody(body, *where, line, largest),
    )


def boundary_of(content_type: bytes | None) -> bytes:
    """The boundary of a form; UsageError where its type names none that is sound."""
    match = _TYPE.fullmatch(content_type or b"")
    found = None if match is None else match[1] or match[2]
    if found is None or _BOUNDARY.fullmatch(found) is None:
        raise UsageError("The body must be multipart/form-data with a boundary.", hint=_HINT)
    return found


def _parts(body: bytes, mark: bytes) -> list[tuple[str, int, int]]:
    """The parts of a form: a name, and the place of the value."""
    if not body.startswith(mark + b"\r\n"):
        raise UsageError("The body does not begin with its boundary.", hint=_HINT)
    parts: list[tuple[str, int, int]] = []
    at = len(mark) + 2
    while True:
        head_end = body.find(b"\r\n\r\n", at, at + _MOST_HEAD)
        end = body.find(b"\r\n" + mark, max(head_end + 2, at))
        if head_end < 0 or end < 0 or len(parts) >= _MOST_PARTS:
            raise UsageError("The form is cut off, or has too many fields.", hint=_HINT)
        parts.append((part_name(body[at:head_end]), head_end + 4, max(end, head_end + 4)))
        at = end + 2 + len(mark)
        after = body[at : at + 2]
        if after == b"--":
            return parts
        if after != b"\r\n":
            raise UsageError("The boundary of the form is inside one of its fields.", hint=_HINT)
        at += 2


def part_name(head: bytes) -> str:
    """The name of a part, from a header that can be read in one way only."""
    name = None
    for line in head.split(b"\r\n"):
        field, colon, value = line.partition(b":")
        if not colon or b"\n" in line or b"\r" in line:
            raise UsageError("A field of the form has a malformed header.", hint=_HINT)
        if field.strip().lower() == b"content-disposition":
            match = _DISPOSITION.fullmatch(value.strip())
            if match is None or name is not None:
                raise UsageError("A field of the form has no clear name.", hint=_HINT)
            name = match[1].decode()
    if name is None:
        raise UsageError("A field of the form has no name.", hint=_HINT)
    if name != "model" and name.casefold() == "model":
        raise UsageError(f"Write the field {name!r} as `model`.")
    return name


def _value(body: bytes, place: tuple[int, int], name: str) -> str:
    raw = body[place[0] : place[1]]
    if len(raw) > _MOST_VALUE:
        raise UsageError(f"The field `{name}` is too long.")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise UsageError(f"The field `{name}` is not UTF-8.") from None
