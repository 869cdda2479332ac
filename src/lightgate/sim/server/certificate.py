"""Certificates for ports that are wrong on purpose, made with the standard library alone.

ECDSA on P-256 and a little DER: enough for a simulator, and for nothing else. The arithmetic is not
constant in time and the keys live as long as the process; no secret is ever protected by them.
"""

from __future__ import annotations

import hashlib
import ipaddress
import secrets
import ssl
from base64 import b64encode
from datetime import UTC, datetime
from textwrap import wrap
from typing import Final, NamedTuple

_P: Final = 2**256 - 2**224 + 2**192 + 2**96 - 1
_N: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_G: Final = (
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)
_ECDSA_SHA256: Final = bytes.fromhex("06082a8648ce3d040302")
_EC_KEY: Final = bytes.fromhex("06072a8648ce3d0201")
_P256: Final = bytes.fromhex("06082a8648ce3d030107")
_COMMON_NAME: Final = bytes.fromhex("0603550403")
_ALT_NAMES: Final = bytes.fromhex("0603551d11")
_CONSTRAINTS: Final = bytes.fromhex("0603551d13")

_Point = tuple[int, int] | None


class Pair(NamedTuple):
    """A private number and its public point."""

    secret: int
    point: tuple[int, int]


class Certificate(NamedTuple):
    """A certificate and its key, both as PEM."""

    pem: str
    key_pem: str


class Term(NamedTuple):
    """From when until when a certificate holds."""

    start: datetime
    end: datetime


def new_pair() -> Pair:
    """A fresh key."""
    secret = secrets.randbelow(_N - 1) + 1
    point = _times(secret, _G)
    if point is None:
        raise ArithmeticError("a number below the order has a point")
    return Pair(secret, point)


def certify(
    name: str, pair: Pair, term: Term, signer: tuple[str, Pair], *, ca: bool
) -> Certificate:
    """A certificate for a host name or address, signed by (name, key)."""
    issuer, issuer_pair = signer
    algorithm = _der(0x30, _ECDSA_SHA256)
    body = _der(
        0x30,
        _der(0xA0, _integer(2)),
        _integer(secrets.randbits(63) | 1),
        algorithm,
        _name(issuer),
        _der(0x30, _time(term.start), _time(term.end)),
        _name(name),
        _der(0x30, _der(0x30, _EC_KEY, _P256), _bits(_public(pair))),
        _der(0xA3, _der(0x30, *_extensions(name, ca=ca))),
    )
    whole = _der(0x30, body, algorithm, _bits(_sign(body, issuer_pair)))
    return Certificate(ssl.DER_cert_to_PEM_cert(whole), _key_pem(pair))


def _extensions(name: str, *, ca: bool) -> list[bytes]:
    try:
        alternative = _der(0x87, ipaddress.ip_address(name).packed)
    except ValueError:
        alternative = _der(0x82, name.encode())
    true = b"\x01\x01\xff"
    constraints = _der(0x30, true) if ca else _der(0x30)
    return [
        _der(0x30, _CONSTRAINTS, true, _der(0x04, constraints)),
        _der(0x30, _ALT_NAMES, _der(0x04, _der(0x30, alternative))),
    ]


def _sign(message: bytes, pair: Pair) -> bytes:
    digest = int.from_bytes(hashlib.sha256(message).digest(), "big")
    while True:
        nonce = new_pair()
        r = nonce.point[0] % _N
        s = pow(nonce.secret, -1, _N) * (digest + r * pair.secret) % _N
        if r and s:
            return _der(0x30, _integer(r), _integer(s))


def _times(factor: int, point: _Point) -> _Point:
    total: _Point = None
    while factor:
        if factor & 1:
            total = _plus(total, point)
        point = _plus(point, point)
        factor >>= 1
    return total


def _plus(a: _Point, b: _Point) -> _Point:
    if a is None or b is None:
        return a or b
    if a[0] == b[0]:
        if (a[1] + b[1]) % _P == 0:
            return None
        slope = (3 * a[0] * a[0] - 3) * pow(2 * a[1], -1, _P)
    else:
        slope = (b[1] - a[1]) * pow(b[0] - a[0], -1, _P)
    x = (slope * slope - a[0] - b[0]) % _P
    return x, (slope * (a[0] - x) - a[1]) % _P


def _der(tag: int, *parts: bytes) -> bytes:
    content = b"".join(parts)
    size = len(content)
    if size < 0x80:
        return bytes((tag, size)) + content
    digits = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(digits))) + digits + content


def _integer(value: int) -> bytes:
    return _der(0x02, value.to_bytes(value.bit_length() // 8 + 1, "big"))


def _bits(content: bytes) -> bytes:
    return _der(0x03, b"\x00", content)


def _name(text: str) -> bytes:
    return _der(0x30, _der(0x31, _der(0x30, _COMMON_NAME, _der(0x0C, text.encode()))))


def _time(instant: datetime) -> bytes:
    return _der(0x18 if instant.year >= 2050 else 0x17, _digits(instant).encode())


def _digits(instant: datetime) -> str:
    form = "%Y%m%d%H%M%SZ" if instant.year >= 2050 else "%y%m%d%H%M%SZ"
    return instant.astimezone(UTC).strftime(form)


def _public(pair: Pair) -> bytes:
    return b"\x04" + b"".join(part.to_bytes(32, "big") for part in pair.point)


def _key_pem(pair: Pair) -> str:
    key = _der(
        0x30,
        _integer(1),
        _der(0x04, pair.secret.to_bytes(32, "big")),
        _der(0xA0, _P256),
        _der(0xA1, _bits(_public(pair))),
    )
    lines = "\n".join(wrap(b64encode(key).decode(), 64))
    return f"-----BEGIN EC PRIVATE KEY-----\n{lines}\n-----END EC PRIVATE KEY-----\n"
