"""API keys, held so that they are never printed."""

from __future__ import annotations

import hmac
import re
from typing import TYPE_CHECKING, NoReturn

from lightgate.errors import CredentialsError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Secret:
    """An API key; shown as stars everywhere except through `reveal`.

    Surrounding white space is dropped (keys often come from files); anything that an HTTP header
    cannot carry is refused, so that a key can never add a header of its own. `line`: the whole
    value of a header, such as "Basic abc", which may hold spaces.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str, *, origin: str = "the API key", line: bool = False) -> None:
        text = value.strip()
        if not text:
            raise CredentialsError(f"{origin} is empty.")
        lowest = " " if line else "!"
        if not text.isascii() or any(c < lowest or c == "\x7f" for c in text):
            raise CredentialsError(
                f"{origin} holds a character that no key has: a space, a line break or not ASCII.",
                hint="Copy the key again; one line, no quotes.",
            )
        self._value = text

    def reveal(self) -> str:
        """The key itself, for the request's header and nothing else."""
        return self._value

    def __repr__(self) -> str:
        return "Secret(***)"

    def __str__(self) -> str:
        return "***"

    def __format__(self, spec: str) -> str:
        return format("***", spec)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._value, other._value)

    def __hash__(self) -> int:
        return hash((Secret, self._value))

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Secret is never serialised")


def first_set(names: Iterable[str], env: Mapping[str, str]) -> str | None:
    """The first of these variables that holds something."""
    return next((name for name in names if env.get(name, "").strip()), None)


def key_from_env(name: str, env: Mapping[str, str], *, line: bool = False) -> Secret:
    """The key in one environment variable; `line`: the whole value of a header."""
    if not _ENV_NAME.fullmatch(name):
        # The text is not repeated: it may be the key itself, typed in the wrong place.
        raise UsageError(
            "A key is named by its environment variable, and this is not the name of one.",
            hint="Put the key into a variable, and name the variable.",
        )
    if first_set((name,), env) is None:
        raise CredentialsError(
            f"The environment variable {name} is not set.", hint=f"export {name}=..."
        )
    return Secret(env[name], origin=f"The key in {name}", line=line)
