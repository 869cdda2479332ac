"""The record of every finished request: made, kept, counted against the budget, shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightgate.bench.load.quiet import FULL, breathe
from lightgate.bench.run.budget import CostGuard
from lightgate.bench.run.findings import Measured
from lightgate.clock.attempt import AttemptFacts, AttemptRecord
from lightgate.clock.tokens import Usage
from lightgate.ledger.runs.recording import Recording

if TYPE_CHECKING:
    from collections.abc import Callable

    from lightgate.bench.load.blocks import InBlock
    from lightgate.bench.run.order import Loading, RunObserver, RunOrder
    from lightgate.ledger.runs.folder import RunFolder
    from lightgate.provider.target import Target


class Recorder:
    """Records the requests of a run; `under_way` counts those of each target that have not ended.

    `on_spent` is called once --max-cost has no room for one more request.
    """

    def __init__(
        self,
        order: RunOrder,
        run_id: str,
        targets: dict[str, Target],
        folder: RunFolder | None,
        observer: RunObserver,
    ) -> None:
        self._order = order
        self._targets = targets
        self._folder = folder
        self._observer = observer
        self._guard = CostGuard(order.max_cost)
        expected = Usage(tokens_in=order.wish.tokens_in, tokens_out=order.wish.tokens_out)
        costs = [target.cost(expected, order.at).cost_usd for target in order.targets]
        self._dearest = max((cost for cost in costs if cost is not None), default=None)
        self.run_id = run_id
        self.under_way: dict[str, int] = dict.fromkeys(targets, 0)
        self.measured = Measured(attempts=[], recordings={})
        self.on_spent: Callable[[], object] = lambda: None

    def take_up(self, folder: RunFolder) -> None:
        """Count what an earlier part of the run has measured."""
        recordings = folder.recordings()
        kept = [attempt for attempt in folder.attempts() if attempt.id in recordings]
        self.measured = Measured(attempts=kept, recordings=recordings)

    @property
    def may_spend(self) -> bool:
        """Whether --max-cost has room for one more request beside those under way."""
        return self._guard.room(sum(self.under_way.values()), self._dearest)

    @property
    def spent(self) -> str:
        """Why a run was stopped by its budget, as a sentence."""
        return self._guard.sentence

    def blocks_done(self, load: str) -> int:
        """Count the blocks of a load that an earlier part of the run has begun."""
        recordings = self.measured.recordings.values()
        blocks = [r.block for r in recordings if r.load == load and r.block is not None]
        return max(blocks, default=-1) + 1

    def taker(self, load: Loading, done: int, *, unbroken: bool) -> Callable[[InBlock], None]:
        """Make the function that records the finished requests of a load.

        `done` are the blocks before it; `unbroken` is true where load does not pause between
        blocks.
        """
        limited = self._order.max_cost is not None

        def take(item: InBlock) -> None:
            self.under_way[item.lane] -= 1
            attempt = self._attempt(self._targets[item.lane], load.concurrency, item)
            recording = Recording.of(
                attempt.id,
                item.finished.marks,
                block=None if item.block is None else item.block + done,
                load=load.label,
                warmup=item.block is None and load.pacer is None,
                max_tokens=self._order.wish.tokens_out,
                turn=done if unbroken else None,
            )
            self.measured.attempts.append(attempt)
            self.measured.recordings[attempt.id] = recording
            if self._folder is not None:
                self._folder.append(attempt, recording)
            self._guard.add(attempt)
            self._observer.tick(attempt, warmup=recording.warmup)
            if limited and not self.may_spend:
                self.on_spent()
            breathe(FULL)

        return take

    def _attempt(self, target: Target, concurrency: int | None, item: InBlock) -> AttemptRecord:
        finished = item.finished
        called, tokens = finished.called, finished.called.tokens
        usage = Usage(
            tokens_in=tokens.tokens_in,
            tokens_out=tokens.out,
            tokens_reasoning=tokens.reasoning,
            tokens_cached=tokens.cached,
            tier=tokens.tier,
        )
        cost = target.cost(usage, self._order.at)
        facts = AttemptFacts(
            id=finished.job.id,
            exchange_id=finished.job.id,
            run_id=self.run_id,
            source="bench",
            target=target.name,
            provider=target.provider.name,
            model=target.model,
            dialect=target.provider.dialect,
            seq=len(self.measured.attempts) + 1,
            concurrency=concurrency,
            outcome=called.outcome,
            status=called.status,
            error=None if called.error is None else called.error.message,
            streamed=called.streamed,
            wall_ns=finished.wall_ns,
            cost_usd=cost.cost_usd,
            cost_source=cost.cost_source,
            price_as_of=cost.price_as_of,
            finish_reason=called.finish_reason,
            bytes_in=called.bytes_in,
            bytes_out=called.bytes_out,
            end=called.end,
            provider_request_id=called.provider_request_id,
        )
        return AttemptRecord.of(facts, finished.marks, tokens)
