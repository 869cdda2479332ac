"""Tell other machines what this worker knows, and hear what they know, ten times a second.

In-flight counts and resting breakers go with every beat, the form of targets once a second, the use
of keys a few times a second. While no machine has a request under way, beats are rarer.
Instants are moved from the clock of one machine to that of another by the age that the store gives
them. No request waits for any of this.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lightgate.gateway.shared.counters import LEASE_MS
from lightgate.gateway.shared.scripts import BEAT, EPOCH, FORM, FORMS, LEAVE, LIVE, MEMBERS
from lightgate.gateway.shared.store import CHECK_S, RETRY_S, StoreAway
from lightgate.route.form.size import OFFSETS
from lightgate.route.form.state import FormState, moved

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lightgate.gateway.shared.counters import SharedCounters
    from lightgate.gateway.shared.store import SharedStore
    from lightgate.route.form.forms import Forms
    from lightgate.route.health.breaker import Breakers

BEAT_S: Final = 0.1  # older counts send requests into queues: decision 0046
IDLE_BEAT_S: Final = 0.5  # while nothing is in flight anywhere
TELL_S: Final = 0.25  # between two tellings of what keys have used
FORM_S: Final = 1.0  # between two tellings of form: others know it within two seconds
BEAT_PATIENCE_S: Final = 1.0  # for a beat, which nobody waits for
LIVE_MS: Final = 3_000
FORM_MS: Final = 10_000
MOST_HEARD: Final = 32  # members whose counts are heard in a beat; of more, others each time
MOST_FORMS: Final = 32  # forms that are heard in a beat; the rest in the next, oldest first
_MS_NS: Final = 1_000_000
_SECOND_NS: Final = 1_000_000_000


class LiveState(msgspec.Struct, frozen=True, array_like=True):
    """A worker at one instant of its clock: attempts in flight, and targets that rest.

    `resting` is how long each target stays open and held, in nanoseconds.
    """

    now_ns: int
    in_flight: dict[str, int]
    resting: dict[str, tuple[int, int]]


class FormMessage(msgspec.Struct, frozen=True, array_like=True):
    """The form of targets, and the instant at which it was told."""

    now_ns: int
    state: FormState


_encode: Final = msgspec.msgpack.Encoder().encode
_live: Final = msgspec.msgpack.Decoder(LiveState).decode
_form: Final = msgspec.msgpack.Decoder(FormMessage).decode


class LiveSharing:
    """One worker's side of what machines tell each other."""

    def __init__(
        self,
        store: SharedStore,
        counters: SharedCounters,
        forms: Forms,
        breakers: Breakers,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._store = store
        self._counters = counters
        self._forms = forms
        self._breakers = breakers
        self._sleep = sleep
        self._lane = store.lane()
        self._form_ns = self._tell_ns = 0  # when form and keys are told next
        self._busy = False  # something is in flight
        self._since = "0"  # the store's time of the last beat
        self._formed = "0"  # ... up to which form was heard
        self._epoch = b""
        self._checked_ns = 0

    async def run(self) -> None:
        """Tell and hear until cancelled; a store that is away is looked for again."""
        while True:
            await self.step()
            if self._store.state == "joined":
                await self._sleep(BEAT_S if self._busy else IDLE_BEAT_S)
            else:
                await self._sleep(RETRY_S)

    async def step(self) -> None:
        """Join the store where it is away; then tell and hear once."""
        store, now_ns = self._store, self._store.now_ns()
        if store.state != "joined":
            if not await store.join():
                return
            self._checked_ns, self._since, self._formed, self._epoch = now_ns, "0", "0", b""
            self._form_ns = self._tell_ns = 0
        try:
            if now_ns - self._checked_ns > CHECK_S * _SECOND_NS:
                self._checked_ns = now_ns
                await self._lane.check()
            await self.beat()
        except StoreAway as error:
            store.lost(error.message)
            return
        if now_ns >= self._tell_ns:
            self._tell_ns = now_ns + int(TELL_S * _SECOND_NS)
            await self._counters.tell()

    async def beat(self) -> None:
        """Tell the others about this worker, and take in what they have told."""
        store, now_ns = self._store, self._store.now_ns()
        forms = self._forms.by_target.items()
        flying = {name: form.in_flight for name, form in forms if form.in_flight}
        live = _encode(LiveState(now_ns, flying, self._breakers.resting(now_ns)))
        form = b""
        if now_ns >= self._form_ns:
            self._form_ns = now_ns + int(FORM_S * _SECOND_NS)
            form = _encode(FormMessage(now_ns, self._forms.export()))
        when, store.members, rows, epoch, formed = await self._lane.script(
            BEAT, [MEMBERS, EPOCH, FORMS], store.member, store.machine, live, form, self._since,
            LEASE_MS, LIVE_MS, FORM_MS, MOST_HEARD, LIVE, FORM, self._formed, MOST_FORMS,
            within_s=BEAT_PATIENCE_S,
        )  # fmt: skip
        self._since, self._formed = when, formed
        if epoch != self._epoch:  # a store without our data, or one that has lost it
            self._epoch = epoch
            self._counters.tell_all()
        self._hear(rows)

    def _hear(self, rows: list[Any]) -> None:
        """Take in what others have told; what cannot be read is passed over."""
        now_ns, flying = self._store.now_ns(), {}
        for name, live_age, live, form_age, form in rows:
            member = name.decode("utf-8", "replace")
            if live:
                with contextlib.suppress(msgspec.DecodeError):
                    said = _live(live)
                    at_ns = now_ns - int(live_age) * _MS_NS
                    if not member.startswith(f"{self._store.machine}:"):  # those share memory
                        flying[member] = at_ns, said.in_flight
                    self._rest(said, at_ns, now_ns)
            if form:
                with contextlib.suppress(msgspec.DecodeError):
                    told = _form(form)
                    self._adopt(told, now_ns - int(form_age) * _MS_NS - told.now_ns, now_ns)
        self._forms.beside(flying, now_ns)
        own = any(form.in_flight for form in self._forms.by_target.values())
        self._busy = own or any(counts for _, counts in flying.values())

    def _rest(self, said: LiveState, at_ns: int, now_ns: int) -> None:
        passed = now_ns - at_ns
        for target, (open_ns, hold_ns) in said.resting.items():
            rest = max(0, open_ns - passed), max(0, hold_ns - passed)
            if any(rest) and target in self._forms.by_target:
                self._breakers.told(target, now_ns, *rest)

    def _adopt(self, told: FormMessage, by_ns: int, now_ns: int) -> None:
        state = told.state
        if all(len(known.sizes) == len(OFFSETS) for known in state.targets.values()):
            self._forms.adopt(moved(state, by_ns), now_ns)

    async def leave(self) -> None:
        """Tell the store that this worker ends in good order."""
        if self._store.state == "joined":
            with contextlib.suppress(StoreAway):
                await self._counters.tell()
                names = [MEMBERS, FORMS]
                await self._lane.script(LEAVE, names, self._store.member, LIVE, FORM)
        await self._store.close()
