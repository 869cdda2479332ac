"""Plays the script of one answer on its connection, beat by beat, when the pacer says so."""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from lightgate.sim.answer.framing import EventFraming, split_point
from lightgate.sim.answer.script import (
    BURSTS,
    CUT,
    END,
    ERROR,
    HALF,
    HANG,
    HEAD,
    JUNK,
    PART,
    RAW,
    RESET,
    ROLE,
    WHOLE,
)

if TYPE_CHECKING:
    from lightgate.sim.answer.plan import AnswerPlan
    from lightgate.sim.dialects.answer import Renderer
    from lightgate.sim.log import SimLogEntry
    from lightgate.wire.door.door import Reply

_LINGER_NOT: Final = struct.pack("ii", 1, 0)  # close with a reset
_MOST_UNSENT: Final = 1 << 18  # bytes; a client this far behind holds its own stream up
_RETRY_NS: Final = 5_000_000
_NO_END: Final = 1 << 40  # a content length that no stream reaches

Header = tuple[bytes, bytes]


class ScriptPlayer:
    """One answer on its way out; `over` is done when nothing more will be written."""

    __slots__ = (
        "_actual",
        "_body",
        "_carry",
        "_draft",
        "_dress",
        "_error",
        "_first",
        "_headers",
        "_index",
        "_ready",
        "_reply",
        "_script",
        "_start_ns",
        "_status",
        "_voice",
        "over",
    )

    def __init__(
        self,
        entry: SimLogEntry,
        draft: AnswerPlan,
        voice: Renderer | None,
        reply: Reply,
        headers: list[Header],
    ) -> None:
        self._script = draft.script
        self._start_ns = entry.start_ns
        self._actual = entry.actual_ns
        self._status = entry.status
        self._draft = draft
        self._voice = voice
        self._reply = reply
        self._headers = headers
        self._dress = EventFraming(draft, events=draft.script.streamed)
        self._index = 0
        self._first = 0  # streamed tokens before the beat that is ready
        self._body = self._error = b""
        self._carry = b""
        self._ready = b""
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def begin(self, body: bytes, error: bytes) -> int:
        """Prepare the first beat; its due instant.

        `body` is what the beat of a whole answer sends, `error` the dialect's error event.
        """
        self._body = b"\n" * self._draft.blank_lines + body
        self._error = error
        self._prepare()
        return self._start_ns + self._script.at_ns[0]

    def fire(self, now_ns: int) -> int | None:
        """Write the beat that is due, then make the next one ready."""
        reply, script, index = self._reply, self._script, self._index
        if reply.link.unsent > _MOST_UNSENT:
            return now_ns + _RETRY_NS
        kind = script.kind[index]
        self._actual.append(now_ns)
        if self._ready:
            reply.send(self._ready)
        elif kind >= RAW or kind == HEAD:
            self._act(kind)
        self._index = index = index + 1
        if index == len(script.kind):
            if kind != HANG and not self.over.done():
                self.over.set_result(None)
            return None
        self._first += script.tokens[index - 1]
        self._prepare()
        return self._start_ns + script.at_ns[index]

    def _prepare(self) -> None:
        kind = self._script.kind[self._index]
        if ROLE <= kind <= ERROR and not self._carry:
            self._ready = self._render(self._index)
        elif self._carry:
            self._ready, self._carry = self._carry, b""
        elif kind == JUNK:
            self._ready = self._draft.junk
        elif kind == PART:
            whole = self._render(self._index + 1)
            cut = split_point(whole)
            self._ready, self._carry = whole[:cut], whole[cut:]
        else:
            self._ready = b""

    def _render(self, index: int) -> bytes:
        script = self._script
        kind, tokens = script.kind[index], script.tokens[index]
        if kind == ERROR:
            return self._dress.put_on(self._error)
        if self._voice is None:
            return b""
        if kind in BURSTS and tokens == 0:
            tokens = 1  # a token that the plan does not count: it comes after the end
        return self._dress.put_on(self._voice.beat(kind, self._first, tokens))

    def _act(self, kind: int) -> None:
        """The beats that are not a piece of a body."""
        reply, draft = self._reply, self._draft
        if kind == HEAD:
            length = None if draft.length is None else _NO_END
            reply.start(self._status, self._headers, length=length)
        elif kind == WHOLE and draft.length is None:
            reply.whole(self._status, self._headers, self._body)
        elif kind in {WHOLE, HALF}:
            promised = len(self._body) + (draft.length or 0)
            reply.start(self._status, self._headers, length=promised)
            reply.send(self._body if kind == WHOLE else self._body[: len(self._body) // 2])
        elif kind == RAW:
            reply.link.write(draft.junk)
        elif kind == END:
            reply.finish()
        elif kind == RESET:
            _no_linger(reply.link.info("socket"))
            reply.abort()
        elif kind == CUT:
            reply.abort()


def _no_linger(sock: object) -> None:
    """Make the next close a reset; the loop's own transport gives a wrapper of its socket."""
    if isinstance(sock, socket.socket) or hasattr(sock, "setsockopt"):
        with suppress(OSError):  # the client has just left: it is closed already
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT)
