"""Checks of a whole answer that decide whether the next tier is asked as well.

    passed     all that the check is about was looked at, and is as it should be
    failed     it is not, or an own check raised instead of saying so
    unchecked  it could not be looked at, or only in part; this neither passes nor escalates

A check that a request gives no cause for (no schema, no tools) has no finding. The user's own
checks are entry points of the group `lightgate.verify`; finding them is the caller's, at start:
`own_checks(names, entry_points(group=GROUP))`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

import msgspec

from lightgate.dialect.neutral.numbers import any_json
from lightgate.errors import ConfigError
from lightgate.route.cascade.json_schema import check as check_schema
from lightgate.route.cascade.refusal import declines

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lightgate.dialect.request import ToolCall
    from lightgate.provider.answer import Answer
    from lightgate.route.cascade.features import Wants

State = Literal["passed", "failed", "unchecked"]
OwnCheck = Callable[..., Any]  # (answer, wants) -> True, or False or a sentence: why not
LEAST_LOGPROB: Final = -1.0  # mean of an answer's tokens: about 37 % each
_SMALL_LIMIT: Final = 64  # tokens; a client that sets so little expects to reach it
_LOGPROBS: Final = "logprobs"
GROUP: Final = "lightgate.verify"  # entry points of the user's own checks


class Finding(msgspec.Struct, frozen=True):
    """The finding of one check."""

    check: str
    state: State
    why: str = ""


class CheckVerdict(msgspec.Struct, frozen=True):
    """The findings of all checks; one failure fails it, and only if all have passed it passes."""

    findings: tuple[Finding, ...] = ()

    @property
    def state(self) -> State:
        """The worst of the findings; with none of them there was nothing to check, which passes."""
        states = {finding.state for finding in self.findings}
        if "failed" in states:
            return "failed"
        return "unchecked" if "unchecked" in states else "passed"

    @property
    def text(self) -> str:
        """The findings that did not pass, with their reasons, for records."""
        rest = [found for found in self.findings if found.state != "passed"]
        return "; ".join([f"{found.check} {found.state}: {found.why}" for found in rest])


Check = Callable[["Answer", "Wants"], "Finding | None"]


def checks_of(names: Sequence[str], own: Mapping[str, OwnCheck]) -> tuple[Check, ...]:
    """Make the checks that a configuration names; `own` are those of entry points, by name."""
    return tuple([_check(name, own) for name in names])


def verify(answer: Answer | None, wants: Wants, checks: Sequence[Check]) -> CheckVerdict:
    """Check an answer; None stands for one that could not be read."""
    if answer is None:
        return CheckVerdict((Finding("answer", "unchecked", "it could not be read"),))
    found = [check(answer, wants) for check in checks]
    return CheckVerdict(tuple([finding for finding in found if finding is not None]))


def _check(name: str, own: Mapping[str, OwnCheck]) -> Check:
    if name in BUILT_IN:
        return BUILT_IN[name]
    if name.startswith(f"{_LOGPROBS}>"):
        return _logprobs_above(name)
    if name in own:
        return _isolated(name, own[name])
    known = ", ".join((*BUILT_IN, *sorted(own)))
    raise ConfigError(
        f"There is no check {name!r}.",
        hint=f"There are {known}; your own come from the entry point group lightgate.verify.",
    )


def json_schema(answer: Answer, wants: Wants) -> Finding | None:
    """Check that the text is one JSON document that follows the request's schema."""
    name = "json_schema"
    if wants.schema is None:
        return None
    if answer.calls and not answer.text.strip():
        return Finding(name, "unchecked", "it calls a tool and says nothing yet")
    try:
        value = any_json.decode(answer.text)
    except (ValueError, RecursionError):
        return Finding(name, "failed", "the text is not JSON")
    return _schema_finding(name, wants.schema, value, "")


def tool_arguments(answer: Answer, wants: Wants) -> Finding | None:
    """Check that every call is of an offered tool, with arguments that follow its schema."""
    name = "tool_arguments"
    if not answer.calls:
        why = "it calls no tool although it must"
        return Finding(name, "failed", why) if wants.must_call else None
    findings = [_call_finding(name, call, wants) for call in answer.calls]
    for state in ("failed", "unchecked"):
        for finding in findings:
            if finding.state == state:
                return finding
    return Finding(name, "passed")


def _call_finding(name: str, call: ToolCall, wants: Wants) -> Finding:
    shown = call.name[:60]
    if call.name not in wants.tools:
        return Finding(name, "failed", f"it calls {shown!r}, which was not offered")
    try:
        value = any_json.decode(call.arguments or "{}")
    except (ValueError, RecursionError):
        return Finding(name, "failed", f"the arguments of {shown!r} are not JSON")
    if not isinstance(value, dict):
        return Finding(name, "failed", f"the arguments of {shown!r} are no object")
    schema = wants.tools[call.name]
    return (
        Finding(name, "passed") if schema is None else _schema_finding(name, schema, value, shown)
    )


