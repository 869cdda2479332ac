"""Every pair of faults, in a race of two and as a primary with its hedge: one answer, one bill.

All pairs share one gateway, one simulator and one loop with a clock of its own, many at a time. The
rows and the simulator's log say which of the two should win.
"""

from __future__ import annotations

import asyncio
import json
from bisect import bisect_right
from hashlib import blake2b
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from gateway.faulted import ROWS, Field, Row, last_error, said
from lightgate.gateway.exchange.exchange import Exchange
from lightgate.route.observe import Observer
from lightgate.route.plan.course import RetryBudget
from lightgate.route.plan.hedge import HedgeBudgets
from lightgate.sim.answer.script import BURSTS
from sim.conftest import QUICK

if TYPE_CHECKING:
    from gateway.conftest import Start
    from lightgate.gateway.exchange.attempt import Attempt
    from lightgate.ledger.journal.notes import AttemptNote, Settled
    from lightgate.sim.log import SimLogEntry
    from sim.conftest import Answer

pytestmark = pytest.mark.timeout(600)  # seconds: thousands of requests, and each has its own limit
MS = 1_000_000
TOKENS = 8
CLOSED_MS = 1
TOGETHER_MS = 1  # first tokens that the simulator wrote so near to each other are a draw
# One of each name of the simulator's table, and both sides of the first token where it matters.
NAMES = [
    "refused", "tls-self-signed", "tls-expired", "tls-wrong-name", "tls-truncated", "hang",
    "rate-limited:2", "rate-limited-date:30", "rate-limited-ms:1500", "rate-limited-epoch:30",
    "rate-limited-silent:20", "status:500", "status:400", "error-200", "choices-null", "empty",
    "stream-error:0", "stream-error:1", "truncated:0", "truncated:5", "no-last-chunk", "reset:0",
    "reset:5", "garbage", "html", "utf8-split", "crlf", "cr", "bom", "no-space", "comments",
    "blank-lines", "huge-event:65536", "huge-event:5000000", "drip:0.05", "stall:0", "stall:5",
    "stall:5,0.1", "early-close", "double-done", "after-done", "no-finish", "usage-absent",
    "usage-finish", "usage-separate", "usage-late", "usage-every", "usage-fused", "finish:abort",
    "finish:length", "finish-every", "silence:0.2", "early-role:0.2", "ignore-cancel", "stale",
    "long-length", "bad-chunk:0", "bad-chunk:1",
]  # fmt: skip
FEW = [
    "refused", "hang", "rate-limited:2", "status:500", "status:400", "error-200", "empty",
    "stream-error:0", "stream-error:1", "truncated:5", "reset:0", "reset:5", "garbage", "crlf",
    "stall:5", "early-close", "after-done", "usage-absent", "finish:abort", "silence:0.2",
    "early-role:0.2", "ignore-cancel", "stale", "bad-chunk:1",
]  # fmt: skip
WAITS = [Row("F25", "silence:0.2"), Row("F26", "early-role:0.2")]
BY_NAME = {row.fault: row for row in (*ROWS, *WAITS)}
LANES = 23  # one request at a time in each; no row of pairs is all in one
HEDGE_MS = 30


def world(late_ms: int) -> dict[str, Any]:
    """Two providers for every lane: what one lane did is then in a log of its own."""
    tree: dict[str, Any] = json.loads(json.dumps(QUICK))
    makers = tree["providers"] = {"lab": tree["providers"]["lab"]}
    plain = {"exact": {"ttft_ms": late_ms, "gap_ms": 0}, "shape": {"role_ms": 0}}
    makers["late"] = {"models": {"plain": plain}}
    for lane in range(LANES):
        makers[f"lab{lane}"] = {"like": "lab"}
        makers[f"late{lane}"] = {"like": "late"}
    return tree


class Pair(NamedTuple):
    """Two faults on the targets of a lane; a hedge is quick where its primary is late."""

    model: str
    lane: int
    first: Row
    second: Row
    hedged: bool

    @property
    def targets(self) -> tuple[str, str]:
        quick, late = (
            self._target("lab", self.second if self.hedged else self.first),
            self._target("late", self.first if self.hedged else self.second),
        )
        return (late, quick) if self.hedged else (quick, late)

    def _target(self, maker: str, row: Row) -> str:
        if row.target.startswith("broken/"):
            return f"{row.fault}{maker}/plain"
        return f"{maker}{self.lane}/plain!{row.fault}"

    @property
    def config(self) -> str:
        more = f'hedge = "{HEDGE_MS}ms"' if self.hedged else 'hedge = "off"\nrace = 2'
        return (
            f"[models.{self.model}]\ntargets = {json.dumps(self.targets)}\n"
            'policy = "ordered"\nttft_timeout = "1s"\ntimeout = "1500ms"\n'
            f'idle_timeout = "800ms"\n{more}\n'
        )


