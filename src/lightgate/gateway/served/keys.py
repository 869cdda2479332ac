"""Who is asking: from the presented key to its record, in one look-up by full hash."""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING, Final, NamedTuple

from lightgate.ledger.store.keys import instant_ns

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lightgate.ledger.store.keys import KeyRecord

_BEARER: Final = b"bearer"
_PLAIN: Final = (b"x-api-key", b"x-goog-api-key")
_NEVER: Final = 2**63 - 1


class _Entry(NamedTuple):
    digest: bytes
    until_ns: int
    key: KeyRecord


class Keyring:
    """All keys of one snapshot.

    Unknown, expired and revoked keys are answered alike. `len` counts every key, also those that
    are over: revoking the last one must not open the gateway.
    """

    __slots__ = ("_by_digest", "_count")

    def __init__(self, keys: Iterable[KeyRecord]) -> None:
        rows = tuple(keys)
        self._count = len(rows)
        self._by_digest = {
            entry.digest: entry for entry in (_entry(key) for key in rows if key.revoked is None)
        }

    def __len__(self) -> int:
        return self._count

    def of_id(self, id_: str, wall_ns: int) -> KeyRecord | None:
        """The record of the key with this id, if it is good at this time."""
        for entry in self._by_digest.values():
            if entry.key.id == id_:
                return entry.key if wall_ns < entry.until_ns else None
        return None

    def find(self, presented: bytes, wall_ns: int) -> KeyRecord | None:
        """The record of a presented key that is good at this time, or None for whatever reason.

        The whole key is hashed before anything is compared, so how long it takes says nothing about
        how much of a guess was right.
        """
        digest = hashlib.sha256(presented).digest()
        entry = self._by_digest.get(digest)
        if entry is None or not hmac.compare_digest(entry.digest, digest):
            return None
        return entry.key if wall_ns < entry.until_ns else None


def presented_key(headers: tuple[tuple[bytes, bytes], ...]) -> bytes | None:
    """The key in a request's headers, whose names are lower case; the first that is not empty.

    A key in the query is never read: addresses end up in logs.
    """
    for name, value in headers:
        if name == b"authorization":
            scheme, _, rest = value.partition(b" ")
            key = rest.strip() if scheme.lower() == _BEARER else b""
        elif name in _PLAIN:
            key = value.strip()
        else:
            continue
        if key:
            return key
    return None


def _entry(key: KeyRecord) -> _Entry:
    until = _NEVER if key.expires is None else instant_ns(key.expires)
    return _Entry(bytes.fromhex(key.hash), until, key)
