"""The form of all targets: what decisions read, and what attempts change."""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lightgate.route.admission.in_flight import RATE_S
from lightgate.route.admission.stated import StatedLimits
from lightgate.route.form.change import FAR
from lightgate.route.form.pairs import Pairs
from lightgate.route.form.prior import DEFAULT, Prior
from lightgate.route.form.size import BUCKETS, RECENT, bucket, size_of
from lightgate.route.form.slo import Promise
from lightgate.route.form.state import FormState, merge, record
from lightgate.route.form.target import NEVER, NS, Form
from lightgate.route.health.failure import RATE_LIMITED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from lightgate.route.admission.headers import RateFact
    from lightgate.route.form.slo import ServiceLevels
    from lightgate.route.health.failure import Failure

__all__ = [
    "BUCKETS",
    "RECENT",
    "Form",
    "FormState",
    "Forms",
    "Prediction",
    "Prior",
    "bucket",
    "size_of",
]

MOST: Final = 4096  # targets that are kept in mind, as the breakers do
MOST_SESSIONS: Final = 4096
WARM_NS: Final = 600_000_000_000  # a provider's prompt cache is taken to be warm for that long
SOONER: Final = 3  # times as often a target is probed that is out of form
PEER_NS: Final = 3_000_000_000  # for which another worker's count is believed
INCIDENT_NS: Final = 30_000_000_000
_CONNECTS: Final = frozenset(("dns", "tls", "connect", "connect_timeout"))


class Prediction(msgspec.Struct, frozen=True):
    """What is expected of one target; `fresh` is the part of it that was seen just now (0 to 1).

    `sigma` is the spread of the logarithm of the time to first token.
    """

    ttft_ns: int
    sigma: float
    speed_tps: float
    p_error: float
    fresh: float


