"""What a run of `bench --checks` says about quality: how many of the user's own cases passed.

These records stand in `run.json`; `advise`, reports and `compare` read them from there.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from lightgate.clock.quantile import Interval
from lightgate.clock.share import Paired, wilson

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

CaseState = Literal["passed", "failed", "truncated", "refused", "unanswered"]
STATES: Final[tuple[CaseState, ...]] = ("passed", "failed", "truncated", "refused", "unanswered")
Bar = Literal["met", "missed", "unsure"]


def _cases(n: int) -> str:
    return "1 case" if n == 1 else f"{n} cases"


class PassRate(msgspec.Struct, frozen=True, kw_only=True):
    """How many cases one target passed at one load.

    `rest` names every case that did not pass, with its state: `failed` (a check said no),
    `truncated` (a limit on tokens cut the answer off, and what there was did not pass), `refused`
    (the model declined) or `unanswered` (the request failed or was never sent, which says nothing
    about quality). The rate is that of the answered cases.
    """

    cases: int
    passed: int
    rest: dict[str, CaseState] = {}
    interval: Interval | None = None  # Wilson's, 95 %
    tags: dict[str, tuple[int, int]] = {}  # passed and answered cases of each tag

    @property
    def answered(self) -> int:
        """Cases that have an answer."""
        return self.cases - self.count("unanswered")

    @property
    def rate(self) -> float | None:
        """The share of the answered cases that passed; None without an answer."""
        return self.passed / self.answered if self.answered else None

    @property
    def lowest(self) -> float:
        """The share that passed if every case without an answer would have failed."""
        return self.passed / self.cases if self.cases else 0.0

    @property
    def highest(self) -> float:
        """The share that passed if every case without an answer would have passed."""
        return (self.passed + self.count("unanswered")) / self.cases if self.cases else 1.0

    def count(self, state: CaseState) -> int:
        """Count the cases in one state."""
        if state == "passed":
            return self.passed
        return sum(1 for found in self.rest.values() if found == state)

    def bar(self, least: float) -> Bar:
        """Say whether the target surely passes at least this share of such cases, or surely not.

        By the interval: a few good answers in a row are no proof of a high share.
        """
        if self.interval is None:
            return "unsure"
        if self.interval.low >= least:
            return "met"
        return "missed" if self.interval.high < least else "unsure"

    def says(self) -> str:
        """The rate as part of a sentence: "92.0 % (81.2 to 96.8 %) of 50 cases"."""
        if self.rate is None or self.interval is None:
            return f"none of {_cases(self.cases)}: no answer came"
        low, high = (f"{100 * end:.1f}" for end in (self.interval.low, self.interval.high))
        return f"{100 * self.rate:.1f} % ({low} to {high} %) of {_cases(self.answered)}"


class PassPair(msgspec.Struct, frozen=True, kw_only=True):
    """Two targets at one load, over the cases that both of them answered."""

    load: str
    a: str
    b: str
    both: int
    only_a: int
    only_b: int
    neither: int
    difference: float | None  # share of a minus share of b
    interval: Interval | None  # Newcombe's for paired shares, 95 %
    p_value: float  # McNemar's exact test, two-sided
    p_adjusted: float  # Holm, over all pairs of this load
    # "a passes more", "b passes more", "no difference shown", "too few differ" (no disagreement of
    # so few cases could be sure)
    verdict: str


class FailedCase(msgspec.Struct, frozen=True, kw_only=True):
    """One case that did not pass, and why."""

    target: str
    load: str
    case: str
    state: CaseState
    why: str


class ChecksRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The checks of a run, beside the pass rates of its cells."""

    file: str
    sha256: str  # of what is asked and checked: equal hashes are equal cases
    ids: tuple[str, ...]  # of the cases, in the order of the file
    pairs: tuple[PassPair, ...] = ()
    failures: tuple[FailedCase, ...] = ()  # the first ones; checks.jsonl has all answers
    left_out: int = 0  # failures beyond those


def pass_rate(states: Mapping[str, CaseState], tags: Mapping[str, Iterable[str]]) -> PassRate:
    """Make the rate of one target from the state of every case; `tags` are those of each case."""
    passed = sum(1 for state in states.values() if state == "passed")
    answered = {case for case, state in states.items() if state != "unanswered"}
    seen: Counter[str] = Counter()
    good: Counter[str] = Counter()
    for case in states:
        for tag in tags.get(case, ()):
            seen[tag] += case in answered
            good[tag] += states[case] == "passed"
    return PassRate(
        cases=len(states),
        passed=passed,
        rest={case: state for case, state in states.items() if state != "passed"},
        interval=wilson(passed / len(answered), len(answered)) if answered else None,
        tags={tag: (good[tag], seen[tag]) for tag in sorted(seen)},
    )


def paired(a: PassRate, b: PassRate, cases: Iterable[str]) -> Paired:
    """Count the cases that both answered by which of the two passed them."""
    kinds = Counter(
        (a.rest.get(case, "passed") == "passed", b.rest.get(case, "passed") == "passed")
        for case in cases
        if "unanswered" not in {a.rest.get(case), b.rest.get(case)}
    )
    return Paired(kinds[True, True], kinds[True, False], kinds[False, True], kinds[False, False])
