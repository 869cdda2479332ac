"""Fields of a client's request that a target is not told, and how a header names them.

A field that a target cannot be told is dropped and named, or the request is refused, as its model
says (`untranslatable` in the configuration). A field without which the answer would mean something
else is refused in any case, by an `Untranslatable` of its own.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from lightgate.dialect.errors import Untranslatable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lightgate.dialect.request import Request

MOST: Final = 48  # fields that a header names
_MOST_PATHS: Final = 1000  # that are noted; a request may leave out the same in every message
_LONGEST: Final = 120  # characters of one of them
_INDEX: Final = re.compile(r"\[\d+\]")
_ODD: Final = re.compile(r"[^!-+\--~]")  # what may not stand in the header, and its comma
_HINT: Final = "Leave {!r} out, or ask for a model with a target that takes it."


class Omissions:
    """The fields of one request that its target is not told, in the order in which they came up.

    `dialect` is the target's, in words, and `places` has the client's own path of a neutral fact;
    both are there while a request is built.
    """

    __slots__ = ("_dialect", "_paths", "_places", "refuses")

    def __init__(
        self, *, refuses: bool, dialect: str = "", places: Mapping[str, str] | None = None
    ) -> None:
        self.refuses = refuses
        self._dialect = dialect
        self._places = places or {}
        self._paths: dict[str, None] = {}

    @classmethod
    def of(cls, request: Request, dialect: str) -> Omissions:
        """Make the omissions of a request that is about to be built in a dialect."""
        refuses = request.untranslatable == "refuse"
        return cls(refuses=refuses, dialect=dialect, places=request.places)

    def unsaid(self, request: Request, *facts: str) -> None:
        """Drop those facts that the request states, though the dialect has no words for them."""
        for fact in facts:
            value = getattr(request, fact)
            if value is not None and value is not False and value != ():  # zero is a wish, too
                self.drop(fact)

    @property
    def paths(self) -> tuple[str, ...]:
        """The client's JSON paths, each once."""
        return tuple(self._paths)

    def drop(self, field: str, why: str = "") -> None:
        """Leave out a field that says how to answer; Untranslatable where the model says so."""
        if self.refuses:
            raise self.cannot(field, why)
        self.leave(field)

    def cannot(self, field: str, why: str = "") -> Untranslatable:
        """Make the error for a field that the target cannot be told."""
        hint = _HINT.format(field) if self._dialect else ""
        return Untranslatable(field, why, dialect=self._dialect, hint=hint)

    def leave(self, field: str) -> None:
        """Leave out a field that has no effect on what the answer says: labels, hints to caches."""
        if len(self._paths) < _MOST_PATHS:
            self._paths[self._places.get(field, field)] = None


def listed(paths: Iterable[str]) -> bytes:
    """Write paths as the value of a header; those that differ by an index alone become one."""
    forms: dict[str, list[str]] = {}
    for path in paths:
        forms.setdefault(_INDEX.sub("[*]", path), []).append(path)
    names = [one[0] if len(one) == 1 else form for form, one in forms.items()]
    shown = [_ODD.sub("?", name)[:_LONGEST] for name in names[:MOST]]
    if len(names) > MOST:
        shown.append(f"+{len(names) - MOST}")
    return ", ".join(shown).encode("ascii")
