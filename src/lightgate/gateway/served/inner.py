"""The gateway's own caller: the process that sends the lines of batches, and nobody else.

It shows a secret that was made when the gateway started, and names the key that a line is sent for.
The secret is in the memory and the environment of the processes that need it; it is in no file and
in no log.
"""

from __future__ import annotations

import hmac
import secrets
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import MutableMapping

SECRET_ENV: Final = "LIGHTGATE_BATCH_SECRET"  # noqa: S105 - the name of a variable
PREFIX: Final = b"lightgate-batch."
SECRET_BYTES: Final = 32


def new_secret() -> str:
    """A secret that cannot be guessed."""
    return secrets.token_hex(SECRET_BYTES)


def credential(secret: str, owner: str) -> str:
    """What is shown for a line of this owner: the id of a key, "" without keys."""
    return f"{PREFIX.decode()}{secret}.{owner}"


class InnerCaller:
    """Knows the secret, and the addresses from which it may be shown."""

    __slots__ = ("_hosts", "_secret")

    def __init__(self, secret: str, host: str) -> None:
        self._secret = secret.encode()
        self._hosts = frozenset(("127.0.0.1", "::1", "::ffff:127.0.0.1", host))

    @classmethod
    def of(cls, env: MutableMapping[str, str], host: str) -> InnerCaller | None:
        """The caller of this process's environment, from which the secret is taken away."""
        secret = env.pop(SECRET_ENV, "")
        return cls(secret, host) if secret else None

    def owner_of(self, presented: bytes, peer: str) -> str | None:
        """The owner that is named beside the secret; None where it is not the secret.

        The secret is compared as a whole, so how long it takes says nothing about a guess.
        """
        shown, _, owner = presented[len(PREFIX) :].partition(b".")
        good = hmac.compare_digest(shown, self._secret)
        if not good or peer.rpartition(":")[0].strip("[]") not in self._hosts:
            return None
        return owner.decode("ascii", "replace")
