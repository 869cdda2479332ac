"""How many second tries there may be: a share of the traffic, so that no outage is amplified."""

from __future__ import annotations

from typing import Final

from lightgate.route.form.window import Window

SHARE_PERCENT: Final = 20  # of the requests of the last LIFE_S; Envoy's and Finagle's default
FLOOR_PER_S: Final = 3  # granted without any traffic: Envoy's smallest budget, per second
LIFE_S: Final = 10  # a deposit's life, as Finagle's
BUCKET_NS: Final = 1_000_000_000


class RetryBudget:
    """Deposits and withdrawals of the last 10 s.

    The floor may be used at once: a plan with four fallbacks must work as the first request of a
    quiet night. Tries after a failure that is `free` ask nobody.
    """

    __slots__ = ("_window",)

    def __init__(self) -> None:
        self._window = Window(LIFE_S, BUCKET_NS)  # requests, withdrawals

    def deposit(self, now_ns: int) -> None:
        """A request came in (the request, not its attempts)."""
        self._window.add(now_ns, 1, 0)

    def may(self, now_ns: int) -> bool:
        """Take one second try out of the budget; False if there is none."""
        if self.left(now_ns) < 1.0:
            return False
        self._window.add(now_ns, 0, 1)
        return True

    def left(self, now_ns: int) -> float:
        """Second tries that are left at this instant."""
        window = self._window
        window.turn(now_ns)
        granted = FLOOR_PER_S * LIFE_S + window.first * SHARE_PERCENT / 100
        return granted - window.second
