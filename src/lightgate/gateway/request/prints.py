"""Fingerprints of requests: the ledger can tell that a request came again, never what it said.

A fingerprint is 63 bits of a keyed hash of the body and the client's key, and one bit that says
whether the request asked for a temperature of 0. The hash key is random, lies in the data folder
and never leaves it: without it no fingerprint can be tried against a guessed prompt, and
fingerprints of two folders have nothing in common. A body that is spelled in another way has
another fingerprint, so repeats are counted too low rather than too high.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from hashlib import blake2b
from struct import Struct
from typing import TYPE_CHECKING, Final

from lightgate.route.prompt.cache_key import TELLING, may_share

if TYPE_CHECKING:
    from pathlib import Path

    from lightgate.gateway.request.body import ClientRequest

FILE: Final = "fingerprint.key"  # in the data folder; without it, repeats begin to count anew
LONGEST: Final = 64 * 1024  # bytes of a body: some 70 us of hashing
EXACT: Final = 1  # the bit of a request that `cache = { mode = "exact" }` would take
_KEY_BYTES: Final = 32
_MOST_BEGUN: Final = 1024  # tenants; then the table begins anew
_ELSEWHERE: Final = frozenset(("gemini", "openai-embeddings"))  # have their temperature elsewhere
_INEXACT: Final = ~EXACT
_signed: Final = Struct(">q").unpack


class PromptPrints:
    """Makes fingerprints under one hash key."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._begun: dict[
            str, blake2b
        ] = {}  # hashes of the key and a tenant, which bodies continue

    @classmethod
    def of_process(cls) -> PromptPrints:
        """Use a hash key that is forgotten with this process."""
        return cls(secrets.token_bytes(_KEY_BYTES))

    @classmethod
    def of_folder(cls, data: Path) -> PromptPrints:
        """Use the hash key of a data folder; the first process to ask makes it.

        A folder that cannot be written or read gets a key for the life of this process.
        """
        path = data / FILE
        fresh = secrets.token_bytes(_KEY_BYTES)
        made = data / f".{FILE}.{os.getpid()}"
        with contextlib.suppress(OSError):
            if not path.exists():
                made.touch(mode=0o600)
                made.write_bytes(fresh)
                os.link(made, path)  # whole, or not at all: another worker may read it now
        with contextlib.suppress(OSError):
            made.unlink()
        with contextlib.suppress(OSError):
            kept = path.read_bytes()
            if len(kept) == _KEY_BYTES:
                return cls(kept)
        return cls(fresh)

    def of(self, request: ClientRequest, tenant: str) -> int | None:
        """Return the fingerprint of a request; None where an equal one may want another answer."""
        body, fields = request.body, request.fields
        if request.found is not None or not body or len(body) > LONGEST or request.form is not None:
            return None
        dialect, exact = request.endpoint.dialect, False
        if dialect in _ELSEWHERE or not TELLING.isdisjoint(fields):  # most name nothing of that
            if not may_share(dialect, fields, "any"):
                return None
            named = "temperature" in fields or dialect in _ELSEWHERE
            exact = named and may_share(dialect, fields, "exact")
        digest = (self._begun.get(tenant) or self._begin(tenant)).copy()
        digest.update(body)
        found: int = _signed(digest.digest())[0]
        return found | EXACT if exact else found & _INEXACT

    def _begin(self, tenant: str) -> blake2b:
        """The hash of what comes before a tenant's bodies."""
        if len(self._begun) >= _MOST_BEGUN:
            self._begun.clear()
        begun = blake2b(
            tenant.encode() + b"\0", digest_size=8, key=self._key, person=b"lightgate.repeat"
        )
        self._begun[tenant] = begun
        return begun
