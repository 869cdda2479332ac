"""A simulated provider as the target of a job, in virtual time: no socket, no process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from lightgate.batch.share import LineAnswer
from lightgate.route.admission.headers import RateFact
from lightgate.sim.answer.request import read_request
from lightgate.sim.provider import SimProvider

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lightgate.batch.lines import BatchLine
    from lightgate.batch.virtual import LoopClock
    from lightgate.sim.answer.plan import PlannedRequest
    from lightgate.sim.world import World

NS: Final = 1_000_000_000
TRIP_S: Final = 0.02  # there and back


class SimulatedSender:
    """Sends lines to one model of a world's provider; `log` gets each request's end.

    An entry is the second of its begin and of its end, how it ended, and the tokens of the answer.
    """

    def __init__(
        self, world: World, provider: str, model: str, clock: LoopClock, seed: int = 1
    ) -> None:
        self._provider = SimProvider(provider, world, seed=seed, born_ns=0, clock=clock)
        self._price = world.providers[provider].models[model].price
        self._model = model
        self._clock = clock
        self.log: list[tuple[float, float, str, int]] = []

    def cost_nano(self, tokens_in: float, tokens_out: float) -> int | None:
        """Return nano-dollars; None where the world names no price."""
        price = self._price
        if price is None:
            return None
        return round(1000 * (float(price.input) * tokens_in + float(price.output) * tokens_out))

    async def __call__(self, line: BatchLine, exchange_id: str, seq: int) -> LineAnswer:
        """Answer as the simulator would, after as long."""
        del exchange_id, seq
        began_ns = self._clock.now_ns()
        await asyncio.sleep(TRIP_S / 2)
        request = read_request("chat", line.body, self._model)
        planned = self._provider.plan(request, self._clock.now_ns(), None)
        ends_ns = planned.start_ns + planned.plan.script.end_ns
        try:
            await asyncio.sleep(max(0, ends_ns - self._clock.now_ns()) / NS)
        finally:
            self._provider.over(planned, self._clock.now_ns(), gone=False)
        await asyncio.sleep(TRIP_S / 2)
        answer = self._answer(planned, request.tokens_in)
        ended_ns = self._clock.now_ns()
        self.log.append((began_ns / NS, ended_ns / NS, answer.end, answer.tokens_out or 0))
        return answer

    def _answer(self, planned: PlannedRequest, tokens_in: int) -> LineAnswer:
        rates = _facts(planned)
        error = planned.plan.error
        if error is None:
            out = planned.counts.total
            cost = self.cost_nano(tokens_in, out)
            return LineAnswer(
                end="ok", status=200, body=b"{}", rates=rates,
                tokens_in=tokens_in, tokens_out=out, cost_nano=cost,
            )  # fmt: skip
        wait = dict(error.headers).get(b"retry-after")
        return LineAnswer(
            end="refused" if error.status == 429 else "failed",
            status=error.status,
            kind="rate_limited" if error.status == 429 else "server_error",
            message=error.message,
            again=True,
            wait_s=None if wait is None else float(wait),
            rates=rates,
        )


def _facts(planned: PlannedRequest) -> Sequence[RateFact]:
    return [
        RateFact(
            "tokens" if one.what == "tokens" else "requests",
            one.limit,
            float(int(one.remaining)),
            one.reset_s,
            None,
        )
        for one in planned.plan.limits
    ]
