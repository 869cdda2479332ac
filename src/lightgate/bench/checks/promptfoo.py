"""Tests of promptfoo, as far as they are decided by the answer's words: YAML, JSON, JSONL, CSV.

Templates are filled in where they name a variable, `{{name}}`, and nothing else. Assertions that
ask a model, run code inside promptfoo, or score by weight are unsupported, and said to be.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from lightgate.bench.checks.spec import CheckSpec, with_value
from lightgate.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lightgate.bench.checks.spec import CheckType

# promptfoo's type: ours, and whether it ignores case.
_TYPES: Final[dict[str, tuple[CheckType, bool]]] = {
    "equals": ("exact", False),
    "contains": ("contains", False),
    "icontains": ("contains", True),
    "contains-any": ("contains", False),
    "icontains-any": ("contains", True),
    "contains-all": ("contains_all", False),
    "icontains-all": ("contains_all", True),
    "starts-with": ("starts_with", False),
    "regex": ("regex", False),
    "is-json": ("json_schema", False),
    "contains-json": ("contains_json", False),
    "finish-reason": ("finish", False),
}
_FINISHES: Final = {"tool_calls": "tool", "content_filter": "filter"}
_LISTED: Final = frozenset(("contains-any", "icontains-any", "contains-all", "icontains-all"))
_TEST: Final = frozenset(("description", "vars", "assert", "metadata"))
_ASSERT: Final = frozenset(("type", "value", "metric"))
_CONFIG: Final = frozenset(  # the rest of it does not change what is asked or checked
    (
        *(
            "prompts",
            "tests",
            "defaultTest",
            "description",
            "providers",
            "targets",
            "tags",
            "$schema",
        ),
        *("outputPath", "sharing", "writeLatestResults", "evaluateOptions", "commandLineOptions"),
    )
)
_NAMED: Final = re.compile(r"\{\{\s*([A-Za-z_][A-Za-z0-9_]*)\s*\}\}")
_COLUMN: Final = re.compile(r"__expected\d*")
_SHORT: Final = re.compile(r"(not-)?([a-z-]+(?:\([^)]*\))?):\s*(.*)", re.DOTALL)
_BARE: Final = re.compile(r"(not-)?(is|contains)-json")
_COLUMNS: Final = frozenset(("__description", "__metric"))
_METADATA: Final = "__metadata:"
_FILES: Final = frozenset((".txt", ".md", ".json"))  # in which prompts are
_PARTED: Final = re.compile(r"^---\s*$", re.MULTILINE)  # between the prompts of a file of text
Records = list[tuple[str, Any]]  # each with its place


class Template(NamedTuple):
    """A prompt with places for variables: a text, or a list of messages as JSON."""

    text: str

    def filled(self, place: str, values: dict[str, Any]) -> str:
        """Fill the variables in; UsageError where the template asks for more than that."""

        def of(found: re.Match[str]) -> str:
            if found[1] not in values:
                raise UsageError(f"{place}: the prompt names {found[1]!r}, which the test lacks.")
            return _variable(place, found[1], values[found[1]])

        rest = _NAMED.sub("", self.text)
        if "{{" in rest or "{%" in rest:
            raise UsageError(f"{place}: in templates only {{{{name}}}} is supported.")
        return _NAMED.sub(of, self.text)


class FooConfig(NamedTuple):
    """A configuration: its prompts, and its tests with their places."""

    templates: tuple[Template, ...]
    tests: list[tuple[str, dict[str, Any]]]


class FooTest(NamedTuple):
    """One test: what is sent, and its checks."""

    description: str
    messages: tuple[dict[str, Any], ...]
    checks: tuple[CheckSpec, ...]


def of_config(path: Path, tree: Any, read: Callable[[Path], Records]) -> FooConfig:
    """Read a configuration: `prompts`, `tests` and `defaultTest`; `read` reads a file of tests."""
    if not isinstance(tree, dict) or not isinstance(tree.get("tests"), list | str):
        raise UsageError(f"{path} is no configuration of promptfoo with a list of tests.")
    _known(str(path), tree, _CONFIG)
    default = tree.get("defaultTest") or {}
    if not isinstance(default, dict):
        raise UsageError(f"{path}: a defaultTest in another file is unsupported.")
    prompts = tree.get("prompts") or ["{{prompt}}"]
    listed = prompts if isinstance(prompts, list) else [prompts]
    templates = tuple(
        template
        for at, one in enumerate(listed, 1)
        for template in _templates(f"{path}: prompt {at}", one, path.parent)
    )
    tests = []
    for place, test in _listed(path, tree["tests"], read):
        if not isinstance(test, dict):
            raise UsageError(f"{place} is no test.")
        both = {**default, **test}
        both["vars"] = {**_table(place, default, "vars"), **_table(place, test, "vars")}
        both["assert"] = [*_list(place, default, "assert"), *_list(place, test, "assert")]
        tests.append((place, both))
    return FooConfig(templates, tests)


def _listed(path: Path, tests: list[Any] | str, read: Callable[[Path], Records]) -> Records:
    """List the tests, those in files of their own among them."""
    found: Records = []
    for at, test in enumerate([tests] if isinstance(tests, str) else tests, 1):
        if isinstance(test, str):
            file = path.parent / test.removeprefix("file://")
            if not file.is_file():
                raise UsageError(f"{path}: the tests in {test} cannot be read.")
            found += read(file)
        else:
            found.append((f"{path}: test {at}", test))
    return found


def _templates(place: str, prompt: Any, folder: Path) -> list[Template]:
    """Read a prompt of the configuration; a file of text may hold several, between lines of ---."""
    text = prompt.get("raw") if isinstance(prompt, dict) else prompt
    if not isinstance(text, str) or not text.strip():
        raise UsageError(f"{place} is no text.")
    bare = "\n" not in text and folder.joinpath(text).suffix in _FILES
    if not text.startswith("file://") and not (bare and folder.joinpath(text).is_file()):
        return [Template(text)]
    file = folder / text.removeprefix("file://")
    if file.suffix not in _FILES:
        raise UsageError(f"{place}: a prompt in a {file.suffix or 'nameless'} file is unsupported.")
    read = _read(place, file)
    parts = _PARTED.split(read) if file.suffix == ".txt" else [read]
    return [Template(part.strip()) for part in parts if part.strip()]


def _read(place: str, file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as reason:
        raise UsageError(f"{place}: {file} cannot be read: {reason}.") from None


def of_test(place: str, tree: dict[str, Any], template: Template, folder: Path) -> FooTest:
    """Read one test; of a row of CSV the columns `__expected…` are its checks."""
    _known(place, tree, _TEST)
    values = _table(place, tree, "vars")
    asserts = _list(place, tree, "assert")
    description = tree.get("description") or ""
    columns = {name: values[name] for name in values if name.startswith("__")}
    for name, value in columns.items():
        if _COLUMN.fullmatch(name):
            asserts.append(_short(value))
        elif name not in _COLUMNS and not name.startswith(_METADATA):
            raise UsageError(f"{place}: the column {name!r} is unsupported.")
    description = columns.get("__description", description)
    if not isinstance(description, str):
        raise UsageError(f"{place}: the description is no text.")
    if not asserts:
        raise UsageError(
            f"{place}: this test has no assertion: it would pass whatever is answered."
        )
    named = {name: value for name, value in values.items() if name not in columns}
    text = template.filled(place, named)
    checks = [_check(f"{place}: assert {at}", one, folder) for at, one in enumerate(asserts, 1)]
    return FooTest(description, _messages(text), tuple(checks))


def _short(text: str) -> dict[str, Any]:
    """Read an assertion as a cell of CSV has it: `type: value`, or the text that is wanted."""
    if _BARE.fullmatch(text.strip()):
        return {"type": text.strip()}
    found = _SHORT.fullmatch(text.strip())
    if found is None:
        return {"type": "equals", "value": text}
    kind = found[2]
    listed = kind in _LISTED
    value: Any = [part.strip() for part in found[3].split(",")] if listed else found[3]
    return {"type": f"{found[1] or ''}{kind}", **({"value": value} if value else {})}


def _check(place: str, tree: Any, folder: Path) -> CheckSpec:
    if not isinstance(tree, dict):
        raise UsageError(f"{place} is not an object.")
    kind = tree.get("type")
    named = kind.removeprefix("not-") if isinstance(kind, str) else None
    if named not in _TYPES:
        known = ", ".join(_TYPES)
        raise UsageError(
            f"{place}: assertions of type {kind!r} are unsupported.",
            hint=f"There are {known}, each with not- before it as well; Lightgate asks no model to"
            " judge another.",
        )
    _known(place, tree, _ASSERT)
    ours, ignore_case = _TYPES[named]
    value = tree.get("value")
    if isinstance(value, str) and value.startswith("file://"):
        value = _schema_file(place, value, folder, named)
    if isinstance(value, str) and ("{{" in value or "{%" in value):
        raise UsageError(f"{place}: a template in an assertion is unsupported.")
    if named == "finish-reason":
        value = _FINISHES.get(value, value) if isinstance(value, str) else value
    if ours == "json_schema" and value is None:
        ours = "json"
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    spec = CheckSpec(type=ours, ignore_case=ignore_case, negated=kind != named, folder=str(folder))
    return with_value(place, spec, value)


def _schema_file(place: str, value: str, folder: Path, named: str) -> Any:
    file = folder / value.removeprefix("file://")
    if named not in {"is-json", "contains-json"} or file.suffix != ".json":
        raise UsageError(f"{place}: a value in the file {file.name} is unsupported.")
    return _read(place, file)


def _messages(text: str) -> tuple[dict[str, Any], ...]:
    """The messages of a filled template: those of its JSON, or one of the user."""
    if text.lstrip().startswith("["):
        try:
            found = msgspec.json.decode(text)
        except (ValueError, RecursionError):
            found = None
        if isinstance(found, list) and all(
            isinstance(one, dict) and "role" in one for one in found
        ):
            return tuple(found)
    return ({"role": "user", "content": text},)


def _variable(place: str, name: str, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise UsageError(f"{place}: the variable {name!r} is no text: lists are unsupported.")
    if isinstance(value, str) and value.startswith("file://"):
        raise UsageError(f"{place}: the variable {name!r} is in a file, which is unsupported.")
    return str(value)


def _known(place: str, tree: dict[str, Any], known: frozenset[str]) -> None:
    strange = sorted(str(name) for name in set(tree) - known)
    if strange:
        raise UsageError(
            f"{place}: the field {strange[0]!r} is unsupported.",
            hint=f"There are {', '.join(sorted(known))}.",
        )


def _table(place: str, tree: dict[str, Any], name: str) -> dict[str, Any]:
    found = tree.get(name) or {}
    if not isinstance(found, dict):
        raise UsageError(f"{place}: {name!r} is no table.")
    return found


def _list(place: str, tree: dict[str, Any], name: str) -> list[Any]:
    found = tree.get(name) or []
    if not isinstance(found, list):
        raise UsageError(f"{place}: {name!r} is no list.")
    return list(found)
