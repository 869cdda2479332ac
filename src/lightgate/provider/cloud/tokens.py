"""Access tokens that end: fetched and renewed by a thread, read by the event loop without waiting.

A token is renewed five minutes before its end, or at half of what is left of it. Where that fails,
the old token serves until its end, the reason goes to the log, and it is tried again. A token lives
in the memory of one process alone: it is in no file, no snapshot and no environment.
"""

from __future__ import annotations

import logging
import re
import threading
from typing import TYPE_CHECKING, Final, NamedTuple

from lightgate.clock.source import SYSTEM
from lightgate.errors import CredentialsError
from lightgate.provider.cloud.signer import NoToken
from lightgate.provider.secret import without_secrets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lightgate.clock.source import Clock
    from lightgate.provider.catalogue import Pairs
    from lightgate.provider.cloud.signer import Ask
    from lightgate.provider.secret import Secret

logger = logging.getLogger(__name__)
EARLY_S: Final = 300.0  # before the end; the clouds themselves hand out a new one about then
SHORTEST_S: Final = 1.0  # between two tries
LONGEST_S: Final = 60.0
NS: Final = 1_000_000_000
_LONGEST_REASON: Final = 200
# What a library says about a failure may repeat what it sent: a signed assertion, a key, a secret.
_OPAQUE: Final = re.compile(
    r"eyJ[A-Za-z0-9_.-]+|ya29\.\S+|[A-Za-z0-9+=_~-]{32,}|-----BEGIN.*", re.DOTALL
)


class AccessToken(NamedTuple):
    """A token and the instant of its end, on the wall clock."""

    value: Secret
    until_ns: int


class TokenKeeper:
    """Keeps one token fresh; a signer that puts it into each request.

    `fetch` blocks and runs in a thread of its own, which `start` starts once.
    """

    def __init__(
        self,
        name: str,
        fetch: Callable[[], AccessToken],
        *,
        clock: Clock = SYSTEM,
        hide: Iterable[Secret] = (),
    ) -> None:
        self._name = name
        self._fetch = fetch
        self._clock = clock
        self._hide = tuple(hide)
        self._held: tuple[AccessToken, Pairs] | None = None  # the token and its header, as one
        self._failures = 0
        self._problem = ""
        self.tried = threading.Event()  # once there is a token, or a reason why not
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """The token of now."""
        return () if self._held is None else (self._held[0].value,)

    def sign(self, ask: Ask) -> Pairs:  # noqa: ARG002 - a token is the same for every request
        """The header with the token; NoToken before the first one and after the end."""
        held = self._held
        if held is None or held[0].until_ns <= self._clock.wall_ns():
            self.start()
            raise NoToken(
                f"There is no access token for {self._name} now"
                f"{': ' + self._problem if self._problem else ''}.",
                hint="It is asked for again every minute; the log says more.",
            )
        return held[1]

    def start(self) -> None:
        """Begin to fetch, once."""
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, name=f"token-{self._name}", daemon=True
            )
            self._thread.start()

    def ready(self, timeout_s: float) -> None:
        """Wait for the first token; CredentialsError says why there is none."""
        self.start()
        tried = self.tried.wait(timeout_s)
        if self._held is None:
            why = self._problem if tried else f"no answer within {timeout_s:g} s"
            raise CredentialsError(
                f"No access token for {self._name}: {why}.",
                hint="docs/guides/clouds.md says where credentials are looked for.",
            )

    def close(self) -> None:
        """Renew no more."""
        self._ended.set()

    def renew(self) -> float:
        """Fetch once; the seconds until the next time."""
        try:
            token = self._fetch()
        except Exception as error:  # noqa: BLE001 - a background task ends for nothing
            self._problem = self._reason(error)
            self._failures += 1
            logger.warning("no new token for %s: %s", self._name, self._problem)
            self.tried.set()
            return float(min(LONGEST_S, SHORTEST_S * 2 ** min(self._failures, 10)))
        self._failures, self._problem = 0, ""
        self._held = token, (("authorization", f"Bearer {token.value.reveal()}"),)
        self.tried.set()
        left_s = (token.until_ns - self._clock.wall_ns()) / NS
        return max(SHORTEST_S, left_s - min(EARLY_S, left_s / 2))

    def _run(self) -> None:
        while not self._ended.wait(self.renew()):
            pass

    def _reason(self, error: Exception) -> str:
        """One line about a failure, without what looks like a secret."""
        said = error.args[0] if error.args and isinstance(error.args[0], str) else ""
        line = next(iter(said.splitlines()), "").strip()
        line = without_secrets(line, self._hide)
        line = _OPAQUE.sub("***", line)[:_LONGEST_REASON].rstrip(" .")
        name = type(error).__name__
        return f"{name}: {line}" if line else name


class TokenKeepers:
    """The keepers of one process, each once, by what they keep."""

    def __init__(self) -> None:
        self._keepers: dict[tuple[str | None, ...], TokenKeeper] = {}

    def one(self, key: tuple[str | None, ...], make: Callable[[], TokenKeeper]) -> TokenKeeper:
        """The keeper of a key, made where there is none."""
        found = self._keepers.get(key)
        if found is None:
            found = self._keepers[key] = make()
        return found

    def settle(self, timeout_s: float) -> None:
        """Wait until each keeper has a token or has failed to get one; it blocks."""
        for keeper in tuple(self._keepers.values()):
            keeper.tried.wait(timeout_s)

    def keep_only(self, used: Iterable[object]) -> None:
        """End those that nothing uses any more."""
        kept = {id(signer) for signer in used}
        for key, keeper in tuple(self._keepers.items()):
            if id(keeper) not in kept:
                keeper.close()
                del self._keepers[key]