def all_pairs(names: list[str], *, hedged: bool) -> list[Pair]:
    """Each pair in both orders; of a race, which asks both at once, in one of them by turns."""
    rows = [BY_NAME[name] for name in names]
    taken = [
        (first, second)
        for (at, first), (place, second) in product(enumerate(rows), enumerate(rows))
        if hedged or at == place or (at < place) == ((at + place) % 2 == 0)
    ]
    return [
        Pair(f"m{number:04}", number % LANES, first, second, hedged)
        for number, (first, second) in enumerate(taken)
    ]


def providers() -> str:
    """A late provider bills a closed stream in full, a quick one what was seen of it."""
    text = []
    for lane in range(LANES):
        for maker in (f"lab{lane}", f"late{lane}"):
            stops = json.dumps(maker.startswith("lab"))
            text.append(
                f'[providers.{maker}]\nbase_url = "http://127.0.0.1:{{port}}/{maker}/v1"\n'
                f'dialect = "openai"\napi_key = "none"\nabort_stops_billing = {stops}\n'
            )
    for row in (BY_NAME[name] for name in NAMES):
        if row.target.startswith("broken/"):
            port = f"{{trouble_{row.fault.replace('-', '_')}}}"
            scheme = "https" if row.fault.startswith("tls") else "http"
            text += [
                f'[providers.{row.fault}{maker}]\nbase_url = "{scheme}://127.0.0.1:{port}/v1"\n'
                'dialect = "openai"\napi_key = "none"\n'
                for maker in ("lab", "late")
            ]
    return "".join(text)


def prices(pairs: list[Pair]) -> str:
    targets = dict.fromkeys(target for pair in pairs for target in pair.targets)
    return "".join(f'[prices."{target}"]\ninput = 1\noutput = 2\n' for target in targets)


def speaks(row: Row) -> bool:
    return row.late or row.outcome(stream=True) == "ok"


class Watch:
    """The sockets of losers that were still open after a commit."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left_open: list[str] = []
        commit = Exchange.commit

        def watched(exchange: Exchange, attempt: Attempt) -> bool:
            decided = exchange.winner is not None
            mine = commit(exchange, attempt)
            if mine and not decided:
                self.left_open += [
                    f"{attempt.step.target}: {other.step.target}"
                    for other in exchange.attempts
                    if other is not attempt and not closed(other)
                ]
            return mine

        monkeypatch.setattr(Exchange, "commit", watched)


def closed(attempt: Attempt) -> bool:
    """Whether an attempt has no socket any more: closed, given back, or never to be connected."""
    trip = attempt._trip
    if not attempt.began_ns:
        return True
    if trip is None:
        return attempt._cancelled
    return trip.over


def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pair depends on those before it: failures teach nothing, and every budget is full."""

    def forget(observer: Observer, target: str, size: int, now_ns: int, *_: object) -> None:
        observer.forms.ended(target)

    monkeypatch.setattr(Observer, "failed", forget)
    monkeypatch.setattr(RetryBudget, "may", lambda *_: True)
    monkeypatch.setattr(HedgeBudgets, "may", lambda *_: True)


