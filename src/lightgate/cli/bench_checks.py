"""`lightgate bench --checks`: the user's own cases as the workload, and who passed how many."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from lightgate.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from lightgate.bench.checks.cases import CaseSet
    from lightgate.bench.run.engine import Bench
    from lightgate.bench.run.order import RunOrder
    from lightgate.bench.workload.workload import WorkloadWish
    from lightgate.ledger.runs.folder import RunFolder
    from lightgate.ledger.runs.run import Run

CONCURRENCY: Final = "1,8,32"
CASES_AT_ONCE: Final = "1"  # nothing is sent but the cases and the warm-up
# Options about what is sent, or how much of it: the cases say both.
_OTHERWISE: Final = (
    "requests", "precision", "duration", "rate", "sweep", "find_rate", "max_inflight", "turns",
    "think", "tools", "prompts", "cached", "cancel", "processes", "ray", "resume",
)  # fmt: skip
_MOST_AT_ONCE: Final = 512

_OPTIONS: Final = (
    click.option(
        "--checks",
        type=click.Path(path_type=Path),
        help="Own cases with checks, each asked once: pass rates beside speed and cost. JSON lines,"
        " or files of promptfoo, Inspect, OpenAI's evals or deepeval.",
    ),
    click.option(
        "--allow-programs", is_flag=True, help="Let --checks run the programs that its file names."
    ),
)


def checks_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of the quality guard to the verb."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def cases_of(given: dict[str, Any]) -> CaseSet | None:
    """Read the cases, where some were named; what is wrong with them is said before a request."""
    from lightgate.bench.checks.cases import read_cases
    from lightgate.bench.checks.programs import check_programs
    from lightgate.bench.workload.lengths import parse_lengths

    at_once = CONCURRENCY if given["checks"] is None else CASES_AT_ONCE
    given["concurrency"] = given["concurrency"] or at_once
    if given["checks"] is None:
        return None
    for name in _OTHERWISE:
        if given[name] not in (None, False):
            option = "--" + name.replace("_", "-")
            raise UsageError(f"{option} does not go with --checks: every case is asked once.")
    if given["shape"] not in {None, "closed"} or given["endpoint"] not in {"chat", "responses"}:
        raise UsageError("--checks asks its cases in a closed loop, of chat or of responses.")
    if parse_lengths("--max-tokens", given["max_tokens"]).drawn:
        raise UsageError("--max-tokens is one number with --checks.", hint="Or one in each case.")
    found = read_cases(given["checks"])
    check_programs(found.programs, allowed=given["allow_programs"])
    return found


def as_asked(wish: WorkloadWish, cases: CaseSet | None) -> WorkloadWish:
    """The workload of the cases: their prompts, and answers as long as the model makes them."""
    import msgspec

    if cases is None:
        return wish
    return msgspec.structs.replace(wish, own=cases.prompts, natural=True, lengths_in=None)


def case_count(cases: CaseSet | None, workers: int) -> int | None:
    """How many requests of each target the cases are; None where there are none."""
    if cases is None:
        return None
    if workers > _MOST_AT_ONCE:
        raise UsageError(f"--checks keeps at most {_MOST_AT_ONCE} requests in flight.")
    return len(cases.cases)


def checked(run: Run, order: RunOrder, bench: Bench, folder: RunFolder | None) -> Run:
    """Judge the answers, and keep rates and answers with the run."""
    from lightgate.bench.checks.rates import with_checks

    if order.cases is None:
        return run
    found = with_checks(run, order.cases, bench.asked, os.environ)
    if folder is not None:
        folder.write_run(found.run)
        folder.write_answers(found.lines)
    return found.run
