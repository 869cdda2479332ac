"""The gateway's own callers: the process that sends the lines of batches, and the console.

Each shows a secret of its own that was made when the gateway started. The one of batches names the
key that a line is sent for; the console's requests belong to no key: they are races and benchmarks
that its operator starts. The secrets are in the memory and the environment of the processes that
need them; they are in no file and in no log.
"""

from __future__ import annotations

import hmac
import secrets
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import MutableMapping

SECRET_ENV: Final = "LIGHTGATE_BATCH_SECRET"  # noqa: S105 - the name of a variable
CONSOLE_ENV: Final = "LIGHTGATE_CONSOLE_CALLER"
PREFIX: Final = b"lightgate-batch."
CONSOLE_PREFIX: Final = b"lightgate-console."
SECRET_BYTES: Final = 32


def new_secret() -> str:
    """A secret that cannot be guessed."""
    return secrets.token_hex(SECRET_BYTES)


def credential(secret: str, owner: str) -> str:
    """What is shown for a line of this owner: the id of a key, "" without keys."""
    return f"{PREFIX.decode()}{secret}.{owner}"


def console_credential(secret: str) -> str:
    """What the console shows."""
    return f"{CONSOLE_PREFIX.decode()}{secret}"


class InnerCaller:
    """Knows the secrets, and the addresses from which they may be shown; an empty one is none."""

    __slots__ = ("_console", "_hosts", "_secret")

    def __init__(self, secret: str, host: str, console: str = "") -> None:
        self._secret = secret.encode()
        self._console = console.encode()
        self._hosts = frozenset(("127.0.0.1", "::1", "::ffff:127.0.0.1", host))

    @classmethod
    def of(cls, env: MutableMapping[str, str], host: str) -> InnerCaller | None:
        """The callers of this process's environment, from which the secrets are taken away."""
        secret, console = env.pop(SECRET_ENV, ""), env.pop(CONSOLE_ENV, "")
        return cls(secret, host, console) if secret or console else None

    def owner_of(self, presented: bytes, peer: str) -> str | None:
        """The owner that is named beside the secret; None where it is not the secret.

        The secret is compared as a whole, so how long it takes says nothing about a guess.
        """
        shown, _, owner = presented[len(PREFIX) :].partition(b".")
        if not self._shows(shown, self._secret, peer):
            return None
        return owner.decode("ascii", "replace")

    def is_console(self, presented: bytes, peer: str) -> bool:
        """Whether this is the console."""
        return self._shows(presented[len(CONSOLE_PREFIX) :], self._console, peer)

    def _shows(self, shown: bytes, secret: bytes, peer: str) -> bool:
        good = hmac.compare_digest(shown, secret) and bool(secret)
        return good and peer.rpartition(":")[0].strip("[]") in self._hosts
