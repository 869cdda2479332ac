"""One check of a case: what an answer has to be like, decided by the words of the answer alone.

| type | passes if | value |
|---|---|---|
| `exact` | the answer, without blanks around it, is the value | a text, or a list: any of them |
| `contains` | the value is somewhere in it | a text, or a list: any of them |
| `contains_all` | every value is somewhere in it | a list of texts |
| `starts_with` | it begins with the value | a text, or a list: any of them |
| `regex` | the expression is found somewhere in it | an expression of Python's `re` |
| `json` | it is one JSON document | none |
| `contains_json` | a JSON document is in it, that follows the schema where there is one | none, or a JSON schema |
| `json_schema` | it is one JSON document that follows the schema | a JSON schema |
| `finish` | it ended for that reason | stop, length, tool, filter or refusal, or a list of them |
| `program` | the program, with the answer at its standard input, exits with 0 | a command line |

`not` turns a check around, `ignore_case` is about texts and expressions. With `extract`, an
expression, the other checks look at its first group (at all of it where it has none) instead of the
whole answer; an answer without it does not pass.
"""  # noqa: E501 - a table

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

import msgspec

from lightgate.errors import UsageError
from lightgate.route.cascade.json_schema import unchecked_words

if TYPE_CHECKING:
    from pathlib import Path

CheckType = Literal[
    "exact",
    "contains",
    "contains_all",
    "starts_with",
    "regex",
    "json",
    "contains_json",
    "json_schema",
    "finish",
    "program",
]
TYPES: Final[tuple[str, ...]] = get_args(CheckType)
TEXTS: Final = frozenset(("exact", "contains", "contains_all", "starts_with"))
SCHEMAS: Final = frozenset(("json", "contains_json", "json_schema"))
FINISHES: Final = frozenset(("stop", "length", "tool", "filter", "refusal"))
TIME_LIMIT_S: Final = 10.0
_FIELDS: Final = frozenset(("type", "value", "not", "ignore_case", "extract", "time_limit_s"))


class CheckSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One check, ready to be held against answers."""

    type: CheckType
    values: tuple[str, ...] = ()  # any of them; a pattern; the words of a command
    schema: Any = None
    negated: bool = False
    ignore_case: bool = False
    extract: str | None = None
    time_limit_s: float = TIME_LIMIT_S  # of a program
    folder: str = "."  # where a program runs: that of the file of cases

    @property
    def name(self) -> str:
        """The check's name in a reason."""
        return f"not {self.type}" if self.negated else self.type


def read_check(place: str, tree: Any, folder: Path) -> CheckSpec:
    """Read one check of our own format; `place` is where it stands, for the message of an error."""
    if not isinstance(tree, dict):
        raise UsageError(f"{place} is not an object.", hint=_HINT)
    strange = sorted(set(tree) - _FIELDS)
    if strange:
        raise UsageError(f"{place} has the field {strange[0]!r}, which means nothing.", hint=_HINT)
    kind = tree.get("type")
    if kind not in TYPES:
        raise unsupported(place, kind)
    negated, ignore_case = tree.get("not", False), tree.get("ignore_case", False)
    if not isinstance(negated, bool) or not isinstance(ignore_case, bool):
        raise UsageError(f'{place}: "not" and "ignore_case" are true or false.')
    if kind == "program" and negated:
        raise UsageError(f"{place}: a program is not turned around: one that breaks would pass.")
    limit = tree.get("time_limit_s", TIME_LIMIT_S)
    if isinstance(limit, bool) or not isinstance(limit, int | float) or not 0 < limit <= 3600:
        raise UsageError(f'{place}: "time_limit_s" is no number of seconds from 0 to 3600.')
    spec = CheckSpec(
        type=kind,
        negated=negated,
        ignore_case=ignore_case,
        extract=tree.get("extract"),
        time_limit_s=float(limit),
        folder=str(folder),
    )
    return with_value(place, spec, tree.get("value"))


_HINT: Final = 'A check is {"type": "contains", "value": "Paris"}.'


def unsupported(place: str, kind: object) -> UsageError:
    """The error for a type of check that is not known here: it never passes silently."""
    return UsageError(
        f"{place}: checks of type {kind!r} are unsupported.", hint=f"There are {', '.join(TYPES)}."
    )


def with_value(place: str, spec: CheckSpec, value: Any) -> CheckSpec:
    """Put the value into a check, as its type takes it; what is wrong is said before a request."""
    if spec.extract is not None:
        compiled(place, spec.extract)
    if spec.type in SCHEMAS:
        return _with_schema(place, spec, value)
    if spec.type == "program":
        return msgspec.structs.replace(spec, values=_command(place, value))
    values = tuple(value) if isinstance(value, list) else (value,)
    if not values or not all(isinstance(one, str) and one.strip() for one in values):
        raise UsageError(f'{place}: "value" of {spec.type} is no text, and no list of texts.')
    if spec.type == "regex":
        if len(values) > 1:
            raise UsageError(f'{place}: "value" of regex is one expression.')
        compiled(place, values[0])
    if spec.type == "finish" and (wrong := sorted(set(values) - FINISHES)):
        known = ", ".join(sorted(FINISHES))
        raise UsageError(f"{place}: no answer finishes by {wrong[0]!r}.", hint=f"One of {known}.")
    return msgspec.structs.replace(spec, values=values)


def compiled(place: str, pattern: Any) -> re.Pattern[str]:
    """Compile an expression; UsageError says where one is wrong."""
    if not isinstance(pattern, str) or not pattern:
        raise UsageError(f"{place}: an expression is a text.")
    try:
        return re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as reason:
        raise UsageError(f"{place}: {pattern[:80]!r} is no expression: {reason}.") from None


def _with_schema(place: str, spec: CheckSpec, value: Any) -> CheckSpec:
    if value is None and spec.type != "json_schema":
        return spec
    if spec.type == "json":
        raise UsageError(f'{place}: "value" of json means nothing.', hint="Use json_schema.")
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except ValueError:
            value = None
    if not isinstance(value, dict):
        raise UsageError(f'{place}: "value" of {spec.type} is no JSON schema.')
    words = unchecked_words(value)
    if words:
        raise UsageError(
            f"{place}: {words[0]!r} of JSON schema is unsupported.",
            hint="A regex or a program check can look at what a schema cannot.",
        )
    return msgspec.structs.replace(spec, schema=value)


def _command(place: str, value: Any) -> tuple[str, ...]:
    try:
        words = shlex.split(value) if isinstance(value, str) else value
    except ValueError:
        words = None
    if not isinstance(words, list) or not words or not all(isinstance(one, str) for one in words):
        raise UsageError(
            f'{place}: "value" of program is no command line.',
            hint='Write "python3 check.py" or ["python3", "check.py"].',
        )
    return tuple(words)