class Forms:
    """The form of all targets. Instants in nanoseconds of one monotonic clock."""

    __slots__ = (
        "_peers",
        "_priors",
        "_refusals",
        "_sessions",
        "by_target",
        "crowded",
        "incumbents",
        "pairs",
        "promises",
        "standings",
        "stated_by",
        "version",
    )

    def __init__(self, priors: Mapping[str, Prior]) -> None:
        self._peers: dict[str, tuple[int, dict[str, int]]] = {}  # by worker: when, and in flight
        self._priors: dict[str, Prior] = {}
        self.by_target: dict[str, Form] = {}
        self._sessions: OrderedDict[str, tuple[str, int]] = OrderedDict()
        self._refusals: dict[str, int] = {}  # provider: when it last refused a connection
        self.incumbents: dict[tuple[str, str], str] = {}  # alias, policy: the last first
        self.crowded: set[str] = set()  # targets that have as many in flight as they may
        self.stated_by: dict[str, StatedLimits] = {}  # targets whose answers state limits
        self.pairs = Pairs()
        self.standings: dict[object, Any] = {}  # of lists of targets: what decisions keep of them
        self.promises: dict[str, Promise] = {}  # by model
        self.version = 0  # changes with every event after which a ranking may be another one
        self.use(priors)

    def use(self, priors: Mapping[str, Prior]) -> None:
        """Serve these targets from now on; what is known of them stays."""
        self._priors = dict(priors)
        for target, prior in self._priors.items():
            form = self.by_target.get(target)
            if form is None:
                self.by_target[target] = Form(prior)
            elif form.prior != prior:
                form.use_prior(prior)
        self.version += 1

    def form(self, target: str) -> Form:
        """Return the form of a target; an unknown target begins with the default prior."""
        form = self.by_target.get(target)
        return self._new(target) if form is None else form

    # What attempts teach

    def started(self, target: str, began_ns: int = 0) -> None:
        """Count an attempt that begins: it is in flight until `ended`."""
        form = self.by_target.get(target) or self._new(target)
        form.started(began_ns)
        if form.limit.firm or self.crowded:
            self._count(target, form)
        if self.stated_by and began_ns:
            self._sent(target, began_ns)

    def ended(self, target: str, began_ns: int = 0, now_ns: int = 0) -> None:
        """Count an attempt that is over, however it went."""
        form = self.by_target.get(target) or self._new(target)
        form.ended(began_ns, now_ns)
        if form.limit.firm or self.crowded:
            self._count(target, form)

    def first(self, target: str, bucket: int, now_ns: int, ttft_ns: int) -> None:
        """Take in a useful first token that came `ttft_ns` after its attempt was sent."""
        form = self.by_target.get(target) or self._new(target)
        seconds = ttft_ns / NS
        self.pairs.saw(target, now_ns, form.sigmas(bucket, seconds))
        if form.first(bucket, now_ns, seconds):
            self.version += 1

    def finished(
        self, target: str, now_ns: int, tokens: int, decode_ns: int, took_ns: int = 0
    ) -> None:
        """Take in a complete answer; `tokens` are those that came in `decode_ns`.

        `took_ns` is how long the whole attempt took; 0: not known.
        """
        form = self.by_target.get(target) or self._new(target)
        if took_ns:
            form.curve.held(took_ns / NS)
        if form.finished(now_ns, tokens, decode_ns / NS, now_ns - took_ns if took_ns else 0):
            self.version += 1

    def waited(self, target: str, bucket: int, now_ns: int, at_least_ns: int) -> None:
        """Take in an attempt that was closed before its first token, so long after it was sent."""
        form, seconds = self.form(target), at_least_ns / NS
        self.pairs.waited(target, now_ns, form.sigmas(bucket, seconds))
        form.waited(bucket, now_ns, seconds)
        self.version += 1

    def failed(
        self,
        target: str,
        bucket: int,
        now_ns: int,
        failure: Failure,
        wait_s: float | None,
        began_ns: int = 0,
    ) -> None:
        """Take in a failure; `wait_s` is what the provider asked for, `began_ns` its start."""
        if failure.counts == "none":
            return
        form = self.form(target)
        form.failed(bucket, now_ns, wait_s or 0.0)
        explained = target in self.stated_by and now_ns < self.stated_by[target].closed_ns
        if failure is RATE_LIMITED and (wait_s or 0.0) <= RATE_S and not explained:
            form.limit.refused(form.waiting.get(began_ns, form.in_flight), now_ns)
        if failure.kind in _CONNECTS:
            if len(self._refusals) >= MOST:
                self._refusals.clear()
            self._refusals[target.partition("/")[0]] = now_ns
        self.version += 1

    def stated(
        self,
        target: str,
        now_ns: int,
        began_ns: int,
        facts: Sequence[RateFact],
        *,
        tokens: int,
        refused: bool,
    ) -> None:
        """Take in the limits that an answer states; `tokens` are those of its prompt."""
        known = self.stated_by.get(target)
        if known is None:
            if len(self.stated_by) >= MOST:
                self.stated_by.clear()
            known = self.stated_by[target] = StatedLimits()
        later = sum([at_ns > began_ns for at_ns in self.form(target).waiting])
        known.told(facts, now_ns, later=later, tokens=tokens, refused=refused)
        if now_ns < known.closed_ns:
            self.version += 1

    def engine(self, target: str, busy: int, now_ns: int) -> None:
        """Take in how many requests a target's engine itself counts, running and waiting."""
        (self.by_target.get(target) or self._new(target)).told(busy, now_ns)

    def stick(self, session: str, target: str, now_ns: int) -> None:
        """Remember the target that answered a session: its prompt cache is warm now."""
        sessions = self._sessions
        sessions[session] = (target, now_ns)
        sessions.move_to_end(session)
        if len(sessions) > MOST_SESSIONS:
            sessions.popitem(last=False)

    def answered(self, model: str, ttft_ns: int, tokens: int, decode_ns: int) -> None:
        """Take in an answered request to a model, as its client saw it, hedges included."""
        promise = self.promises.get(model)
        if promise is not None and promise.saw(ttft_ns / NS, tokens, decode_ns / NS):
            self.version += 1

    def unanswered(self, model: str) -> None:
        """Take in a request to a model that failed on all its targets."""
        promise = self.promises.get(model)
        if promise is not None and promise.missed():
            self.version += 1

    # What is asked

    def closed(self, now_ns: int) -> AbstractSet[str]:
        """Return the targets that are at a limit: of requests in flight, or one that they state."""
        if not self.stated_by:
            return self.crowded
        spent = [name for name, known in self.stated_by.items() if now_ns < known.closed_ns]
        return self.crowded.union(spent) if spent else self.crowded

    def promise(self, model: str, slo: ServiceLevels) -> Promise:
        """Return how the service levels of a model are kept."""
        promise = self.promises.get(model)
        if promise is None or promise.slo != slo:
            if len(self.promises) >= MOST:
                self.promises.clear()
            promise = self.promises[model] = Promise(slo)
        promise.slo = slo  # of the newest snapshot
        return promise

    def warm(self, session: str, now_ns: int) -> str | None:
        """Return the target whose prompt cache knows this session."""
        found = self._sessions.get(session)
        return found[0] if found is not None and now_ns - found[1] < WARM_NS else None

    def incident(self, now_ns: int) -> bool:
        """Return whether two providers refused connections just now: the trouble is on our side."""
        if len(self._refusals) < 2:
            return False
        fresh = [at for at in self._refusals.values() if now_ns - at < INCIDENT_NS]
        return len(fresh) > 1

    def predict(self, target: str, bucket: int, now_ns: int) -> Prediction:
        """Return what is expected of a target; its speed is that beside what it has in flight."""
        form = self.form(target)
        form.look(now_ns)
        log, weight = form.log_ttft(bucket, now_ns), form.fresh(now_ns)
        sigma = math.sqrt(form.variance)
        return Prediction(
            int(math.exp(log) * NS),
            sigma,
            math.exp(form.log_speed(now_ns)) / form.pace.slower(max(0, form.in_flight - 1)),
            form.p_error,
            weight,
        )

    def stale(self, now_ns: int, older_than_ns: int, also: Iterable[str] = ()) -> list[str]:
        """Return the served targets without a fresh sample, the oldest first, for probes.

        A target out of form is stale sooner: only a probe would see that it has recovered. `also`
        are targets of models that no configuration names.
        """
        found = []
        for target in dict.fromkeys((*self._priors, *also)):
            form = self.form(target)
            slow = form.deviation * form.fresh(now_ns) > FAR
            if now_ns - form.last_ns > (older_than_ns // SOONER if slow else older_than_ns):
                found.append((form.last_ns, target))
        return [target for _, target in sorted(found)]

    # For other workers, and after a restart

    def export(self) -> FormState:
        """Return what was learned of every target of which something was seen."""
        forms = self.by_target.items()
        seen = {name: record(form) for name, form in forms if form.last_ns != NEVER}
        return FormState(seen, self.pairs.export())

    def adopt(self, state: FormState, now_ns: int) -> None:
        """Take in what another worker, or this one before a restart, has learned."""
        for target, known in state.targets.items():
            merge(self.form(target), known, now_ns)
        self.pairs.adopt(state.pairs)
        self.version += 1

    def beside(self, told: Mapping[str, tuple[int, dict[str, int]]], now_ns: int) -> None:
        """Take in what other workers have in flight: when, and by target.

        A worker that has said nothing for PEER_NS is forgotten.
        """
        self._peers.update(told)
        for name in [name for name, (at, _) in self._peers.items() if now_ns - at >= PEER_NS]:
            del self._peers[name]
        peers = self._peers.values()
        at_ns = min((at for at, _ in peers), default=NEVER)
        for target, form in self.by_target.items():
            form.beside(sum([flying.get(target, 0) for _, flying in peers]), len(peers), at_ns)
            if form.limit.firm or self.crowded:
                self._count(target, form)

    def _sent(self, target: str, now_ns: int) -> None:
        """Count a request against what is left of its target's stated limits."""
        known = self.stated_by.get(target)
        if known is not None and now_ns >= known.closed_ns:
            known.sent(now_ns)
            if now_ns < known.closed_ns:
                self.version += 1

    def _count(self, target: str, form: Form) -> None:
        """Keep in mind whether a target is at its limit."""
        if form.full != (target in self.crowded):
            (self.crowded.add if form.full else self.crowded.discard)(target)
            self.version += 1

    def _new(self, target: str) -> Form:
        if len(self.by_target) >= MOST + len(self._priors):
            loose = [name for name in self.by_target if name not in self._priors]
            for name in loose[: MOST // 2]:
                del self.by_target[name]
                self.crowded.discard(name)
            self.standings.clear()
        form = self.by_target[target] = Form(DEFAULT)
        return form
