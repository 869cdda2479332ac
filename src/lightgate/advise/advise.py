"""All advice for one history: every kind is looked at, and what is not offered says why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from lightgate.advise.advice import Advice, Touched, weighed
from lightgate.advise.kinds.answers import answer_advice
from lightgate.advise.kinds.loops import loop_advice
from lightgate.advise.kinds.own import own_advice
from lightgate.advise.kinds.repeats import repeat_advice
from lightgate.advise.kinds.targets import target_advice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lightgate.advise.scope import AdviceScope

MOST_MODELS: Final = 50  # the most frequent ones

_KINDS: Final[tuple[Callable[[AdviceScope, str], Iterator[Touched]], ...]] = (
    answer_advice,
    target_advice,
    repeat_advice,
    loop_advice,
)


class AdviceReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was looked at, and all advice: that which is offered first, the best on top."""

    source: str
    since: str
    until: str
    requests: int
    models: tuple[str, ...]
    advice: tuple[Advice, ...]

    @property
    def offered(self) -> tuple[Advice, ...]:
        """The advice that stands."""
        return tuple(one for one in self.advice if one.state == "advised")

    def data(self, *, everything: bool) -> dict[str, Any]:
        """The report for programs."""
        shown = self.advice if everything else self.offered
        return {**msgspec.structs.asdict(self), "advice": shown}


def advise(scope: AdviceScope, only: str | None = None) -> AdviceReport:
    """Look for everything that would make the traffic faster or cheaper, of one model or of all."""
    history = scope.history
    models = [name for name in history.models() if only in {None, name}][:MOST_MODELS]
    found: list[Touched] = []
    for model in models:
        for kind in _KINDS:
            found += kind(scope, model)
    if only is None:
        found += own_advice(scope)
    return AdviceReport(
        source=history.source,
        since=history.since.isoformat(),
        until=history.until.isoformat(),
        requests=len(history),
        models=tuple(models),
        advice=tuple(weighed(found)),
    )
