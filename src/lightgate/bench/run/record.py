"""The record of every finished request: made, kept, counted against the budget, shown."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from sys import intern
from typing import TYPE_CHECKING, NamedTuple

from lightgate.bench.load.quiet import FULL, breathe
from lightgate.bench.run.budget import CostGuard, largest
from lightgate.bench.run.findings import Measured
from lightgate.clock.attempt import AttemptFacts, AttemptRecord
from lightgate.clock.outcome import Outcome
from lightgate.clock.tokens import Usage
from lightgate.ledger.runs.recording import Recording

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lightgate.bench.load.blocks import InBlock
    from lightgate.bench.run.order import Loading, RunObserver, RunOrder
    from lightgate.ledger.runs.folder import RunFolder
    from lightgate.provider.target import Target


class Reached(NamedTuple):
    """What an earlier part of a run has made of a load."""

    done: int  # requests of each target that count
    sent: int  # requests that were meant to count, of the target with the most
    begun: int  # blocks


class Recorder:
    """Records the requests of a run; `under_way` counts those of each target that have not ended.

    `on_spent` is called once the budget has no room for one more request.
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
        self._guard = CostGuard(order.max_cost, order.agreed)
        tokens_in, tokens_out = largest(order)
        expected = Usage(tokens_in=tokens_in, tokens_out=tokens_out)
        self._each = {  # dollars of one request, at most
            name: target.cost(expected, order.at).cost_usd or Decimal(0)
            for name, target in targets.items()
        }
        self.run_id = run_id
        self.under_way: dict[str, int] = dict.fromkeys(targets, 0)
        self.measured = Measured(attempts=[], recordings={})
        self.has_room = True  # false once the budget has ended a load
        self.on_spent: Callable[[], object] = lambda: None

    def take_up(self, folder: RunFolder) -> None:
        """Count what an earlier part of the run has measured."""
        recordings = folder.recordings()
        kept = [attempt for attempt in folder.attempts() if attempt.id in recordings]
        self.measured = Measured(attempts=kept, recordings=recordings)
        for attempt in kept:
            self._guard.add(attempt, self._each.get(attempt.target, Decimal(0)))

    def paid(self, dollars: Decimal) -> None:
        """Count what the probes cost."""
        self._guard.spent += dollars

    @property
    def may_spend(self) -> bool:
        """Whether the budget has room for one more request of the cheapest target."""
        return self._guard.room(min(self._each.values()))

    @property
    def spent(self) -> str:
        """Why a run was stopped by its budget, as a sentence."""
        return self._guard.sentence

    def reached(self, load: str, targets: Sequence[str], *, unbroken: bool) -> Reached:
        """Tell how far an earlier part of the run has come with a load.

        In turns a block counts if every target has had it; else the least of any target does.
        """
        sent: Counter[str] = Counter()
        whole: dict[str, Counter[int]] = {name: Counter() for name in targets}
        for attempt in self.measured.attempts:
            recording = self.measured.recordings[attempt.id]
            if recording.load != load or recording.warmup or recording.block is None:
                continue
            sent[attempt.target] += 1
            if attempt.outcome is not Outcome.CUT and attempt.target in whole:
                whole[attempt.target][recording.block] += 1
        blocks = {block for counts in whole.values() for block in counts}
        if unbroken:
            done = min((counts.total() for counts in whole.values()), default=0)
        else:
            done = sum(min(counts[block] for counts in whole.values()) for block in blocks)
        return Reached(done, max(sent.values(), default=0), max(blocks, default=-1) + 1)

    def taker(self, load: Loading, begun: int, *, unbroken: bool) -> Callable[[InBlock], None]:
        """Make the function that records the finished requests of a load.

        `begun` are the blocks before it; `unbroken` is true where load does not pause between
        blocks.
        """

        def take(item: InBlock) -> None:
            self.under_way[item.lane] -= 1
            attempt = self._attempt(self._targets[item.lane], load.concurrency, item)
            part = item.finished.job.part
            recording = Recording.of(
                attempt.id,
                item.finished.marks,
                block=None if item.block is None else item.block + begun,
                load=load.label,
                warmup=part != "counted",
                max_tokens=self._order.wish.tokens_out,
                turn=begun if unbroken else None,
                part=part if part in {"ramp", "filler"} else "",
                region=item.finished.region,
            )
            self.measured.attempts.append(attempt)
            self.measured.recordings[attempt.id] = recording
            if self._folder is not None:
                self._folder.append(attempt, recording)
            self._guard.add(attempt, self._each[item.lane])
            self._observer.tick(attempt, warmup=recording.warmup)
            if self._guard.limited and not self._has_room(item.lane, attempt):
                self.on_spent()
            breathe(FULL)

        return take

    def _has_room(self, lane: str, attempt: AttemptRecord) -> bool:
        """Whether the budget has room for those under way, and for the next one of this target."""
        each = self._each
        if attempt.cost_usd is not None and attempt.cost_usd > each[lane]:
            each[lane] = attempt.cost_usd
        waiting = sum(each[name] * count for name, count in self.under_way.items() if count)
        self.has_room = self._guard.room(waiting + each[lane])
        return self.has_room

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
        # Equal texts are kept once: those of a load process come anew with every request.
        finish, said_id = called.finish_reason, called.provider_request_id
        if said_id == finished.job.id:
            said_id = finished.job.id
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
            finish_reason=None if finish is None else intern(finish),
            bytes_in=called.bytes_in,
            bytes_out=called.bytes_out,
            end=called.end,
            provider_request_id=said_id,
        )
        return AttemptRecord.of(facts, finished.marks, tokens)
