"""Admit requests within the limits of their key, over all machines that share a store.

The counters of the machine go on as without a store. In front of them, the store is asked for
every request of a key that has limits: all requests that come while one question is under way are
asked together in the next one. A worker tells absolute numbers, from the counters of its machine,
so that nothing is counted twice or forgotten, whatever is lost on the way or at the server.

Where the store may not be waited for, the worker takes from its share (`share`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from lightgate.clock.source import SYSTEM
from lightgate.errors import LightgateError
from lightgate.gateway.shared.scripts import EPOCH, KEY, MEMBERS, SPEND
from lightgate.gateway.shared.share import (
    ADVANCE_PARTS,
    SECOND_NS,
    SILENT_NS,
    Alone,
    KeyLimits,
    KeyShare,
    Needed,
    Told,
)
from lightgate.gateway.shared.store import StoreAway
from lightgate.gateway.spend.counter_file import CounterFile
from lightgate.gateway.spend.counters import KeyStanding, SpendCounters, limited
from lightgate.gateway.spend.denial import Denied, beyond_share, too_dear, too_many, too_often

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from lightgate.clock.source import Clock
    from lightgate.gateway.shared.store import SharedStore
    from lightgate.ledger.store.keys import KeyRecord

LEASE_MS: Final = 30_000  # without a word of it, a worker counts as gone
SILENCE_MS: Final = 2_000  # ... and from here on its share is kept back for it
SETTLE_MS: Final = 2_000  # after the store has lost its data: all workers have told theirs again
MOST_AT_ONCE: Final = 512  # requests in one question
MOST_TOLD: Final = 128  # keys that are told about in one, beside those of its requests
KNOWN: Final = "ledger-spend.json"  # what a ledger of all machines said at the start
ACTIVE_NS: Final = 90 * SECOND_NS  # after its last request, a key is still told about
_SETTLING: Final = 9

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder().decode


def write_known(data: Path, spent: Mapping[str, tuple[int, int]]) -> None:
    """Keep what a ledger of all machines says was spent: period and nano-dollars, by key."""
    unborn = (data / KNOWN).with_suffix(".new")
    unborn.write_bytes(msgspec.json.encode(spent))
    unborn.replace(data / KNOWN)


class _Ask:
    """One request that waits for the store."""

    __slots__ = ("future", "key", "nano_usd", "tokens", "wall_ns")

    def __init__(self, key: KeyRecord, wall_ns: int, tokens: int, nano_usd: int) -> None:
        self.key = key
        self.wall_ns = wall_ns
        self.tokens = tokens
        self.nano_usd = nano_usd
        self.future: asyncio.Future[Denied | None] = asyncio.get_running_loop().create_future()


class _Item:
    """One key in a question: its requests, and what was used when it was asked."""

    __slots__ = ("asks", "keeps", "key", "period", "used")
    period: int  # of the budget, when it was asked
    used: tuple[int, int, int]

    def __init__(self, key: KeyRecord, *, keeps: bool = True) -> None:
        self.key = key
        self.keeps = keeps  # False: it is not in use, and its share is given back
        self.asks: list[_Ask] = []


class SharedCounters(SpendCounters):
    """The counters of a worker whose machine shares its keys' limits with others."""

    __slots__ = (
        "_active_ns", "_asks", "_keys", "_lane", "_ledger", "_life", "_sending", "_seq", "_shares",
        "_store",
    )  # fmt: skip
    shares = True

    def __init__(self, file: CounterFile, worker: int, clock: Clock, store: SharedStore) -> None:
        super().__init__(file, worker, clock)
        self._store = store
        self._lane = store.lane()
        self._life = int.from_bytes(os.urandom(6), "little")
        self._seq = 0
        self._shares: dict[str, KeyShare] = {}
        self._keys: dict[str, KeyRecord] = {}
        self._active_ns: dict[str, int] = {}
        self._ledger: dict[str, tuple[int, int]] = {}
        self._asks: list[_Ask] = []
        self._sending: asyncio.Task[None] | None = None

    @classmethod
    def share(
        cls,
        path: Path,
        worker: int,
        keys: Iterable[KeyRecord],
        store: SharedStore,
        clock: Clock = SYSTEM,
    ) -> SharedCounters:
        """Open the file of the machine, for a worker that shares what it counts."""
        counters = cls(CounterFile(path), worker, clock, store)
        counters.add(keys)
        return counters

    def know_ledger(self, data: Path) -> None:
        """Take in what a ledger of all machines said at the start, where there is one."""
        with contextlib.suppress(OSError, msgspec.DecodeError):
            content = (data / KNOWN).read_bytes()
            self._ledger.update(msgspec.json.decode(content, type=dict[str, tuple[int, int]]))

    async def reserve(
        self, key: KeyRecord, wall_ns: int, tokens: int, nano_usd: int
    ) -> Denied | None:
        """Reserve the worst case of one request with all machines, or say why not."""
        if not limited(key):
            return None
        if not self._store.asked:
            return self._alone(key, wall_ns, tokens, nano_usd)
        ask = _Ask(key, wall_ns, tokens, nano_usd)
        self._asks.append(ask)
        if self._sending is None or self._sending.done():
            self._sending = asyncio.get_running_loop().create_task(self._send())
        try:
            return await ask.future
        except asyncio.CancelledError:
            answered = not ask.future.cancelled() and ask.future.exception() is None
            if answered and ask.future.result() is None:  # let in, but its client has gone
                self.settle(key.id, nano_usd, 0, tokens, 0)
            raise

    def counts(self, key_id: str) -> bool:
        """Whether anything is counted for this key, here or in the store."""
        return key_id in self._shares or super().counts(key_id)

    def settle(
        self,
        key_id: str,
        reserved_nano: int,
        spent_nano: int,
        reserved_tokens: int,
        tokens: int,
    ) -> None:
        """Give back what was reserved and count what was really used; the store hears of it."""
        super().settle(key_id, reserved_nano, spent_nano, reserved_tokens, tokens)
        share = self._shares.get(key_id)
        if share is not None:
            reserved = Needed(reserved_nano, 1, reserved_tokens)
            share.settled(reserved, Needed(spent_nano, 1, tokens), self._second())
            self._active_ns[key_id] = self._store.now_ns()

    def standing(self, key_id: str) -> KeyStanding | None:
        """Where a key stands with all machines, as far as the store has told it of late."""
        own, share = super().standing(key_id), self._shares.get(key_id)
        if own is None or share is None or not share.totals or self._store.state != "joined":
            return own
        spent, held, requests, tokens, held_tokens = share.totals
        return KeyStanding(
            spent_nano=max(spent, own.spent_nano),
            held_nano=max(held, own.held_nano),
            requests=max(requests, own.requests),
            tokens=max(tokens, own.tokens),
            held_tokens=max(held_tokens, own.held_tokens),
        )

    def left_nano(self, key: KeyRecord) -> int:
        """What is left of a key's budget with all machines, as far as it is known."""
        own, share = super().left_nano(key), self._shares.get(key.id)
        told = None if share is None else share.left_nano
        return own if told is None else min(own, told)

    async def tell(self) -> None:
        """Tell the store about every key that is in use, unless a question is under way.

        Requests that come meanwhile are asked in the next question.
        """
        busy = self._sending is not None and not self._sending.done()
        if busy or self._store.state != "joined":
            return
        since, items = self._store.now_ns() - ACTIVE_NS, []
        for key_id, at_ns in self._active_ns.items():
            key = self._keys[key_id]
            used = at_ns >= since or self.own_part(key).held_nano > 0
            items.append(_Item(key, keeps=used))
        if items:
            self._sending = asyncio.get_running_loop().create_task(self._send(items))
            await asyncio.wait({self._sending})

    def tell_all(self) -> None:
        """Have every key told about in the next beat that this machine has spent something for."""
        for key_id, lease in self._leases.items():
            own = self.own_part(lease.key)
            if own.spent_nano or own.held_nano or key_id in self._shares:
                self._share(lease.key)
                self._active_ns[key_id] = self._store.now_ns()

    async def _send(self, told: Sequence[_Item] = ()) -> None:
        """Ask for the requests that wait, until none does; the first time tell about keys too."""
        to_tell = list(told)
        while to_tell or self._asks:
            items = {item.key.id: item for item in to_tell[:MOST_TOLD]}
            del to_tell[:MOST_TOLD]
            taken, self._asks = self._asks[:MOST_AT_ONCE], self._asks[MOST_AT_ONCE:]
            for ask in taken:
                item = items.get(ask.key.id)
                if item is None or item.key is not ask.key:
                    item = items[ask.key.id] = _joined(item, ask.key)
                item.keeps = True
                item.asks.append(ask)
            try:
                await self._exchange(items)
            except StoreAway as error:
                self._go_on_alone(taken, error)
                return
            except LightgateError as error:  # this machine cannot count: its disk is full
                _fail(taken, error)
            except Exception as error:
                # The outer wall of a task: no request waits for ever because of a defect here.
                _fail(taken + self._asks, error)
                self._asks = []
                raise

    def _go_on_alone(self, taken: list[_Ask], error: StoreAway) -> None:
        """Answer the requests that wait within the share of this worker: the store is away."""
        waiting, self._asks = taken + self._asks, []
        if waiting and isinstance(error.__cause__, TimeoutError):
            self._store.late()
        self._store.lost(error.message)
        for ask in waiting:
            self._answer_alone(ask)

    async def _exchange(self, items: Mapping[str, _Item]) -> None:
        """Tell the store about keys, ask for their requests, and take in what it says."""
        self._seq += 1
        told = [self._item(item) for item in items.values()]
        batch = (
            self._store.member, self._store.machine, self._life, self._seq,
            LEASE_MS, SILENCE_MS, SETTLE_MS, told, ADVANCE_PARTS,
        )  # fmt: skip
        names = [MEMBERS, EPOCH, *(KEY + key_id for key_id in items)]
        asked_ns = self._store.now_ns()
        reply = await self._lane.script(SPEND, names, _encode(batch))
        self._store.answered((self._store.now_ns() - asked_ns) / SECOND_NS)
        try:
            settling, self._store.members, answers = _decode(reply)
            for item, answer in zip(items.values(), answers, strict=True):
                self._hear(item, answer, settling=settling)
        except (msgspec.DecodeError, TypeError, ValueError):
            raise StoreAway("The store gave an answer that cannot be read.") from None

    def _item(self, item: _Item) -> tuple[Any, ...]:
        key, share = item.key, self._share(item.key)
        own = self.own_part(key)
        share.minute.turn(self._second())
        item.period, item.used = own.period, share.used
        period, ledger = self._ledger.get(key.id, (own.period, 0))
        return (
            own.period, *_limits(key), own.spent_nano, ledger if period == own.period else 0,
            own.held_nano, share.requests, share.tokens, own.held_tokens,
            share.minute.requests, share.minute.tokens,
            [(ask.nano_usd, ask.tokens) for ask in item.asks],
            self._may_take(share) if item.keeps else (0, 0, 0), item.keeps,
        )  # fmt: skip

    def _may_take(self, share: KeyShare) -> tuple[int, int, int]:
        """What others must leave: nothing while this worker is the only one."""
        return share.may_take(self._store.now_ns()) if self._store.members > 1 else (0, 0, 0)

    def _hear(self, item: _Item, answer: list[Any], *, settling: bool) -> None:
        """Take in what the store says about one key."""
        if not answer:  # it has heard a later question already
            for ask in item.asks:
                self._answer_alone(ask)
            return
        codes, waits, left, share, advance, totals = answer
        own = self._share(item.key)
        if not settling:
            own.totals = tuple(totals)
            told = Told(Needed(*left), Needed(*share), Needed(*advance), item.period)
            granted = [ask for ask, code in zip(item.asks, codes, strict=True) if code == 0]
            # What is granted now counts as taken below, and the store has counted it already.
            sent = (
                item.used[0] + sum(ask.nano_usd for ask in granted),
                item.used[1] + len(granted),
                item.used[2] + sum(ask.tokens for ask in granted),
            )
            own.told(told, sent, self._store.now_ns())
            if not item.keeps:
                own.forget()
                self._active_ns.pop(item.key.id, None)
        for ask, code, wait_ms in zip(item.asks, codes, waits, strict=True):
            if ask.future.done():
                continue  # its client has gone; the next question says that it took nothing
            if code == _SETTLING:
                self._answer_alone(ask)
            elif code:
                reason = _Reason(code, wait_ms / 1000, left[0])
                ask.future.set_result(
                    _denied(ask.key, ask.wall_ns, ask.tokens, ask.nano_usd, reason)
                )
            else:
                ask.future.set_result(self._take(ask.key, ask.wall_ns, ask.tokens, ask.nano_usd))

    def _answer_alone(self, ask: _Ask) -> None:
        if ask.future.done():
            return
        try:
            ask.future.set_result(self._alone(ask.key, ask.wall_ns, ask.tokens, ask.nano_usd))
        except LightgateError as error:
            ask.future.set_exception(error)

    def _alone(self, key: KeyRecord, wall_ns: int, tokens: int, nano_usd: int) -> Denied | None:
        """Admit a request within the share of this worker."""
        share, own = self._share(key), self.own_part(key)
        share.minute.turn(self._second())
        need, limits = Needed(nano_usd, 1, tokens), KeyLimits(*_limits(key), own.period)
        store = self._store
        alone = Alone(store.now_ns(), store.members, store.away_ns > SILENT_NS)
        lacks = share.lacks(need, limits, own.held_tokens, alone)
        if not lacks:
            return self._take(key, wall_ns, tokens, nano_usd)
        if lacks == "share":
            return beyond_share(SILENT_NS / SECOND_NS)
        wait_s, left = float(share.minute.wait_s()), min(self.left_nano(key), nano_usd - 1)
        return _denied(key, wall_ns, tokens, nano_usd, _Reason(_CODES[lacks], wait_s, left))

    def _take(self, key: KeyRecord, wall_ns: int, tokens: int, nano_usd: int) -> Denied | None:
        """Reserve with this machine, and count what is taken of the share."""
        denied = self.admit(key, wall_ns, tokens, nano_usd)
        if denied is None:
            self._share(key).took(Needed(nano_usd, 1, tokens), self._second())
            self._active_ns[key.id] = self._store.now_ns()
        return denied

    def _share(self, key: KeyRecord) -> KeyShare:
        found = self._shares.get(key.id)
        if found is None:
            found = self._shares[key.id] = KeyShare()
        self._keys[key.id] = key
        return found

    def _second(self) -> int:
        return self._clock.wall_ns() // SECOND_NS


