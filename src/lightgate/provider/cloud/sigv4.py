"""AWS Signature Version 4: the header that proves who sent a request, and that nobody changed it.

Written from AWS' description ("Signature Version 4 for API requests" in the IAM user guide), and
held against AWS' own vectors and botocore by the tests. Signed are the method, the path, the query,
the host, the content type, every x-amz header and the body.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import time
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from lightgate.clock.source import SYSTEM
from lightgate.provider.cloud.signer import digest_of

if TYPE_CHECKING:
    from lightgate.clock.source import Clock
    from lightgate.provider.catalogue import Pairs
    from lightgate.provider.cloud.aws import AwsCredentials, Scope
    from lightgate.provider.cloud.signer import Ask
    from lightgate.provider.secret import Secret

NS: Final = 1_000_000_000
_SLASHES: Final = re.compile("/{2,}")
_ALGORITHM: Final = "AWS4-HMAC-SHA256"


class SigV4:
    """Signs requests with one key pair for one service of one region."""

    def __init__(
        self,
        credentials: AwsCredentials,
        scope: Scope,
        *,
        clock: Clock = SYSTEM,
    ) -> None:
        self._credentials = credentials
        self._scope = scope
        self._clock = clock
        self._day = ""
        self._key = b""

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """The secret key, which is never sent, and the session's token, which is."""
        found = self._credentials
        return (found.secret,) if found.session is None else (found.secret, found.session)

    def start(self) -> None:
        """Nothing is fetched."""

    def ready(self, timeout_s: float) -> None:
        """Nothing is waited for."""

    def sign(self, ask: Ask) -> Pairs:
        """The headers of one request; they are good for about five minutes."""
        at = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(self._clock.wall_ns() // NS))
        added = [("x-amz-date", at)]
        if self._credentials.session is not None:
            added.append(("x-amz-security-token", self._credentials.session.reveal()))
        names, headers = _canonical_headers(ask, added)
        path, _, query = ask.path.partition("?")
        canonical = "\n".join(
            (
                ask.method,
                _canonical_path(path),
                _canonical_query(query),
                headers,
                names,
                ask.digest or digest_of(ask.body),
            )
        )
        day, (region, service) = at[:8], self._scope
        scope = f"{day}/{region}/{service}/aws4_request"
        digest = hashlib.sha256(canonical.encode()).hexdigest()
        text = f"{_ALGORITHM}\n{at}\n{scope}\n{digest}"
        signature = hmac.digest(self._day_key(day), text.encode(), "sha256").hex()
        said = (
            f"{_ALGORITHM} Credential={self._credentials.key_id}/{scope},"
            f" SignedHeaders={names}, Signature={signature}"
        )
        return (*added, ("authorization", said))

    def _day_key(self, day: str) -> bytes:
        """The key of one day, derived once."""
        if day != self._day:
            key = f"AWS4{self._credentials.secret.reveal()}".encode()
            for word in (day, *self._scope, "aws4_request"):
                key = hmac.digest(key, word.encode(), "sha256")
            self._day, self._key = day, key
        return self._key


def _canonical_headers(ask: Ask, added: list[tuple[str, str]]) -> tuple[str, str]:
    """The names of the signed headers, and the headers as they are signed."""
    signed: dict[str, list[str]] = {"host": [ask.authority]}
    for name, value in (*ask.headers, *added):
        small = name.lower()
        if small == "content-type" or small.startswith("x-amz-"):
            signed.setdefault(small, []).append(" ".join(value.split()))
    lines = [f"{name}:{','.join(signed[name])}\n" for name in sorted(signed)]
    return ";".join(sorted(signed)), "".join(lines)


def _canonical_path(path: str) -> str:
    """A path without doubled slashes, encoded once more than it is sent."""
    return quote(_SLASHES.sub("/", path), safe="/~")


def _canonical_query(query: str) -> str:
    """The query's parameters in the order of their names, then of their values."""
    pairs = [part.partition("=")[::2] for part in query.split("&") if part]
    return "&".join(f"{name}={value}" for name, value in sorted(pairs))