class Log:
    """The simulator's entries by the attempts that they belong to."""

    def __init__(self, entries: tuple[SimLogEntry, ...], books: list[Settled]) -> None:
        self._of: dict[str, SimLogEntry] = {}
        by_maker: dict[str, list[SimLogEntry]] = {}
        for entry in sorted(entries, key=lambda entry: entry.received_ns):
            by_maker.setdefault(entry.provider, []).append(entry)
        sent = [note for settled in books for note in settled.attempts if note.send is not None]
        notes: dict[str, list[AttemptNote]] = {}
        for note in sorted(sent, key=lambda note: note.send or 0):
            notes.setdefault(note.facts.provider, []).append(note)
        for maker, mine in by_maker.items():
            starts = [note.send or 0 for note in notes[maker]]
            for entry in mine:
                if entry.fault == "stale" and entry.outcome == "reset":
                    continue  # the wire asked again by itself
                place = bisect_right(starts, entry.received_ns) - 1  # a lane asks one at a time
                self._of[notes[maker][place].facts.id] = entry

    def of(self, note: AttemptNote) -> SimLogEntry | None:
        return self._of.get(note.facts.id)

    def first_ns(self, note: AttemptNote) -> int | None:
        """When the first token of an attempt was written."""
        entry = self.of(note)
        if entry is None:
            return None
        kinds = zip(entry.script.kind, entry.actual_ns, strict=False)
        return next((at for kind, at in kinds if kind in BURSTS), None)


class Case:
    """One pair and all that is known about how it went."""

    def __init__(self, pair: Pair, answer: Answer, settled: Settled, log: Log) -> None:
        self.pair = pair
        self.answer = answer
        self.settled = settled
        self.log = log
        rows = dict(zip(pair.targets, (pair.first, pair.second), strict=True))
        self.attempts = [(note, rows[note.facts.target]) for note in settled.attempts]
        self.won = [(note, row) for note, row in self.attempts if note.facts.won is not False]

    def __repr__(self) -> str:
        return f"{self.pair.first.fault} with {self.pair.second.fault}"

    def check(self) -> None:
        self.check_attempts()
        if self.settled.exchange.winner is None:
            self.check_refused()
            return
        [(winner, row)] = self.won
        assert winner.facts.target == self.settled.exchange.winner
        assert winner.outcome == self.settled.exchange.outcome == row.outcome(stream=True)
        self.check_answer(winner, row)
        for note, other in self.attempts:
            if note is not winner:
                self.check_loser(note, other, winner)

    def check_attempts(self) -> None:
        """One row for each that was started; who never says a word never wins."""
        pair, attempts = self.pair, self.attempts
        targets = [note.facts.target for note, _ in attempts]
        assert targets == list(pair.targets[: len(attempts)])
        alone = pair.hedged and pair.first.final  # the client's own mistake: nobody else is asked
        assert len(attempts) == 2 or (alone and len(attempts) == 1)
        first, *more = [note.facts.role for note, _ in attempts]
        assert first == ("primary" if pair.hedged else "racer")
        if more == ["fallback"]:  # it failed before the hedge was due
            assert pair.hedged
            assert not speaks(pair.first)
            assert attempts[0][0].outcome == pair.first.outcome(stream=True)
        else:
            assert more in ([], ["hedge" if pair.hedged else "racer"])
        talkers = [note for note, row in attempts if speaks(row)]
        assert (self.settled.exchange.winner is not None) == bool(talkers)
        for note, row in attempts:
            assert note.outcome in {row.outcome(stream=True), "cancelled"}
            assert not (note.facts.won and note not in talkers)

    def check_refused(self) -> None:
        """Nobody spoke: one error, and every attempt says its own."""
        answer = self.answer
        rows = [row for _, row in self.attempts]
        assert answer.status in {row.status for row in rows}
        assert answer.json["error"]["message"]
        assert answer.headers["x-lightgate-attempts"] == str(len(rows))
        for note, row in self.attempts:
            assert note.outcome == row.outcome(stream=True)
            assert not note.facts.won

    def own_id(self, note: AttemptNote) -> str:
        """What the simulator called the answer of this attempt."""
        entry = self.log.of(note)
        assert entry is not None
        words = f"7/{entry.provider}/{entry.seq}".encode()
        return f"chatcmpl-{blake2b(words, digest_size=12).hexdigest()}"

    def check_answer(self, winner: AttemptNote, row: Row) -> None:
        """One target's answer from its first word on, whole or with one error at its end."""
        answer = self.answer
        assert answer.status == 200
        assert answer.end == "complete"
        assert answer.headers["x-lightgate-target"] == winner.facts.target
        assert {chunk["id"] for chunk in answer.chunks if "id" in chunk} == {self.own_id(winner)}
        assert said(answer, stream=True).strip()
        if row.outcome(stream=True) == "ok":
            assert answer.body.count(b"[DONE]") == 1
            assert answer.events[-1] == ("", "[DONE]")
            assert b'"error"' not in answer.body
        else:
            assert last_error(answer)["message"].startswith("The answer broke off.")
            assert b"[DONE]" not in answer.body

    def check_loser(self, loser: AttemptNote, row: Row, winner: AttemptNote) -> None:
        """It spoke later, if at all; its socket was closed; it has its price."""
        mine, its = self.log.first_ns(loser), self.log.first_ns(winner)
        assert its is not None
        queued = row.fault.startswith("huge")  # its words are still behind the event, in the pipe
        if mine is not None and speaks(row) and not queued:
            assert its <= mine + TOGETHER_MS * MS
        if loser.outcome != "cancelled":
            return
        assert loser.error is not None
        entry, at_ns = self.log.of(loser), self.settled.exchange.first_in_ns
        assert at_ns is not None
        if entry is not None and entry.ended_ns is not None and entry.gone:
            assert entry.ended_ns - at_ns <= CLOSED_MS * MS

    def check_whole(self) -> None:
        """One answer if one of the two can give one; else one error."""
        answer, exchange = self.answer, self.settled.exchange
        good = [row.outcome(stream=True) == "ok" for row in (self.pair.first, self.pair.second)]
        assert (exchange.winner is not None) == any(good)
        assert len(self.attempts) in {2, 3}
        if not any(good):
            rows = (self.pair.first, self.pair.second)
            assert answer.status in {row.status for row in rows}
            assert answer.json["error"]["message"]
            assert not any(note.facts.won for note, _ in self.attempts)
            return
        [winner] = [note for note, _ in self.attempts if note.facts.won]
        assert winner.facts.target == exchange.winner == answer.headers["x-lightgate-target"]
        assert winner.outcome == exchange.outcome == "ok"
        assert answer.status == 200
        assert answer.json["id"] == self.own_id(winner)
        assert said(answer, stream=False).strip()

    @property
    def bill(self) -> int | None:
        """Nano-dollars that a cancelled loser's prompt cost, without its answer."""
        for note, _ in self.attempts:
            billed = note.send is not None and note.status in {None, 200}
            if note.outcome != "cancelled":
                continue
            assert (note.facts.cost_nano is not None) == billed
            if note.facts.cost_nano is not None:
                stops = note.facts.provider.startswith("lab")
                seen = note.tokens_out or 0
                return note.facts.cost_nano - 2000 * (seen if stops else max(seen, TOKENS))
        return None


