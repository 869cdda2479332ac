"""The books of soak.py: what clients wrote down against what the ledger has.

Every failure needs a fault that explains it; every answer must be in the ledger once and at its
price; no key may have spent more than its budget and what was reserved once for each worker.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections import Counter, defaultdict
from decimal import Decimal
from typing import TYPE_CHECKING, NamedTuple

from soak_chaos import DEATH, DRAIN_S, REMOVED, Window
from soak_clients import TROUBLED
from soak_dialects import LONGEST

from lightgate.gateway.spend.counters import SpendCounters
from lightgate.ledger.journal.ship import ORPHANED
from lightgate.ledger.store.keys import read_keys
from lightgate.ledger.store.queries import spend_per_key
from lightgate.ledger.store.store import Ledger

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from soak_clients import Asked

NANO = 1_000_000_000
IN_NANO, OUT_NANO = 1_000, 2_000  # the price of a token: every target has the same
RESERVED_NANO = 2 * (300 * IN_NANO + LONGEST * OUT_NANO)  # the dearest request, at two targets
# What each kind of event may do to a request that ends in its window.
HEAD_S = 10.0  # for the head of a request, from when a worker has it
RESTARTS = frozenset({"restart", "kill all"})  # nobody listens for a while
BREAKS = RESTARTS | {DEATH}
REPLACES = frozenset({"reload", "replace"})  # a request has the time of the drain, and no more
BOOKED_CUT = BREAKS | {"kill worker", "stop worker"}
SHED = ("overloaded", "overloaded_error", "UNAVAILABLE")
NEAR_S = 10.0  # of an event that is told beside a failure that nothing explains
SHOWN = 5
KEPT = "kept"  # the kind of client that asks again on its connection
KEEPING = frozenset({KEPT, "openai SDK"})
BEHIND = "worker behind"  # the kind of window in which the log says so
FAREWELL_S = 0.05  # from the end of a process to a client that is about to use its connection again
NOTICED_S = 0.25  # between an event and the turn of the client that sees it, on an idle machine
# A client that reads or writes now and then notices as late as it pauses.
PAUSES_S = {"slow reader": 8.5, "slow sender": 1.2, "openai SDK": 0.75}
# A worker says that it is behind when it is, and at most every ten seconds.
BEHIND_S = 10.0
MOST_BEHIND = 0.001  # of all requests: more would be a gateway that turns its users away
READ_S = 1.0  # a changed file is read when two looks a second apart found it the same, or later
TAKEN_S = 1.0  # after the log says so: a worker looks for the new snapshot twice a second


class LedgerRow(NamedTuple):
    """An exchange in the ledger."""

    id: str
    request_id: str
    key_id: str | None
    status: int
    outcome: str
    error: str | None
    cost_nano: int | None
    cost_source: str | None
    loser_cost_nano: int | None
    tokens_in: int | None
    tokens_out: int | None
    cache: str


class Said(NamedTuple):
    """When the log said that a file was taken over, that `up` serves, that a worker is behind."""

    taken_over: Sequence[float] = ()
    serving: Sequence[float] = ()
    behind: Sequence[float] = ()


NOTHING_SAID = Said()


class Books:
    """The verdict: `misses` must be empty; `figures` are for the table."""

    def __init__(
        self,
        data: Path,
        book: Sequence[Asked],
        windows: Sequence[Window],
        lags: Sequence[tuple[float, float]] = (),
        said: Said = NOTHING_SAID,
    ) -> None:
        self.data = data
        self.book = book
        begun = [one.began for one in windows if one.kind in RESTARTS]
        self.windows = [_taken(one, said, begun) if one.kind == REMOVED else one for one in windows]
        self.windows += [Window(BEHIND, at - NOTICED_S, at + BEHIND_S) for at in said.behind]
        self.lags = lags
        self.misses: list[str] = []
        self.figures: dict[str, object] = {}
        self.explained: Counter[str] = Counter()

    def close(self, workers: int) -> None:
        """Look at everything."""
        self._failures()
        rows = self._rows()
        self._once(rows)
        self._prices(rows)
        self._money(rows, workers)
        self._left_over()

    def _miss(self, what: str, ones: Iterable[object]) -> None:
        found = list(ones)
        self.figures[what] = len(found)
        if found:
            shown = "; ".join(str(one) for one in found[:SHOWN])
            self.misses.append(f"{what}: {len(found)}, such as {shown}")

    # Failures

    def _failures(self) -> None:
        without = []
        for asked in self.book:
            why = self._explanation(asked)
            if why:
                self.explained[f"{asked.how}: {why}"] += 1
            else:
                without.append(asked)
        self.figures["requests"] = len(self.book)
        self.figures["answered whole"] = sum(asked.how == "whole" for asked in self.book)
        behind = self.explained[f"refused: {BEHIND}"]
        if behind > MOST_BEHIND * len(self.book):
            self.misses.append(f"{behind} requests were refused by a worker that was behind")
        self._miss("failures that no fault explains", [self._with_events(one) for one in without])
        took = [asked.ended - asked.began for asked in self.book]
        self.figures["longest, s"] = round(max(took, default=0.0), 1)

    def _with_events(self, asked: Asked) -> str:
        """Write down a failure that nothing explains, with what went on around it."""
        near = [
            f"{window.kind} from {window.began - asked.ended:+.2f} to"
            f" {window.ended - asked.ended:+.2f} s"
            for window in self.windows
            if window.began - NEAR_S <= asked.ended <= window.ended + NEAR_S
        ]
        return f"{asked}; around its end: {', '.join(near) or 'nothing'}"

    def _explanation(self, asked: Asked) -> str:
        """Why this end is right; empty where nothing explains it."""
        if asked.how in {"whole", "left"}:
            return asked.kind if asked.how == "left" else "whole"
        if asked.how == "connect":
            return self._around(asked, RESTARTS)
        if asked.how == "broken":
            return self._around(asked, BREAKS) or self._too_slow(asked)
        if asked.how == "refused":
            return self._refusal(asked)
        if asked.how == "event":
            return "provider" if asked.model in TROUBLED else self._drained(asked)
        return self._unserved(asked) if asked.how == "hung" else ""

    def _too_slow(self, asked: Asked) -> str:
        """The event for which a worker gave up a request that took longer to come than its drain.

        It is told 503; a client that goes on sending and does not read is reset after two seconds.
        """
        lasted = asked.ended - asked.began > DRAIN_S
        return self._around(asked, REPLACES) if lasted and asked.kind == "slow sender" else ""

    def _unserved(self, asked: Asked) -> str:
        """The start for which a request waited so long that it had no time left for an answer.

        The port is held while `up` starts: on a starved machine that is half a minute.
        """
        left = asked.ended - asked.began
        found = [one for one in self.windows if one.kind in RESTARTS]
        for window in found:
            left -= max(0.0, min(window.ended, asked.ended) - max(window.began, asked.began))
        return "no worker yet" if left < HEAD_S + NOTICED_S else ""

    def _drained(self, asked: Asked) -> str:
        """The event that ended a request with words: a stop, or the end of a drain."""
        lasted = asked.ended - asked.began > DRAIN_S - 1.0
        return self._around(asked, RESTARTS | REPLACES if lasted else RESTARTS)

    def _refusal(self, asked: Asked) -> str:
        status, code = asked.status, asked.code
        if status == 402 and asked.key.startswith("budget"):
            return "budget"
        if status == 404 and asked.model == "extra":
            return self._around(asked, {REMOVED})
        if status == 503 and asked.retry_after:
            shed = {"full disk", "crowd", BEHIND}
            own = {"journal": {"full disk"}, **dict.fromkeys(SHED, shed)}
            return self._around(asked, own.get(code, ())) or self._drained(asked)
        if status == 408 and asked.kind == "slow sender":
            return "too slow"
        return "provider" if asked.model in TROUBLED and status >= 429 else ""

    def _around(self, asked: Asked, kinds: Iterable[str]) -> str:
        """The event of these kinds that was under way when a request ended.

        What a client wrote down as its end is at most its own delay after it. A client that keeps
        its connection looks whether it was closed; what came just now, or while this program was
        late, it sees only then.
        """
        late = NOTICED_S + PAUSES_S.get(asked.kind, 0.0) + self._late(asked.ended)
        blind = FAREWELL_S + self._late(asked.began) if asked.kind in KEEPING else 0.0
        for window in self.windows:
            under_way = window.began <= asked.ended and asked.began - blind <= window.ended
            if window.kind in kinds and under_way and asked.ended - late <= window.ended:
                return window.kind
        return ""

    def _late(self, at: float) -> float:
        """How late this program was when it wrote that instant down."""
        found = [late for end, late in self.lags if end - late <= at <= end + NOTICED_S]
        return max(found, default=0.0)

    # The ledger

    def _rows(self) -> list[LedgerRow]:
        names = ", ".join(LedgerRow._fields)
        with contextlib.closing(sqlite3.connect(self.data / "ledger.sqlite")) as ledger:
            (sound,) = ledger.execute("PRAGMA integrity_check").fetchone()
            if sound != "ok":
                self.misses.append(f"the ledger is damaged: {sound}")
            found = ledger.execute(f"SELECT {names} FROM exchanges").fetchall()  # noqa: S608 - our own words
            (waiting,) = ledger.execute("SELECT count(*) FROM reservations").fetchone()
        self._miss("reservations left open", range(waiting))
        self.figures["exchanges in the ledger"] = len(found)
        return [LedgerRow(*row) for row in found]

    def _once(self, rows: list[LedgerRow]) -> None:
        """Everything that a client knows is there, once, and as the client knows it."""
        by_id = {row.id: row for row in rows}
        times = Counter(row.request_id for row in rows)
        seen = [asked for asked in self.book if asked.gate_id]
        self._miss("lost: known to a client and not in the ledger",
                   [asked for asked in seen if asked.gate_id not in by_id])  # fmt: skip
        self._miss("doubled: one request, several rows",
                   [one for one, count in times.items() if count > 1])  # fmt: skip
        mixed = [a for a in seen if a.gate_id in by_id and by_id[a.gate_id].request_id != a.id]
        self._miss("mixed up: the row of another request", mixed)
        whole = [(a, by_id[a.gate_id]) for a in seen if a.how == "whole" and a.gate_id in by_id]
        cut = [(a, row) for a, row in whole if row.error == ORPHANED]
        self.figures["answered whole, booked as cut"] = len(cut)
        self._miss("cut without a death of its worker",
                   [a for a, _ in cut if not self._around(a, BOOKED_CUT)])  # fmt: skip
        self._miss("answered whole, booked otherwise", [
            (a, row) for a, row in whole
            if row.error != ORPHANED and (row.status, row.outcome) != (200, "ok")
        ])  # fmt: skip
        self.figures["cut"] = sum(row.error == ORPHANED for row in rows)

    def _prices(self, rows: list[LedgerRow]) -> None:
        """A whole answer costs what its tokens cost, and its tokens are those the client saw."""
        by_id = {row.id: row for row in rows}
        wrong = []
        for asked in self.book:
            row = by_id.get(asked.gate_id)
            if asked.how != "whole" or row is None or row.error == ORPHANED:
                continue
            due = (row.tokens_in or 0) * IN_NANO + (row.tokens_out or 0) * OUT_NANO
            due = 0 if row.cache in {"hit", "join"} else due
            if row.cost_nano != due or asked.usage != (row.tokens_in, row.tokens_out):
                wrong.append((asked, row))
        self._miss("prices that are not their tokens'", wrong)
        cut = [row for row in rows if row.error == ORPHANED]
        self._miss("cut without a price", [row for row in cut if not row.cost_nano])

    def _money(self, rows: list[LedgerRow], workers: int) -> None:
        """Rows, sums and counters agree; no budget was exceeded."""
        spent: dict[str, int] = defaultdict(int)
        for row in rows:
            spent[row.key_id or ""] += (row.cost_nano or 0) + (row.loser_cost_nano or 0)
        ledger = Ledger.open("sqlite", self.data)
        try:
            with ledger.reading() as connection:
                keys = read_keys(connection)
            summed = {key: int(usd * NANO) for key, usd in spend_per_key(ledger).items()}
        finally:
            ledger.close()
        adrift, over = [], []
        with SpendCounters.open(self.data / "spend", 0, keys) as counters:
            for key in keys:
                rows_nano = spent.get(key.id, 0)
                if summed.get(key.id, 0) != rows_nano:
                    adrift.append(f"{key.name}: rows {rows_nano}, sums {summed.get(key.id)}")
                standing = counters.standing(key.id)
                if key.budget_usd is None:
                    continue
                if standing is None or (standing.spent_nano, standing.held_nano) != (rows_nano, 0):
                    adrift.append(f"{key.name}: rows {rows_nano}, counters {standing}")
                most = int(key.budget_usd * NANO) + workers * RESERVED_NANO
                if rows_nano > most:
                    over.append(f"{key.name}: {rows_nano} of {most}")
        self._miss("keys whose rows, sums and counters differ", adrift)
        self._miss("keys over their budget by more than a reservation of each worker", over)
        self.figures["spent, $"] = float(Decimal(sum(spent.values())) / NANO)
        self.figures["keys with a budget"] = sum(key.budget_usd is not None for key in keys)

    def _left_over(self) -> None:
        """Nothing but what belongs there is left in the data folder."""
        journals = [path.name for path in (self.data / "journal").iterdir()]
        self._miss("journals left after the end", journals)
        # A worker that is killed while it writes its form leaves a file that the next replaces.
        unfinished = [path for path in self.data.rglob("*.new") if path.parent.name != "form"]
        self._miss("unfinished files", [path.name for path in unfinished])


def _taken(removed: Window, said: Said, begun: Sequence[float]) -> Window:
    """The time in which a model was not served that a file did not name.

    `up` serves what it read when it started: a file that was changed while it did, which takes ten
    seconds on a starved machine, is taken over after it serves.
    """
    later = [at for at in said.taken_over if at >= removed.ended + READ_S]
    later += [
        at
        for at in said.serving
        if max((one for one in begun if one <= at), default=0.0) >= removed.ended
    ]
    until = min(later, default=float("inf"))  # the last change of all may never be taken over
    return Window(REMOVED, removed.began, until + TAKEN_S)
