"""An attempt that is streamed inside and answered whole: nothing goes out before the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lightgate.dialect.assemble import assembler
from lightgate.errors import TooLarge
from lightgate.gateway.exchange.attempt import Attempt

if TYPE_CHECKING:
    from lightgate.clock.marks import Marks
    from lightgate.gateway.exchange.attempt import ExchangeFacts
    from lightgate.gateway.served.target import ServedTarget
    from lightgate.provider.prepare import Prepared
    from lightgate.route.plan.plan import Step
    from lightgate.wire.sse import Event

# Bytes of an answer that is put together in one turn of the loop; small values count for more.
ASSEMBLED_LIMIT: Final = 8 * 1024 * 1024
TRANSLATED_LIMIT: Final = 2 * 1024 * 1024  # of one that is translated in the same turn as well


class AssembledAttempt(Attempt):
    """An attempt that streams, for a client that wants its answer whole.

    The first useful token asks for the client, as a streamed answer's does; the terminal marker
    delivers.
    """

    __slots__ = ("_assembly", "_most", "_useful", "committed")

    def __init__(
        self,
        exchange: ExchangeFacts,
        step: Step,
        target: ServedTarget,
        prepared: Prepared,
        marks: Marks,
    ) -> None:
        Attempt.__init__(self, exchange, step, target, prepared, marks)
        self._assembly = assembler(prepared.dialect.name)
        self._most = ASSEMBLED_LIMIT if self._translator is None else TRANSLATED_LIMIT
        self._useful = False  # something of the answer has come
        self.committed = False
        self.sink = self.took

    def took(self, data: bytes, events: list[Event], kinds: int) -> None:  # noqa: ARG002 - a sink's
        """Take the events of one read into the answer."""
        take = self._assembly.event
        for name, event in events:
            take(name, event)
        if self._assembly.size > self._most:
            raise self._too_large()
        if kinds or (self.complete and self._answers()):
            self._useful = True
        if events and self._released() and self.complete:
            (self.exchange.cascade or self.exchange).deliver(self, b"", ended=True)

    def release(self) -> None:
        """Take the client: no better attempt came."""
        self.held_ns = 0
        self._useful = self._useful or (self.called is not None and self.called.streamed)
        if not self._released() and self.body:
            self.heard = True  # it answered whole at once, though it was asked to stream
            (self.exchange.cascade or self.exchange).commit(self)

    def _released(self) -> bool:
        """Take the client, if something has come and no other attempt has it; whether it is so."""
        if not self.committed and self._useful:
            self.committed = (self.exchange.cascade or self.exchange).commit(self)
        return self.committed

    def _assembled(self) -> bytes:
        """The answer as the provider would have given it whole; AttemptError if there is none."""
        body = self._assembly.whole()
        if len(body) > self._most:
            raise self._too_large()
        return body

    def _too_large(self) -> TooLarge:
        return TooLarge(f"The answer is larger than {self._most} bytes.")
