"""Objects of routing that have just been made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightgate.route.admission.admission import Admission
from lightgate.route.admission.in_flight import InFlightLimit
from lightgate.route.admission.knee import Knee, _Round
from lightgate.route.admission.learnt import LearntRate
from lightgate.route.admission.peaks import ClientPeaks
from lightgate.route.admission.rate import RateGate
from lightgate.route.admission.reserve import Reserve
from lightgate.route.admission.stated import StatedLimits
from lightgate.route.admission.window import WindowGate
from lightgate.route.cascade.course import CascadeCourse
from lightgate.route.cascade.features import _Heard
from lightgate.route.cascade.json_schema import _Work
from lightgate.route.cascade.learned import LearnedBounds
from lightgate.route.form.change import ChangeDetector, Slowdown
from lightgate.route.form.cold import ColdStarts
from lightgate.route.form.forms import Forms
from lightgate.route.form.lateness import Lateness
from lightgate.route.form.lengths import AnswerLengths, _Length
from lightgate.route.form.pace import PaceCurve
from lightgate.route.form.pairs import Pairs, _Pair
from lightgate.route.form.prior import DEFAULT
from lightgate.route.form.reading import ReadingCurve
from lightgate.route.form.size import PromptSize
from lightgate.route.form.slo import Promise, ServiceLevels
from lightgate.route.form.target import Form
from lightgate.route.form.wait import WaitCurve
from lightgate.route.form.whole_time import WholeTimes, _Longest
from lightgate.route.health.breaker import Breaker, Breakers, Rules
from lightgate.route.health.window import CountWindow
from lightgate.route.observe import Observer
from lightgate.route.plan.course import Course, RetryBudget
from lightgate.route.plan.hedge import HedgeBudgets, _Account
from lightgate.route.plan.kept import PlanCache
from lightgate.route.plan.plan import Plan, Step
from lightgate.route.plan.policy import POLICIES
from lightgate.route.plan.ranking import _Lead
from lightgate.route.plan.standing import Standing
from lightgate.route.prompt.trim import _Trimmer

if TYPE_CHECKING:
    from first_states import Made


def draw() -> float:
    return 0.5


def breakers() -> Breakers:
    return Breakers(Rules(), draw)


def observer() -> Observer:
    return Observer(breakers(), Forms({}), HedgeBudgets())


def course(*starts_ns: int | None) -> Course:
    steps = tuple(Step(f"t/{place}", at, None, "primary") for place, at in enumerate(starts_ns))
    return Course(Plan(steps, "ordered", "because"), 7, 9)


MADE: Made = {
    "Admission": Admission, "InFlightLimit": InFlightLimit, "Knee": Knee, "knee._Round": _Round,
    "LearntRate": LearntRate, "ClientPeaks": ClientPeaks, "RateGate": RateGate,
    "Reserve": Reserve, "StatedLimits": StatedLimits, "WindowGate": WindowGate,
    "CascadeCourse": lambda: CascadeCourse(()), "features._Heard": _Heard,
    "json_schema._Work": lambda: _Work({}),
    "LearnedBounds": lambda: LearnedBounds(("simple", "hard")),
    "ChangeDetector": ChangeDetector, "Slowdown": Slowdown, "ColdStarts": ColdStarts,
    "Forms": lambda: Forms({}), "Lateness": Lateness, "AnswerLengths": AnswerLengths,
    "lengths._Length": lambda: _Length(5.0), "PaceCurve": PaceCurve, "Pairs": Pairs,
    "pairs._Pair": _Pair, "ReadingCurve": ReadingCurve,
    "PromptSize": lambda: PromptSize(1.5, 0.5), "Promise": lambda: Promise(ServiceLevels()),
    "Form": lambda: Form(DEFAULT), "WaitCurve": WaitCurve, "WholeTimes": WholeTimes,
    "whole_time._Longest": lambda: _Longest(3.0, 2.0, 1.5),
    "Breaker": lambda: Breaker(Rules(), draw), "Breakers": breakers,
    "CountWindow": lambda: CountWindow(3, 10), "Observer": observer,
    "Course of one step": lambda: course(0),
    "Course of steps after each other": lambda: course(0, None),
    "Course of racers": lambda: course(0, 0), "Course with a hedge": lambda: course(0, 5),
    "RetryBudget": RetryBudget, "hedge._Account": _Account, "HedgeBudgets": HedgeBudgets,
    "PlanCache": lambda: PlanCache(breakers(), Forms({}), HedgeBudgets()),
    "ranking._Lead": lambda: _Lead((2, 1), "t/m", Form(DEFAULT), 1.0),
    "Standing": lambda: Standing(("a/m", "b/m"), Forms({}), POLICIES["fastest"], 1, None),
    "trim._Trimmer": _Trimmer,
}  # fmt: skip
