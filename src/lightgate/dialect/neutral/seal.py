"""Seals: a provider's signature on its reasoning, kept by a client of another dialect.

A provider signs its reasoning and wants both back with the next request. A client of another
dialect has a place for signatures, but its next request may go to any target. So a signature is
handed out inside a seal that names the dialect which it is of, and taken out again for that dialect
alone; to all others it means nothing. A seal is base64, since Google's SDKs decode signatures.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final, NamedTuple

import msgspec

_MARK: Final = b"lightgate:"
START: Final = base64.b64encode(_MARK[:9]).decode()  # what every seal begins with
_encode: Final = msgspec.json.Encoder().encode
_LONGEST: Final = 4 * 1024 * 1024  # characters of a seal that is looked at


class Unsealed(NamedTuple):
    """A signature, the dialect that it is of, and the reasoning, where the seal carries that."""

    dialect: str
    signature: str
    text: str


_decoder: Final = msgspec.json.Decoder(tuple[str, str, str])


def sealed(dialect: str, signature: str, text: str = "") -> str:
    """Seal a signature for a client of another dialect."""
    try:
        payload = _MARK + _encode((dialect, signature, text))
    except UnicodeEncodeError:  # halves of an emoji; no provider signs them
        return ""
    return base64.urlsafe_b64encode(payload).decode("ascii")


def opened(seal: str) -> Unsealed | None:
    """Open a seal; None for what is a client's own signature, or a broken seal."""
    if not seal.startswith(START) or len(seal) > _LONGEST:
        return None
    plain = seal.replace("-", "+").replace("_", "/")
    try:
        payload = base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
        return Unsealed(*_decoder.decode(payload.removeprefix(_MARK)))
    except (binascii.Error, ValueError):
        return None