class Flown(NamedTuple):
    """All pairs of one kind, and what was seen of them."""

    cases: list[Case]
    watch: Watch


async def fly(
    start: Start, monkeypatch: pytest.MonkeyPatch, *, hedged: bool, stream: bool
) -> Flown:
    """Ask for every pair once."""
    alone(monkeypatch)
    watch = Watch(monkeypatch)
    pairs = all_pairs(NAMES if stream else FEW, hedged=hedged)
    config = providers() + prices(pairs) + "".join(pair.config for pair in pairs)
    field = await Field.open(start, config, trouble=True, world=world(150 if hedged else 40))
    rig = field.rig
    answers: dict[str, Answer] = {}

    async def drive(lane: int) -> None:
        for pair in pairs[lane::LANES]:
            async with asyncio.timeout(20):
                answers[pair.model] = await rig.chat(
                    pair.model, headers=field.headers, max_tokens=TOKENS, stream=stream
                )

    await asyncio.gather(*(drive(lane) for lane in range(LANES)))
    await field.at_peace()
    settled = rig.settled()
    books = {note.exchange.model_asked: note for note in settled}
    log = Log(rig.sim.log.entries, settled)
    return Flown([Case(pair, answers[pair.model], books[pair.model], log) for pair in pairs], watch)


@pytest.mark.parametrize("hedged", [False, True], ids=["race", "hedge"])
async def test_every_pair_streamed(
    start: Start, monkeypatch: pytest.MonkeyPatch, hedged: bool
) -> None:
    cases, watch = await fly(start, monkeypatch, hedged=hedged, stream=True)
    assert watch.left_open == []
    for case in cases:
        case.check()
    assert len({case.bill for case in cases} - {None}) == 1  # one prompt, one price


async def test_every_pair_whole(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Streamed inside, whole outside: who breaks off is followed by the other.

    One fault of every kind: what else a stream can have is told in the same way inside.
    """
    cases, watch = await fly(start, monkeypatch, hedged=False, stream=False)
    assert watch.left_open == []
    for case in cases:
        case.check_whole()
