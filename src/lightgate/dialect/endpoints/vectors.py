"""Vectors of texts, in no dialect: what embeddings endpoints are asked for and answer."""

from __future__ import annotations

import array
import base64
import binascii
import sys
from typing import TYPE_CHECKING, Final

import msgspec

from lightgate.dialect.errors import BadField, Untranslatable
from lightgate.dialect.neutral.estimate import estimate_tokens
from lightgate.dialect.neutral.numbers import any_json
from lightgate.errors import Malformed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lightgate.dialect.neutral.fields import Fields, Sheet

_word: Final = msgspec.json.Decoder(str)
_encode: Final = msgspec.json.Encoder().encode


class Vectors(msgspec.Struct, frozen=True):
    """The vectors of one answer, each as its JSON, and the tokens that were read for them."""

    values: tuple[msgspec.Raw, ...]
    tokens: int | None = None


def read_texts(body: Fields, sheet: Sheet) -> None:
    """Note the texts of OpenAI's `input`; token ids mean nothing to another model."""
    given = body.take("input")
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list) or not texts:
        raise BadField("input", "must be a text or a list of texts")
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            place = "input" if isinstance(text, int) else f"input[{number}]"
            why = "token ids are one tokenizer's own; send texts"
            raise Untranslatable(place, why)
    sheet.put("inputs", tuple(texts), "input")
    sheet.put("dimensions", body.whole("dimensions"), "dimensions")
    form = body.text("encoding_format")
    if form not in {None, "float", "base64"}:
        raise BadField("encoding_format", "must be 'float' or 'base64'")


def tokens_of(vectors: Vectors, asked: Mapping[str, msgspec.Raw], field: str) -> int:
    """The tokens of an answer; those of the asked texts are estimated where nobody counted."""
    if vectors.tokens is not None:
        return vectors.tokens
    return estimate_tokens(any_json.decode(asked.get(field, msgspec.Raw(b'""'))))


def as_floats(raw: msgspec.Raw) -> msgspec.Raw:
    """A vector as a list of numbers, however the provider wrote it."""
    if not bytes(raw).lstrip().startswith(b'"'):
        return raw
    try:
        packed = array.array("f")
        packed.frombytes(base64.b64decode(_word.decode(raw), validate=True))
    except (msgspec.DecodeError, binascii.Error, ValueError):
        raise Malformed("A vector is neither numbers nor base64 of them.") from None
    return msgspec.Raw(_encode(_little(packed).tolist()))


def as_base64(raw: msgspec.Raw) -> msgspec.Raw:
    """A vector as base64 of 32-bit numbers, the least significant byte first."""
    try:
        # A decoder of floats does not ask `any_json`'s hook, and is slow where that is not.
        packed = array.array("f", msgspec.convert(any_json.decode(raw), list[float]))
    except msgspec.DecodeError:
        raise Malformed("A vector is no list of numbers.") from None
    return msgspec.Raw(_encode(base64.b64encode(_little(packed).tobytes()).decode("ascii")))


def _little(packed: array.array[float]) -> array.array[float]:
    if sys.byteorder == "big":
        packed.byteswap()
    return packed
