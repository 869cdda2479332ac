"""Finding, reading and checking `lightgate.toml`: every problem at once, each with its place."""

from __future__ import annotations

import difflib
import re
import sys
import tomllib
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_args

from lightgate.config.toml_text import key_path, line_numbers, line_of
from lightgate.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lightgate.config.model import Config

FILE_NAME: Final = "lightgate.toml"
SYSTEM_FILE: Final = Path("/etc/lightgate") / FILE_NAME
# What Pydantic calls by the types of Python, in the words of TOML.
_TABLES: Final = frozenset({"model_type", "dict_type", "model_attributes_type"})
_IN_TOML: Final = {
    "missing": "this key is needed",
    "tuple_type": 'should be a list, such as ["a", "b"]',
    "list_type": 'should be a list, such as ["a", "b"]',
    "string_type": "should be text in quotes",
    "int_type": "should be a whole number",
    "int_parsing": "should be a whole number",
    "int_from_float": "should be a whole number",
    "float_type": "should be a number",
    "float_parsing": "should be a number",
    "bool_type": "should be true or false",
    "bool_parsing": "should be true or false",
}
_AT_LINE = re.compile(r"^(.*?) \(at line (\d+), column (\d+)\)$", re.DOTALL)

_MORE_THAN_A_VALUE = ("missing", "model_type", "dict_type")  # what is needed, or must be a table


def find_config(
    explicit: Path | None, *, env: Mapping[str, str], cwd: Path, system: Path = SYSTEM_FILE
) -> Path | None:
    """The file to read: flag, $LIGHTGATE_CONFIG, working folder, user's folder, system's folder."""
    if explicit is None and env.get("LIGHTGATE_CONFIG"):
        explicit = Path(env["LIGHTGATE_CONFIG"])
    if explicit is not None:
        if not explicit.is_file():
            raise ConfigError(f"There is no configuration file {explicit}.")
        return explicit
    places = (cwd / FILE_NAME, user_folder(env) / FILE_NAME, system)
    return next((place for place in places if place.is_file()), None)


def user_folder(env: Mapping[str, str]) -> Path:
    """The folder of this user's configuration, by the platform's custom."""
    home = Path(env.get("HOME") or Path.home())
    if sys.platform == "darwin":
        return home / "Library" / "Application Support" / "lightgate"
    return Path(env.get("XDG_CONFIG_HOME") or home / ".config") / "lightgate"


def load_config(path: Path) -> Config:
    """Read and check one file."""
    if path.is_fifo():  # which would be waited for
        raise ConfigError(f"The configuration file {path} cannot be read: it is a pipe.")
    return parse_config(read_text(path), name=str(path))


def read_text(path: Path) -> str:
    """The text of a configuration file, of ours or to be imported."""
    try:
        return path.read_text("utf-8-sig")  # some editors write a mark at the beginning
    except (OSError, UnicodeDecodeError) as reason:
        said = reason.strerror if isinstance(reason, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"The configuration file {path} cannot be read: {said}.") from None


def parse_config(text: str, *, name: str = FILE_NAME) -> Config:
    """Check the text of a file; `name` is its name in problems."""
    from pydantic import ValidationError

    from lightgate.config.model import Config

    try:
        data = tomllib.loads(text, parse_float=Decimal)
    except tomllib.TOMLDecodeError as reason:
        raise ConfigError(
            f"{name} is not valid TOML.", problems=(_syntax_problem(name, str(reason), text),)
        ) from None
    try:
        return Config.model_validate(data)
    except ValidationError as errors:
        lines = line_numbers(text)
        found = sorted(
            {
                (line_of(lines, error["loc"]), key_path(error["loc"]), _sentence(error))
                for error in errors.errors(include_url=False, include_context=True)
            }
        )
        problems = tuple(f"{name}:{line}: {key}: {said}" for line, key, said in found)
        count = f"{len(problems)} problems" if len(problems) > 1 else "a problem"
        raise ConfigError(f"{name} has {count}.", problems=problems) from None


def sound_part(text: str) -> Config | None:
    """Read a file of which single values are wrong, with the defaults in their place.

    Returns None where more than single values would have to be left out: what names them would
    then look wrong, too.
    """
    from pydantic import ValidationError

    from lightgate.config.model import Config

    try:
        data = tomllib.loads(text, parse_float=Decimal)
        Config.model_validate(data)
    except tomllib.TOMLDecodeError:
        return None
    except ValidationError as errors:
        for error in errors.errors(include_url=False):
            if error["type"] in _MORE_THAN_A_VALUE or not _left_out(data, error["loc"]):
                return None
    try:
        return Config.model_validate(data)
    except ValidationError:
        return None


def _left_out(data: dict[str, Any], path: Sequence[str | int]) -> bool:
    """Take one value out of nested tables; return whether there was a value that is no table."""
    table: Any = data
    for part in path[:-1]:
        table = table.get(part) if isinstance(table, dict) else None
    if not isinstance(table, dict) or isinstance(table.get(str(path[-1])), dict):
        return False
    return table.pop(str(path[-1]), None) is not None


def config_schema() -> dict[str, Any]:
    """JSON Schema of the file, for editors."""
    from lightgate.config.model import Config

    return Config.model_json_schema()


def _syntax_problem(name: str, message: str, text: str) -> str:
    match = _AT_LINE.match(message)
    if match is None:  # "(at end of document)"
        return f"{name}:{len(text.splitlines()) or 1}: {message}"
    return f"{name}:{match[2]}:{match[3]}: {match[1]}"


def _sentence(error: Mapping[str, Any]) -> str:
    """A problem in our own words; the value is never repeated, because it may be a secret."""
    kind, context = error["type"], error.get("ctx", {})
    if kind == "extra_forbidden":
        return f"unknown key{_near(str(error['loc'][-1]), _known_keys(error['loc'][:-1]))}"
    if kind == "too_short":
        return f"needs at least {context['min_length']}"
    if kind == "value_error":
        return str(context.get("error", error["msg"]))
    if kind == "literal_error":
        choices = re.findall(r"'([^']*)'", str(context.get("expected", "")))
        return f"one of {', '.join(choices)}{_near(str(error['input']), choices)}"
    if kind in _TABLES:
        return f"should be a table: [{'.'.join(map(str, error['loc']))}] with its keys below"
    return _IN_TOML.get(kind) or str(error["msg"]).replace("Input should be", "should be")


def _near(word: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _known_keys(path: Sequence[str | int]) -> list[str]:
    """The keys that the table at `path` has."""
    from lightgate.config.model import Config, ConfigTable

    table: type[ConfigTable] = Config
    for part in path:
        field = table.model_fields.get(str(part))
        inner = _table_in(field.annotation) if field is not None else None
        table = inner or table
    return list(table.model_fields)


def _table_in(annotation: Any) -> Any:
    """The table class inside `X | None`, `dict[str, X]` or `tuple[X, ...]`."""
    from lightgate.config.model import ConfigTable

    if isinstance(annotation, type) and issubclass(annotation, ConfigTable):
        return annotation
    return next((found for arg in get_args(annotation) if (found := _table_in(arg))), None)