def _schema_finding(name: str, schema: Any, value: Any, whose: str) -> Finding:
    checked = check_schema(schema, value)
    prefix = f"{whose}: " if whose else ""
    if checked.errors:
        return Finding(name, "failed", prefix + "; ".join(checked.errors[:3]))
    if checked.unchecked:
        return Finding(name, "unchecked", prefix + "; ".join(checked.unchecked[:3]))
    return Finding(name, "passed")


def not_refused(answer: Answer, _wants: Wants) -> Finding:
    """Check that the answer is no refusal, by its mark or by the words that it begins with."""
    name = "not_refused"
    if answer.refusal or answer.finish == "refusal":
        return Finding(name, "failed", "it is marked as a refusal")
    if answer.finish == "filter":
        return Finding(name, "failed", "a filter stopped it")
    if not answer.calls and declines(answer.text):
        return Finding(name, "failed", "it begins like a refusal and says little else")
    return Finding(name, "passed")


def not_truncated(answer: Answer, wants: Wants) -> Finding:
    """Check that no limit on tokens and no window of the model cut the answer off."""
    name = "not_truncated"
    if answer.finish == "context":
        return Finding(name, "failed", "the model's window cut it off")
    if answer.finish != "length":
        return Finding(name, "passed")
    if wants.limit is not None and wants.limit < _SMALL_LIMIT:
        return Finding(name, "unchecked", f"the client wants {wants.limit} tokens and no more")
    return Finding(name, "failed", "the limit on tokens cut it off")


def logprobs(answer: Answer, _wants: Wants) -> Finding:
    """Check the mean log probability of the text, where the provider sends it."""
    return _sure(answer, LEAST_LOGPROB, _LOGPROBS)


BUILT_IN: Final[dict[str, Check]] = {
    "json_schema": json_schema,
    "not_refused": not_refused,
    "not_truncated": not_truncated,
    "tool_arguments": tool_arguments,
    "logprobs": logprobs,
}


def _logprobs_above(name: str) -> Check:
    try:
        least = float(name.partition(">")[2])
    except ValueError:
        least = 1.0
    if not -100.0 <= least <= 0.0:
        raise ConfigError(
            f"The check {name!r} needs a log probability from -100 to 0.", hint='"logprobs>-0.5"'
        )
    return lambda answer, _wants: _sure(answer, least, name)


def _sure(answer: Answer, least: float, name: str) -> Finding:
    if answer.logprob is None:
        return Finding(name, "unchecked", "the provider told no log probabilities")
    if answer.logprob < least:
        return Finding(
            name, "failed", f"mean log probability {answer.logprob:.2f}, below {least:g}"
        )
    return Finding(name, "passed")


def _isolated(name: str, own: OwnCheck) -> Check:
    """Wrap a check of the user's, so that the request goes on whatever the check does."""

    def run(answer: Answer, wants: Wants) -> Finding:
        try:
            said = own(answer, wants)
        except Exception as error:  # noqa: BLE001 - the wall around code that is not ours
            return Finding(name, "failed", f"it raised {type(error).__name__}")
        if said is True:
            return Finding(name, "passed")
        if said is False or isinstance(said, str):
            return Finding(name, "failed", said[:200] if said else "it said no")
        return Finding(name, "failed", f"it returned {type(said).__name__}, not True or False")

    return run


class CheckEntryPoint(Protocol):
    """An entry point of `importlib.metadata`."""

    @property
    def name(self) -> str:
        """The name of the check in a configuration."""

    def load(self) -> Any:
        """Import what it stands for."""


def own_checks(names: Sequence[str], points: Iterable[CheckEntryPoint]) -> dict[str, OwnCheck]:
    """Load those that are named and are not built in; ConfigError where one cannot be used.

    Two packages that offer the same name are an error too: either of them might run.
    """
    wanted = {name for name in names if name not in BUILT_IN}
    found: dict[str, OwnCheck] = {}
    for point in points:
        if point.name not in wanted:
            continue
        if point.name in found:
            raise ConfigError(f"Two installed packages offer the check {point.name!r}.")
        found[point.name] = _loaded(point)
    return found


def _loaded(point: CheckEntryPoint) -> OwnCheck:
    try:
        check = point.load()
    except Exception as error:  # the wall around code that is not ours
        why = f"{type(error).__name__}: {error}"
        raise ConfigError(f"The check {point.name!r} cannot be loaded: {why[:200]}.") from error
    if not callable(check):
        raise ConfigError(f"The check {point.name!r} is not a function of an answer and its wants.")
    return check  # type: ignore[no-any-return]
