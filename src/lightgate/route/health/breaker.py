"""Breakers: when a failing target is left alone, for how long, and how it comes back.

    closed ──3 hard failures in a row, or under 80 % good of >= 5 in 30 s──► open
      ▲                                                                        │ pause over
      └──── the probe speaks ──── half open: one probe at a time ◄─────────────┘
                                   └── the probe fails: open, pause doubled

A hold (Retry-After, or a 429 without one) is independent of this: it ends by its time alone.
Requests that began before the last change of state say nothing about the state after it, so that a
hundred requests that fail together open a breaker once. An attempt that was made in spite of an
open breaker, because all were open, can close it but never lengthens its pause.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import msgspec

from lightgate.route.health.window import CountWindow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lightgate.route.health.failure import Failure

SECOND_NS: Final = 1_000_000_000
BUCKETS: Final = 10  # of the success ratio: 30 s, as Finagle's and linkerd's accrual
BUCKET_NS: Final = 3 * SECOND_NS
FLOOR: Final = 5  # requests in the window below which a ratio says nothing
RATIO: Final = 0.8  # of successes; below it a target costs more in failovers than it saves
HEALTHY_NS: Final = 60 * SECOND_NS  # two windows without a relapse: the next pause is short again
LEASE_NS: Final = 120 * SECOND_NS  # a probe that never ends blocks the next one for no longer
LONGEST_HOLD_NS: Final = 300 * SECOND_NS  # a longer Retry-After is cut to this
SILENT_HOLD_NS: Final = SECOND_NS  # the first hold after a 429 that names no wait; doubles
LONGEST_SILENT_HOLD_NS: Final = 30 * SECOND_NS
MOST: Final = 4096  # targets that are kept in mind: clients can name any model of a provider
_NEVER: Final = -(1 << 63)

State = Literal["closed", "held", "open", "half_open"]


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """The three numbers that an operator may set: `[gateway.breaker]`."""

    streak: int = 3
    open_ns: int = 5 * SECOND_NS
    max_open_ns: int = 300 * SECOND_NS


class Breaker:
    """The breaker of one target; `draw` gives numbers in [0, 1) for the jitter."""

    __slots__ = (
        "_changed_ns",
        "_draw",
        "_held_ns",
        "_probe_ns",
        "_rules",
        "_streak",
        "_window",
        "hold_until_ns",
        "level",
        "limited",
        "open_until_ns",
    )

    def __init__(self, rules: Rules, draw: Callable[[], float]) -> None:
        self._rules = rules
        self._draw = draw
        self._window = CountWindow(BUCKETS, BUCKET_NS)  # good, all
        self._streak = 0
        self._changed_ns = _NEVER  # the last opening or closing
        self._held_ns = _NEVER  # when the hold was set
        self._probe_ns: int | None = None  # when the probe under way began
        self.open_until_ns: int | None = None  # None: closed
        self.hold_until_ns = _NEVER
        self.level = 0  # how often the pause has doubled
        self.limited = 0  # 429s without a wait, since the last success

    def state(self, now_ns: int) -> State:
        """Return the state, which says what happens to a request now."""
        if self.open_until_ns is not None:
            return "open" if now_ns < self.open_until_ns else "half_open"
        return "held" if now_ns < self.hold_until_ns else "closed"

    def quiet(self, now_ns: int) -> bool:
        """Return whether the breaker is closed and without a hold."""
        return self.open_until_ns is None and now_ns >= self.hold_until_ns

    def allows(self, now_ns: int) -> bool:
        """Return whether a request may go there now; in half open only while no probe runs."""
        if now_ns < self.hold_until_ns:
            return False
        if self.open_until_ns is None:
            return True
        if now_ns < self.open_until_ns:
            return False
        return self._probe_ns is None or now_ns - self._probe_ns >= LEASE_NS

    @property
    def opens_again_ns(self) -> int:
        """The instant from which a request, or a probe, may go there; long past if it may now."""
        if self.open_until_ns is None:
            return self.hold_until_ns
        return max(self.open_until_ns, self.hold_until_ns)

    def started(self, now_ns: int) -> None:
        """Take in an attempt that begins; where the pause is over it is the probe."""
        if self.open_until_ns is not None and self.allows(now_ns):
            self._probe_ns = now_ns

    def spoke(self, now_ns: int, since_ns: int) -> None:
        """Take in the first useful token of an attempt begun at `since_ns`: a probe has passed."""
        if since_ns < self._changed_ns:
            return
        if since_ns > self._held_ns:
            self.hold_until_ns = _NEVER
        if self.open_until_ns is not None:
            self._close(now_ns)

    def succeeded(self, now_ns: int, since_ns: int) -> None:
        """Take in the good end of an attempt that began at `since_ns`."""
        if since_ns < self._changed_ns:
            return
        if self.open_until_ns is not None or self.hold_until_ns != _NEVER:
            self.spoke(now_ns, since_ns)
        self.limited = 0
        self._streak = 0
        self._window.add(now_ns, 1, 1)
        if self.level and now_ns - self._changed_ns >= HEALTHY_NS:
            self.level = 0

    def failed(self, now_ns: int, kind: Failure, wait_s: float | None, since_ns: int) -> None:
        """Take in the failure of an attempt begun at `since_ns`; `wait_s`: the wait asked for."""
        probe = self._probe_ns is not None and since_ns == self._probe_ns
        if probe:
            self._probe_ns = None
        if kind.fails_over:
            self._hold(now_ns, kind, wait_s)
        if kind.counts == "none" or since_ns < self._changed_ns:
            return
        if self.open_until_ns is not None:
            if probe:
                self.level += 1
                self._open(now_ns)
            return
        self._window.add(now_ns, 0, 1)
        if kind.counts == "hard":
            self._streak += 1
        if self._streak >= self._rules.streak or self._poor():
            self._open(now_ns)

    def use(self, rules: Rules) -> None:
        """Follow other rules from the next opening on."""
        self._rules = rules

    def rest_ns(self, now_ns: int) -> tuple[int, int]:
        """Return how long the breaker stays open and held, from now on; 0: not at all."""
        open_ns = 0 if self.open_until_ns is None else max(0, self.open_until_ns - now_ns)
        return open_ns, max(0, self.hold_until_ns - now_ns)

    def told(self, now_ns: int, open_ns: int, hold_ns: int) -> None:
        """Take in that another machine rests this target for so long.

        A hold is the provider's own word. An opening is another machine's experience: it counts
        only where this one has had no answer from the target in the window.
        """
        if now_ns + hold_ns > self.hold_until_ns and hold_ns > 0:
            self.hold_until_ns = now_ns + min(hold_ns, LONGEST_HOLD_NS)
            self._held_ns = now_ns
        self._window.add(now_ns, 0, 0)
        if open_ns > 0 and self.open_until_ns is None and not self._window.first:
            self.open_until_ns = now_ns + min(open_ns, self._rules.max_open_ns)
            self._changed(now_ns)

    def _poor(self) -> bool:
        window = self._window
        return window.second >= FLOOR and window.first < RATIO * window.second

    def _open(self, now_ns: int) -> None:
        rules = self._rules
        pause = min(rules.open_ns << min(self.level, 32), rules.max_open_ns)
        # Equal jitter: half of it is certain, so that "growing" holds; half of it keeps workers
        # from probing in step.
        self.open_until_ns = now_ns + pause // 2 + int(self._draw() * (pause - pause // 2))
        self._changed(now_ns)

    def _close(self, now_ns: int) -> None:
        self.open_until_ns = None
        self._changed(now_ns)

    def _changed(self, now_ns: int) -> None:
        self._changed_ns = now_ns
        self._probe_ns = None
        self._streak = 0
        self._window.clear()

    def _hold(self, now_ns: int, kind: Failure, wait_s: float | None) -> None:
        if wait_s is not None:
            wait_ns = int(min(max(wait_s, 0.0), LONGEST_HOLD_NS / SECOND_NS) * SECOND_NS)
        elif kind.kind == "rate_limited":
            most = min(SILENT_HOLD_NS << min(self.limited, 32), LONGEST_SILENT_HOLD_NS)
            wait_ns = most // 2 + int(self._draw() * (most - most // 2))
            self.limited += 1
        else:
            return
        if now_ns + wait_ns > self.hold_until_ns:
            self.hold_until_ns = now_ns + wait_ns
            self._held_ns = now_ns


class Breakers:
    """The breakers of all targets. All events come in here, so that `troubled` is right.

    Nothing here takes a target out of a plan: `decide` puts those that are not allowed last.
    """

    __slots__ = ("_breakers", "_draw", "_rules", "troubled")

    def __init__(self, rules: Rules, draw: Callable[[], float]) -> None:
        self._rules = rules
        self._draw = draw
        self._breakers: dict[str, Breaker] = {}
        self.troubled: set[str] = set()  # every target that is not quiet, and some that are again

    def __len__(self) -> int:
        return len(self._breakers)

    def get(self, target: str) -> Breaker | None:
        """Return the breaker of a target; None: it had no event yet."""
        return self._breakers.get(target)

    def targets(self) -> Iterable[str]:
        """Return every target that has a breaker."""
        return tuple(self._breakers)

    def states(self, now_ns: int) -> dict[str, State]:
        """Return the state of every target that is not closed."""
        found = {target: self._breakers[target].state(now_ns) for target in self.troubled}
        return {target: state for target, state in found.items() if state != "closed"}

    def resting(self, now_ns: int) -> dict[str, tuple[int, int]]:
        """Return how long each target rests from now on, open and held, for other machines."""
        found = {target: self._breakers[target].rest_ns(now_ns) for target in self.troubled}
        return {target: rest for target, rest in found.items() if any(rest)}

    def told(self, target: str, now_ns: int, open_ns: int, hold_ns: int) -> None:
        """Take in that another machine rests a target."""
        breaker = self._breakers.get(target)
        if breaker is None:
            breaker = self._new(target, now_ns)
        breaker.told(now_ns, open_ns, hold_ns)
        self._note(target, breaker, now_ns)

    def use(self, rules: Rules) -> None:
        """Follow other rules from the next opening on; what is open stays so."""
        self._rules = rules
        for breaker in self._breakers.values():
            breaker.use(rules)

    def allows(self, target: str, now_ns: int) -> bool:
        """Return whether a request may go there now."""
        if target not in self.troubled:
            return True
        return self._breakers[target].allows(now_ns)

    def all_quiet(self, targets: Iterable[str]) -> bool:
        """Return whether none of these targets is in trouble: every one may be asked now."""
        troubled = self.troubled
        return not troubled or troubled.isdisjoint(targets)

    def opens_again_ns(self, target: str) -> int:
        """Return the instant from which a request may go there; long past if it may now."""
        breaker = self._breakers.get(target)
        return _NEVER if breaker is None else breaker.opens_again_ns

    def soonest_ns(self, targets: Iterable[str], now_ns: int) -> int | None:
        """Return when the first of these may be asked again; None if one may now.

        Where a probe is under way that is `now_ns`: it may succeed at any moment.
        """
        again = []
        for target in targets:
            if self.allows(target, now_ns):
                return None
            again.append(self._breakers[target].opens_again_ns)
        return max(min(again), now_ns) if again else None

    def started(self, target: str, now_ns: int) -> None:
        """Take in an attempt that begins."""
        if target in self.troubled:
            self._breakers[target].started(now_ns)

    def spoke(self, target: str, now_ns: int, since_ns: int) -> None:
        """Take in the first useful token of an attempt that began at `since_ns`."""
        if target in self.troubled:
            breaker = self._breakers[target]
            breaker.spoke(now_ns, since_ns)
            self._note(target, breaker, now_ns)

    def succeeded(self, target: str, now_ns: int, since_ns: int) -> None:
        """Take in the good end of an attempt that began at `since_ns`."""
        breaker = self._breakers.get(target)
        if breaker is None:
            breaker = self._new(target, now_ns)
        breaker.succeeded(now_ns, since_ns)
        if self.troubled:
            self._note(target, breaker, now_ns)

    def failed(
        self, target: str, now_ns: int, kind: Failure, wait_s: float | None, since_ns: int
    ) -> None:
        """Take in the failure of an attempt that began at `since_ns`."""
        breaker = self._breakers.get(target)
        if breaker is None:
            breaker = self._new(target, now_ns)
        breaker.failed(now_ns, kind, wait_s, since_ns)
        self._note(target, breaker, now_ns)

    def _note(self, target: str, breaker: Breaker, now_ns: int) -> None:
        if breaker.quiet(now_ns):
            self.troubled.discard(target)
        else:
            self.troubled.add(target)

    def _new(self, target: str, now_ns: int) -> Breaker:
        if len(self._breakers) >= MOST:
            self._forget(now_ns)
        breaker = self._breakers[target] = Breaker(self._rules, self._draw)
        return breaker

    def _forget(self, now_ns: int) -> None:
        """Drop the oldest quiet half; where none is quiet, the oldest half."""
        old = [name for name, breaker in self._breakers.items() if breaker.quiet(now_ns)]
        for name in (old or list(self._breakers))[: MOST // 2]:
            del self._breakers[name]
            self.troubled.discard(name)