class _Reason(NamedTuple):
    """Why a request is refused: a code of the script, the wait, and what is left of the budget."""

    code: int
    wait_s: float
    left_nano: int


_CODES: Final = {"rpm": 1, "tpm": 2, "budget": 3}


def _joined(before: _Item | None, key: KeyRecord) -> _Item:
    """An item with the newest record of a key, whose limits may have changed."""
    item = _Item(key)
    if before is not None:
        item.asks = before.asks
    return item


def _fail(asks: Iterable[_Ask], error: Exception) -> None:
    """End the requests that wait with an error."""
    for ask in asks:
        if not ask.future.done():
            ask.future.set_exception(error)


def _limits(key: KeyRecord) -> tuple[int, int, int]:
    budget = -1 if key.budget_usd is None else int(key.budget_usd * SECOND_NS)
    rpm = -1 if key.rpm is None else key.rpm
    return budget, rpm, -1 if key.tpm is None else key.tpm


def _denied(key: KeyRecord, wall_ns: int, tokens: int, nano_usd: int, why: _Reason) -> Denied:
    if why.code == _CODES["rpm"]:
        return too_often(why.wait_s, key.rpm or 0)
    if why.code == _CODES["tpm"]:
        return too_many(why.wait_s, key.tpm or 0, tokens)
    return too_dear(key, wall_ns, why.left_nano, nano_usd)
