"""Sign-in to the console: links that are good once, and the sessions that they begin.

A link and a session are 256 random bits each. The data folder keeps a file for each, named by its
SHA-256: whoever reads the folder has neither, and looking one up takes as long whatever a guess has
right. A link is used by deleting its file, which only one of two can do.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from lightgate.clock.source import SYSTEM
from lightgate.gateway.process.port import reached_at
from lightgate.whole_file import own_name, put

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lightgate.clock.source import Clock

FOLDER: Final = "console"
LINK_NS: Final = 600 * 1_000_000_000  # from printing a link to opening it
IDLE_NS: Final = 12 * 3600 * 1_000_000_000  # a session that nobody uses for so long is over
LONGEST_NS: Final = 7 * 86_400 * 1_000_000_000  # and so is one this old
NOTED_NS: Final = 60 * 1_000_000_000  # between two notes of a session's use
MOST: Final = 64  # links, and sessions, at once: the oldest gives way
_BITS: Final = 256
_encode: Final = msgspec.json.Encoder().encode
_Kept = TypeVar("_Kept", "SignInLink", "ConsoleSession")


class SignInLink(msgspec.Struct, frozen=True, kw_only=True):
    """A link that was printed: by what, and when (wall time)."""

    by: str
    made_ns: int


class ConsoleSession(msgspec.Struct, frozen=True, kw_only=True):
    """A browser that has opened a link; `id` is public, and says nothing about the cookie."""

    id: str
    by: str
    address: str
    made_ns: int
    used_ns: int

    def over(self, now_ns: int) -> bool:
        """Whether the session has ended by itself."""
        return (
            now_ns >= self.used_ns + IDLE_NS
            or now_ns >= self.made_ns + LONGEST_NS
            or now_ns < self.made_ns - NOTED_NS  # the clock was set back: fail closed
        )


class SignIns:
    """The links and sessions of one data folder; every process that opens the folder sees them."""

    def __init__(
        self,
        data: Path,
        clock: Clock = SYSTEM,
        random: Callable[[int], str] = secrets.token_urlsafe,
    ) -> None:
        self._folder = data / FOLDER
        self._clock = clock
        self._random = random

    def new_link(self, by: str) -> str:
        """Make the code of a link; it is kept nowhere else."""
        code = self._random(_BITS // 8)
        self._tidy()
        self._write("link", code, SignInLink(by=by, made_ns=self._clock.wall_ns()))
        return code

    def redeem(self, code: str, address: str) -> tuple[str, ConsoleSession] | None:
        """Use a link up: the cookie and its session, or None for a code that is not good (now)."""
        now_ns = self._clock.wall_ns()
        link = _decoded(self._path("link", code), SignInLink)
        try:
            self._path("link", code).unlink()
        except OSError:
            return None  # unknown, or another request was faster
        if link is None or not 0 <= now_ns - link.made_ns < LINK_NS:
            return None
        cookie = self._random(_BITS // 8)
        session = ConsoleSession(
            id=_digest(cookie)[:8], by=link.by, address=address, made_ns=now_ns, used_ns=now_ns
        )
        self._tidy()
        self._write("session", cookie, session)
        return cookie, session

    def session_of(self, cookie: str) -> ConsoleSession | None:
        """The session of a cookie, if it is still good."""
        session = _decoded(self._path("session", cookie), ConsoleSession)
        now_ns = self._clock.wall_ns()
        if session is None or session.over(now_ns):
            return None
        if now_ns - session.used_ns >= NOTED_NS:
            session = msgspec.structs.replace(session, used_ns=now_ns)
            with contextlib.suppress(OSError):  # a full disk ends no session
                self._write("session", cookie, session, there=True)
        return session

    def end(self, cookie: str) -> None:
        """End the session of a cookie."""
        self._path("session", cookie).unlink(missing_ok=True)

    def end_all(self) -> int:
        """End every session, and every link that was not used; how many sessions there were."""
        ended = 0
        for path in self._files("session", "link"):
            path.unlink(missing_ok=True)
            ended += path.name.startswith("session-")
        return ended

    def _tidy(self) -> None:
        """Delete what is over, and the oldest where there are too many."""
        now_ns = self._clock.wall_ns()
        for path in self._files("link"):
            link = _decoded(path, SignInLink)
            if link is None or not 0 <= now_ns - link.made_ns < LINK_NS:
                path.unlink(missing_ok=True)
        for path in self._files("session"):
            session = _decoded(path, ConsoleSession)
            if session is None or session.over(now_ns):
                path.unlink(missing_ok=True)
        for kind in ("link", "session"):
            left = sorted(self._files(kind), key=_written_ns)
            for path in left[: max(0, len(left) - MOST + 1)]:
                path.unlink(missing_ok=True)

    def _files(self, *kinds: str) -> list[Path]:
        return [path for kind in kinds for path in self._folder.glob(f"{kind}-*.json")]

    def _path(self, kind: str, secret: str) -> Path:
        return self._folder / f"{kind}-{_digest(secret)}.json"

    def _write(
        self, kind: str, secret: str, record: msgspec.Struct, *, there: bool = False
    ) -> None:
        """Write a file by rename; one that must be there already is not made anew."""
        path = self._path(kind, secret)
        if there and not path.exists():
            return  # it was ended meanwhile
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        put(path, _encode(record), unborn=own_name(path))


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _decoded(path: Path, kept: type[_Kept]) -> _Kept | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kept)
    except (OSError, msgspec.DecodeError):
        return None


def _written_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def link_address(host: str, port: int, code: str, base: str | None = None) -> str:
    """The link of a code: it stands behind the #, which browsers keep to themselves."""
    return f"{(base or reached_at(host, port)).rstrip('/')}/enter#{code}"
