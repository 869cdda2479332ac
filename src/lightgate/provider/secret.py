"""A key that does not print itself."""

from __future__ import annotations

import hmac
from typing import NoReturn

from lightgate.errors import CredentialsError


class Secret:
    """An API key; shown as stars everywhere except through `reveal`.

    Surrounding white space is dropped (keys often come from files); anything that an HTTP header
    cannot carry is refused, so that a key can never add a header of its own.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str, *, origin: str = "the API key") -> None:
        text = value.strip()
        if not text:
            raise CredentialsError(f"{origin} is empty.")
        if not text.isascii() or any(c <= " " or c == "\x7f" for c in text):
            raise CredentialsError(
                f"{origin} holds a character that no API key has (a space, a line break, or not ASCII).",
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
