"""Takes a client's JSON objects apart, field by field, so that nothing in them is overlooked."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from lightgate.dialect.facts import Untranslatable
from lightgate.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

_LONGEST: Final = 200  # characters of a path in an error
_SNAKE: Final = re.compile(r"(?<=[a-z0-9])_([a-z0-9])")


class BadField(UsageError):  # noqa: N818 - names what is wrong
    """A field is missing or of the wrong kind; `field` is its JSON path."""

    def __init__(self, field: str, why: str) -> None:
        self.field = field[:_LONGEST] or "body"
        name = f"field {self.field!r}" if field else "request body"
        super().__init__(f"The {name} {why}.")


class Sheet:
    """The facts found so far, and where the client said each of them."""

    def __init__(self) -> None:
        self.facts: dict[str, Any] = {}
        self.places: dict[str, str] = {}

    def put(self, fact: str, value: Any, place: str) -> None:
        """Note a fact, unless there is none."""
        if value is not None and value != ():
            self.facts[fact] = value
            self.places[fact] = place


class Fields:
    """One JSON object; a field is taken once, null is none, and `done` refuses what is left.

    With `camel`, names in snake_case are read as camelCase, as Google's servers do.
    """

    __slots__ = ("_camel", "_left", "place")

    def __init__(self, value: Any, place: str, *, camel: bool = False) -> None:
        if not isinstance(value, dict):
            raise BadField(place, "must be an object")
        self.place = place
        self._camel = camel
        self._left: dict[str, Any] = dict(value)
        if camel:
            self._left = {_SNAKE.sub(lambda m: m[1].upper(), k): v for k, v in value.items()}
            if len(self._left) != len(value):
                raise BadField(place, "has a field twice, in snake_case and in camelCase")

    def at(self, name: str) -> str:
        """Return the path of one of the fields."""
        return f"{self.place}.{name}" if self.place else name

    def take(self, name: str) -> Any:
        """Take a field as it is; None if it is absent."""
        return self._left.pop(name, None)

    def peek(self, name: str) -> Any:
        """Look at a field without taking it."""
        return self._left.get(name)

    def text(self, name: str) -> str | None:
        """Take a string."""
        value = self.take(name)
        if value is not None and not isinstance(value, str):
            raise BadField(self.at(name), "must be a string")
        return value

    def need_text(self, name: str) -> str:
        """Take a string that must be there."""
        value = self.text(name)
        if value is None:
            raise BadField(self.at(name), "is needed")
        return value

    def flag(self, name: str) -> bool | None:
        """Take true or false."""
        value = self.take(name)
        if value is not None and not isinstance(value, bool):
            raise BadField(self.at(name), "must be true or false")
        return value

    def number(self, name: str) -> float | None:
        """Take a number."""
        value = self.take(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise BadField(self.at(name), "must be a number")
        return value

    def whole(self, name: str) -> int | None:
        """Take a whole number; 64.0 is one."""
        value = self.number(name)
        if value is None:
            return None
        whole = int(value)
        if whole != value:
            raise BadField(self.at(name), "must be a whole number")
        return whole

    def json(self, name: str) -> dict[str, Any] | None:
        """Take an object as it is, to be handed on."""
        value = self.take(name)
        if value is not None and not isinstance(value, dict):
            raise BadField(self.at(name), "must be an object")
        return value

    def list(self, name: str) -> list[Any]:
        """Take a list, empty where there is none."""
        value = self.take(name)
        if value is None:
            return []
        if not isinstance(value, list):
            raise BadField(self.at(name), "must be a list")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """Take a list of strings."""
        found = self.list(name)
        for number, item in enumerate(found):
            if not isinstance(item, str):
                raise BadField(f"{self.at(name)}[{number}]", "must be a string")
        return tuple(found)

    def object(self, name: str) -> Fields | None:
        """Take an object to be taken apart."""
        value = self.take(name)
        return None if value is None else Fields(value, self.at(name), camel=self._camel)

    def need_object(self, name: str) -> Fields:
        """Take an object that must be there."""
        value = self.object(name)
        if value is None:
            raise BadField(self.at(name), "is needed")
        return value

    def objects(self, name: str) -> Iterator[Fields]:
        """Take a list of objects to be taken apart."""
        for number, item in enumerate(self.list(name)):
            yield Fields(item, f"{self.at(name)}[{number}]", camel=self._camel)

    def ignore(self, *names: str) -> None:
        """Leave fields out that have no effect on the answer."""
        for name in names:
            self.take(name)

    def only(self, name: str, *plain: Any) -> None:
        """Take a field that may only say what goes without saying; anything else is refused."""
        value = self.take(name)
        if value is not None and not any(
            value == word and isinstance(value, bool) == isinstance(word, bool) for word in plain
        ):
            raise Untranslatable(self.at(name))

    def refuse(self, name: str, why: str = "") -> None:
        """Refuse a field if it is there; unknown fields are refused by `done` in any case."""
        if self.peek(name) is not None:
            raise Untranslatable(self.at(name), why)

    def done(self) -> None:
        """Refuse the first field that nobody took."""
        for name, value in self._left.items():
            if value is not None:
                raise Untranslatable(self.at(name))
