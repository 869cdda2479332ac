"""The user's own cases: a prompt, and what its answer has to be like.

A file is JSON lines, one JSON list, CSV, or YAML of promptfoo. What one record is, its fields say:

    check            our own: {"id", "prompt" or "messages", "check": [...], "tags", "max_tokens"}
    assert, vars     a test of promptfoo (see `promptfoo`)
    target           a sample of Inspect: the target, or any of a list, is in the answer
    ideal            a sample of OpenAI's evals: the answer begins with it, or with any of a list
    expected_output  a golden of deepeval: the answer is it

A case without a check is an error, and so is a field that means nothing here: a check that is not
made would count as one that passed.
"""

from __future__ import annotations

import csv
import hashlib
import io
import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lightgate.bench.checks.promptfoo import FooConfig, Template, of_config, of_test
from lightgate.bench.checks.spec import CheckSpec, read_check, with_value
from lightgate.bench.workload.prompts import OwnPrompt, OwnPrompts, read_object, read_text
from lightgate.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from lightgate.bench.checks.spec import CheckType

_OWN: Final = frozenset(("id", "prompt", "messages", "max_tokens", "check", "tags"))
# Fields that name the wanted answer in formats of others, and what they are checked as there.
_WANTED: Final[dict[str, tuple[CheckType, bool]]] = {
    "target": ("contains", True),  # Inspect's `includes`, which ignores case
    "ideal": ("starts_with", False),  # the basic match of OpenAI's evals
    "expected_output": ("exact", False),  # deepeval's exact match
}
_THEIRS: Final = frozenset(("id", "input", "metadata", *_WANTED))
_MARKS: Final = ("check", "assert", "vars", *_WANTED)
_YAML_BOOLEAN: Final = "tag:yaml.org,2002:bool"
_BOOLEAN: Final = re.compile(r"true|True|TRUE|false|False|FALSE")
_HINT: Final = 'Write {"prompt": "...", "check": [{"type": "contains", "value": "..."}]}.'


class CheckCase(msgspec.Struct, frozen=True, kw_only=True):
    """One case: what is asked, and the checks that its answer has to pass, all of them."""

    id: str
    prompt: OwnPrompt
    checks: tuple[CheckSpec, ...]
    tags: tuple[str, ...] = ()


class CaseSet(msgspec.Struct, frozen=True, kw_only=True):
    """The cases of a file, in its order."""

    source: str
    sha256: str
    cases: tuple[CheckCase, ...]

    @property
    def prompts(self) -> OwnPrompts:
        """The prompts of the cases, for the workload of a run."""
        return OwnPrompts(source=self.source, prompts=tuple(case.prompt for case in self.cases))

    @property
    def programs(self) -> list[CheckSpec]:
        """The checks that run a program of the user's."""
        return [one for case in self.cases for one in case.checks if one.type == "program"]


def read_cases(path: Path) -> CaseSet:
    """Read a file of cases; UsageError names the place of the first thing that is wrong."""
    cases = tuple(_cases(path))
    if not cases:
        raise UsageError(f"{path} holds no case.", hint=_HINT)
    seen: set[str] = set()
    for case in cases:
        if case.id in seen:
            raise UsageError(f"{path}: two cases have the id {case.id!r}.")
        seen.add(case.id)
    return CaseSet(source=path.name, sha256=_hash(cases), cases=cases)


def _hash(cases: tuple[CheckCase, ...]) -> str:
    """SHA-256 over what is asked and checked, wherever it was read from."""
    digest = hashlib.sha256()
    for case in cases:
        checks = tuple(msgspec.structs.replace(check, folder="") for check in case.checks)
        digest.update(msgspec.json.encode(msgspec.structs.replace(case, checks=checks)))
    return digest.hexdigest()


def _cases(path: Path) -> Iterator[CheckCase]:
    found = _listed(path, read_text(path, "cases"))
    if isinstance(found, dict):
        return _of_promptfoo(path, of_config(path, found, _tests))
    return _records(path, found)


def _tests(file: Path) -> list[tuple[str, Any]]:
    """Read a file of tests that a configuration of promptfoo names."""
    found = _listed(file, read_text(file, "tests"))
    return found if isinstance(found, list) else [(str(file), found)]


def _listed(path: Path, text: str) -> list[tuple[str, Any]] | dict[str, Any]:
    """Read the records of a file with their places, or the one table that it is."""
    if path.suffix == ".csv":
        return _csv(path, text)
    whole: Any = None
    if path.suffix in {".yaml", ".yml"}:
        whole = _yaml(path, text)
    elif text.lstrip()[:1] == "[" or (path.suffix == ".json" and text.lstrip()[:1] == "{"):
        whole = _json(str(path), text)
    else:
        lines = enumerate(text.split("\n"), 1)
        return [(f"{path}:{at}", _json(f"{path}:{at}", line)) for at, line in lines if line.strip()]
    if isinstance(whole, list):
        return [(f"{path}: item {at}", item) for at, item in enumerate(whole, 1)]
    return whole if isinstance(whole, dict) else {}


