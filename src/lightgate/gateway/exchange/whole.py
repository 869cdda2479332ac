"""Collects a stream for a client that wants its answer whole: nothing goes out before the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightgate.errors import TooLarge
from lightgate.provider.call import WHOLE_LIMIT

if TYPE_CHECKING:
    from lightgate.dialect.assemble import Assembler
    from lightgate.gateway.exchange.stream import Voyage
    from lightgate.wire.client.roundtrip import Headers
    from lightgate.wire.sse import Event


class Collector:
    """The sink of one attempt that is streamed inside and answered whole outside.

    The first useful token asks for the client, as a courier's does; the terminal marker delivers.
    """

    __slots__ = ("_assembler", "_useful", "_voyage", "committed")

    def __init__(self, voyage: Voyage, assembler: Assembler) -> None:
        self._voyage = voyage
        self._assembler = assembler
        self._useful = False  # something of the answer has come
        self.committed = False

    def on_head(self, status: int, headers: Headers) -> None:
        """Nothing of a provider's head reaches the client."""

    def on_data(self, data: bytes, events: list[Event], kinds: int) -> None:  # noqa: ARG002 - a sink's
        """Gather the events of one read."""
        take = self._assembler.event
        for name, event in events:
            take(name, event)
        if self._assembler.size > WHOLE_LIMIT:
            raise self._too_large()
        if kinds:
            self._useful = True
        if events and self.release() and self._voyage.ended:
            self._voyage.deliver(b"")

    def release(self) -> bool:
        """Take the client, if there is something to give and nobody else has it; whether it is."""
        if not self.committed and self._useful:
            self.committed = self._voyage.commit()
        return self.committed

    def whole(self) -> bytes:
        """The answer as the provider would have given it whole; AttemptError if there is none."""
        body = self._assembler.whole()
        if len(body) > WHOLE_LIMIT:
            raise self._too_large()
        return body

    @staticmethod
    def _too_large() -> TooLarge:
        return TooLarge(f"The answer is larger than {WHOLE_LIMIT} bytes.")
