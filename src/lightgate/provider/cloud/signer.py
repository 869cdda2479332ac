"""The seam for what lets a request in at a provider where no fixed key does.

A signer is asked for headers once per request, after the body is known. It never waits: a token is
fetched and renewed by a thread, and a request that comes before there is one, or after it ended,
fails at once.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple, Protocol

from lightgate.errors import Exit, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lightgate.provider.catalogue import Pairs
    from lightgate.provider.secret import Secret


class NoToken(UsageError):  # noqa: N818 - names the event
    """A request cannot be let in now: no token has come yet, or the last one has ended.

    For a plan it is one of the reasons why a target cannot be told a request; `field` is its name.
    """

    exit_code = Exit.CREDENTIALS
    status = 503
    label = "no_token"
    field = "access_token"


class Ask(NamedTuple):
    """A request as far as it is signed; `path` has its query, `headers` are those known so far.

    `body` is in pieces. `digest` is its SHA-256 in hex, where that is known already.
    """

    method: str
    authority: str
    path: str
    headers: Pairs
    body: tuple[bytes | memoryview, ...]
    digest: str = ""


def digest_of(pieces: Iterable[bytes | memoryview]) -> str:
    """The SHA-256 of a body in hex."""
    found = hashlib.sha256()
    for piece in pieces:
        found.update(piece)
    return found.hexdigest()


class Signer(Protocol):
    """Gives a request the headers that let it in."""

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """What must not be shown, in a provider's error for example."""

    def sign(self, ask: Ask) -> Pairs:
        """The headers; NoToken where there are none now."""

    def start(self) -> None:
        """Begin to get ready; it does not wait."""

    def ready(self, timeout_s: float) -> None:
        """Wait until requests can be signed; CredentialsError says why they cannot. It blocks."""
