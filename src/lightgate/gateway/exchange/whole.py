"""An attempt that is streamed inside and answered whole: nothing goes out before the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lightgate.dialect.assemble import assembler
from lightgate.errors import AttemptError, LightgateError, TooLarge
from lightgate.gateway.exchange.attempt import Attempt
from lightgate.gateway.exchange.large import read_large_answer

if TYPE_CHECKING:
    from lightgate.clock.marks import Marks
    from lightgate.gateway.exchange.attempt import ExchangeFacts
    from lightgate.gateway.served.target import ServedTarget
    from lightgate.provider.call import Called
    from lightgate.provider.prepare import Prepared
    from lightgate.route.plan.plan import Step
    from lightgate.wire.sse import Event

# Bytes of an answer that is put together in one turn of the loop; small values count for more.
ASSEMBLED_LIMIT: Final = 8 * 1024 * 1024
TRANSLATED_LIMIT: Final = 1024 * 1024  # a larger one is translated beside the loop


class AssembledAttempt(Attempt):
    """An attempt that streams, for a client that wants its answer whole.

    The first useful token asks for the client, as a streamed answer's does; the terminal marker
    delivers.
    """

    __slots__ = ("_assembly", "_ended", "_telling", "_useful", "committed")

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
        self._telling = False  # it is being translated beside the loop
        self._ended: Called | None = None  # the end of its call, which came meanwhile
        self._useful = False  # something of the answer has come
        self.committed = False
        self.sink = self.took

    def took(self, data: bytes, events: list[Event], kinds: int) -> None:  # noqa: ARG002 - a sink's
        """Take the events of one read into the answer."""
        take = self._assembly.event
        for name, event in events:
            take(name, event)
        if self._assembly.size > ASSEMBLED_LIMIT:
            raise self._too_large()
        if kinds or (self.complete and self._answers()):
            self._useful = True
        if events and self._released() and self.complete and not self._tells_beside():
            (self.exchange.cascade or self.exchange).deliver(self, b"", ended=True)

    def release(self) -> None:
        """Take the client: no better attempt came."""
        self.held_ns = 0
        self._useful = self._useful or (self.called is not None and self.called.streamed)
        if not self._released() and self.body:
            self.heard = True  # it answered whole at once, though it was asked to stream
            (self.exchange.cascade or self.exchange).commit(self)

    def over(self, called: Called) -> None:
        """Judge the end of the call; where it went well, not before its answer can be told."""
        if self.called is None and called.error is None and self._tells_beside():
            self._ended = called
        else:
            Attempt.over(self, called)

    def _tells_beside(self) -> bool:
        """Whether the answer is too much to be translated in this turn, and is not told yet."""
        if (
            self._translator is None
            or self._whole is not None
            or self._unread is not None
            or self._assembly.size <= TRANSLATED_LIMIT
        ):
            return False
        if not self._telling:
            self._telling = True
            state = self.exchange.state
            state.keep(state.loop.create_task(self._tell_beside()))
        return True

    async def _tell_beside(self) -> None:
        """Translate the answer beside the loop, then go on with it."""
        try:
            await self._translate_beside()
            self._telling = False
            if self.called is not None:
                return  # it was closed meanwhile
            if self._ended is not None:
                self.over(self._ended)
            elif self._released():
                (self.exchange.cascade or self.exchange).deliver(self, b"", ended=True)
        except Exception as error:  # noqa: BLE001 - the outer wall of a request
            self.broke(error)

    async def _translate_beside(self) -> None:
        try:
            told = await read_large_answer(self.exchange, self.prepared, self.answer_body)
            _, self._unread, self._whole = told
        except AttemptError as error:
            self._unread = error
        except LightgateError as error:
            self._unread = TooLarge(f"{self.prepared.origin.authority}: {error.message}")

    def _released(self) -> bool:
        """Take the client, if something has come and no other attempt has it; whether it is so."""
        if not self.committed and self._useful:
            self.committed = (self.exchange.cascade or self.exchange).commit(self)
        return self.committed

    def _assembled(self) -> bytes:
        """The answer as the provider would have given it whole; AttemptError if there is none."""
        body = self._assembly.whole()
        if len(body) > ASSEMBLED_LIMIT:
            raise self._too_large()
        return body

    def _too_large(self) -> TooLarge:
        return TooLarge(f"The answer is larger than {ASSEMBLED_LIMIT} bytes.")