def _json(place: str, text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (ValueError, RecursionError):
        raise UsageError(f"{place}: this is not JSON.", hint=_HINT) from None


def _yaml(path: Path, text: str) -> Any:
    """Read YAML as its version 1.2 has it, where yes, no, on and off are words and no booleans."""
    import yaml

    class Loader(yaml.SafeLoader):
        pass

    Loader.yaml_implicit_resolvers = {
        first: [pair for pair in pairs if pair[0] != _YAML_BOOLEAN]
        for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    Loader.add_implicit_resolver(_YAML_BOOLEAN, _BOOLEAN, list("tTfF"))
    try:
        return yaml.load(text, Loader)  # noqa: S506 - it is a safe loader
    except (yaml.YAMLError, ValueError, RecursionError) as reason:
        raise UsageError(f"{path} is no YAML: {str(reason)[:200]}.") from None


def _csv(path: Path, text: str) -> list[tuple[str, dict[str, Any]]]:
    """Read the rows; promptfoo's own columns become the checks of a test, the others its vars."""
    try:
        rows = list(csv.DictReader(io.StringIO(text, newline=""), strict=True))
    except csv.Error as reason:
        raise UsageError(f"{path} is no CSV: {reason}.") from None
    found = []
    for at, row in enumerate(rows, 2):
        if None in row or None in row.values():
            raise UsageError(f"{path}: row {at} has not as many columns as the header.")
        named = {name: value for name, value in row.items() if value != "" or name in _WANTED}
        theirs = any(name.startswith("__") for name in row)
        found.append((f"{path}: row {at}", {"vars": named} if theirs else dict(named)))
    return found


def _of_promptfoo(path: Path, config: FooConfig) -> Iterator[CheckCase]:
    for at, (place, test) in enumerate(config.tests, 1):
        for number, template in enumerate(config.templates, 1):
            suffix = f"/prompt {number}" if len(config.templates) > 1 else ""
            yield _of_test(path, place, test, template, f"test {at}{suffix}")


def _of_test(path: Path, place: str, tree: Any, template: Template, name: str) -> CheckCase:
    test = of_test(place, tree, template, path.parent)
    prompt = read_object(place, {"messages": list(test.messages)})
    suffix = "/" + name.partition("/")[2] if "/" in name else ""
    called = f"{test.description}{suffix}" if test.description else name
    return CheckCase(id=called, prompt=prompt, checks=test.checks)


def _records(path: Path, records: Iterable[tuple[str, Any]]) -> Iterator[CheckCase]:
    for at, (place, record) in enumerate(records, 1):
        if not isinstance(record, dict):
            raise UsageError(f"{place}: a case is an object.", hint=_HINT)
        kinds = [name for name in _MARKS if name in record]
        if not kinds:
            raise UsageError(
                f"{place}: this case has no check: it would pass whatever is answered.", hint=_HINT
            )
        if kinds[0] in {"assert", "vars"}:
            yield _of_test(path, place, record, Template("{{prompt}}"), f"test {at}")
        elif len(kinds) > 1:
            raise UsageError(f"{place}: this case has {kinds[0]!r} and {kinds[1]!r}.")
        elif kinds == ["check"]:
            yield _own(path, place, record, f"case {at}")
        else:
            yield _theirs(path, place, record, kinds[0], f"case {at}")


def _own(path: Path, place: str, record: dict[str, Any], name: str) -> CheckCase:
    _only(place, record, _OWN)
    listed = record["check"]
    if not isinstance(listed, list) or not listed:
        raise UsageError(f'{place}: "check" is not a list with at least one check.', hint=_HINT)
    tags = record.get("tags", [])
    if not isinstance(tags, list) or not all(isinstance(tag, str) and tag for tag in tags):
        raise UsageError(f'{place}: "tags" is no list of texts.')
    checks = [
        read_check(f"{place}: check {at}", one, path.parent) for at, one in enumerate(listed, 1)
    ]
    return CheckCase(
        id=_id(place, record, name),
        prompt=read_object(place, record),
        checks=tuple(checks),
        tags=tuple(tags),
    )


def _theirs(path: Path, place: str, record: dict[str, Any], wanted: str, name: str) -> CheckCase:
    """Read a sample of Inspect or of OpenAI's evals, or a golden of deepeval."""
    _only(place, record, _THEIRS)
    kind, ignore_case = _WANTED[wanted]
    spec = CheckSpec(type=kind, ignore_case=ignore_case, folder=str(path.parent))
    given = record.get("input")
    asked = {"messages" if isinstance(given, list) else "prompt": given}
    return CheckCase(
        id=_id(place, record, name),
        prompt=read_object(place, asked),
        checks=(with_value(f"{place}: {wanted!r}", spec, record[wanted]),),
    )


def _only(place: str, record: dict[str, Any], known: frozenset[str]) -> None:
    strange = sorted(set(record) - known)
    if strange:
        raise UsageError(
            f"{place}: the field {strange[0]!r} is unsupported.",
            hint=f"There are {', '.join(sorted(known))}.",
        )


def _id(place: str, record: dict[str, Any], name: str) -> str:
    said = record.get("id", name)
    if isinstance(said, int) and not isinstance(said, bool):
        said = str(said)
    if not isinstance(said, str) or not said.strip() or len(said) > 200:
        raise UsageError(f'{place}: "id" is no text of 1 to 200 characters.')
    return said
