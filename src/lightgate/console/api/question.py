"""Parameters of the API: which there are, and what a query string says with them.

A value that cannot be understood is refused; a name that an endpoint does not know is told in the
answer as ignored, so that a misspelt filter is seen.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple
from urllib.parse import parse_qsl

import msgspec

from lightgate.errors import LightgateError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Kind = Literal["time", "names", "choice", "count", "amount", "text"]
LONGEST_S: Final = 400 * 86_400  # as long as sums are kept
MOST_NAMES: Final = 50
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_AMOUNT: Final = re.compile(r"\d{1,9}(\.\d{1,9})?")
_AGO: Final = re.compile(r"-(\d{1,7})([smhd])")


class BadQuestion(LightgateError):  # noqa: N818 - names the event
    """A parameter has a value that the API does not understand."""

    label = "question"


class Parameter(NamedTuple):
    """One parameter of a query; `names` may be given several times."""

    name: str
    kind: Kind
    about: str
    default: str = ""
    choices: tuple[str, ...] = ()
    most: int = 1_000_000


class Period(msgspec.Struct, frozen=True):
    """A time from a second up to another one; it is open where nothing can be newer than it."""

    start_s: int
    stop_s: int
    is_open: bool = False

    @property
    def end_s(self) -> int:
        """The first second that is no part of it; the one that runs is a part of an open one."""
        return self.stop_s + self.is_open

    def texts(self) -> tuple[str, str]:
        """Both ends, as RFC 3339 in UTC."""
        return rfc3339(self.start_s), rfc3339(self.stop_s)


class Question(msgspec.Struct, frozen=True):
    """What a query asks for, by the parameters of its endpoint."""

    values: dict[str, Any]
    ignored: tuple[str, ...]
    period: Period

    def names(self, name: str) -> tuple[str, ...]:
        """The values of a parameter that may be given several times."""
        found: tuple[str, ...] = self.values[name]
        return found

    def text(self, name: str) -> str:
        """The value of a parameter, empty where it was not given and has no default."""
        return str(self.values[name])

    def count(self, name: str) -> int:
        """The number that a parameter has; 0 where it was not given and has no default."""
        return int(self.values[name] or 0)

    def amount(self, name: str) -> Decimal | None:
        """The decimal number above 0 that a parameter has; None where it was not given."""
        found: Decimal | None = self.values[name]
        return found


def rfc3339(second: int) -> str:
    """A second since the epoch, as RFC 3339 in UTC."""
    return f"{datetime.fromtimestamp(second, UTC):%Y-%m-%dT%H:%M:%SZ}"


def read_question(query: str, parameters: Sequence[Parameter], now_ns: int) -> Question:
    """Read a query string; BadQuestion names the first value that is not understood."""
    given: dict[str, list[str]] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        given.setdefault(name, []).append(value)
    known = {parameter.name: parameter for parameter in parameters}
    now_s = now_ns // 1_000_000_000
    values = {name: _value(one, given.get(name, []), now_s) for name, one in known.items()}
    ignored = tuple(name[:64] for name in given if name not in known)[:MOST_NAMES]
    return Question(values, ignored, _period(values, now_s))


def _value(parameter: Parameter, given: list[str], now_s: int) -> Any:
    said = [value for value in given if value] or ([parameter.default] if parameter.default else [])
    if parameter.kind == "names":
        if len(said) > min(MOST_NAMES, parameter.most):
            raise BadQuestion(f"{parameter.name} was given more than {parameter.most} times.")
        return tuple(said)
    text = said[-1] if said else ""
    if parameter.kind == "time":
        return _second(parameter.name, text, now_s)
    if parameter.kind == "count":
        return _count(parameter, text)
    if parameter.kind == "amount":
        return _amount(parameter, text)
    if parameter.kind == "choice" and text not in parameter.choices:
        words = ", ".join(choice for choice in parameter.choices if choice)
        raise BadQuestion(f"{parameter.name} is one of {words}.")
    return text


def _count(parameter: Parameter, text: str) -> int:
    if not text:
        return 0
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise BadQuestion(f"{parameter.name} is a whole number.")
    if int(text) > parameter.most:
        raise BadQuestion(f"{parameter.name} is at most {parameter.most}.")
    return int(text)


def _amount(parameter: Parameter, text: str) -> Decimal | None:
    if not text:
        return None
    if not text.isascii() or not _AMOUNT.fullmatch(text) or not 0 < Decimal(text) <= parameter.most:
        raise BadQuestion(f"{parameter.name} is a number above 0 and at most {parameter.most:,}.")
    return Decimal(text)


def _second(name: str, text: str, now_s: int) -> int:
    """A second since the epoch: of "now", of "-14d", or of an RFC 3339 time."""
    if text == "now":
        return now_s
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return max(0, now_s - int(ago[1]) * _UNITS[ago[2]])
    try:
        at = datetime.fromisoformat(text)
        return max(0, int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()))
    except (ValueError, OverflowError):
        raise BadQuestion(
            f"{name} is a time like 2026-11-16T10:00:00Z, or like -24h, -14d or now."
        ) from None


def _period(values: Mapping[str, Any], now_s: int) -> Period:
    start, stop = values.get("from", now_s), values.get("to", now_s)
    if start > stop:
        raise BadQuestion("from lies behind to.")
    if stop - start > LONGEST_S:
        raise BadQuestion(f"A period has at most {LONGEST_S // 86_400} days.")
    return Period(start, stop, stop >= now_s)
