"""The player of one answer's script: writes each beat on the connection when the pacer says so."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

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
    from lightgate.sim.answer.answer import Renderer
    from lightgate.sim.answer.plan import AnswerPlan
    from lightgate.sim.log import SimLogEntry
    from lightgate.wire.door.door import Reply

_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)  # SO_LINGER on, zero seconds
_MOST_UNSENT: Final = 1 << 18  # bytes; the stream of a client this far behind waits for it
_RETRY_NS: Final = 5_000_000
_NO_END: Final = 1 << 40  # a content length that no stream reaches
_LINE_ENDS: Final = {"lf": b"\n", "crlf": b"\r\n", "cr": b"\r"}
_COMMENT: Final = b": sim keep-alive\n\n"
_BOM: Final = b"\xef\xbb\xbf"


class EventFraming:
    """The framing of events: line ends, comments, byte order mark, the optional space.

    The data of an event never changes: JSON has no raw line ends.
    """

    def __init__(self, plan: AnswerPlan, *, events: bool) -> None:
        self._end = _LINE_ENDS[plan.shape.line_end]
        self._comment = plan.shape.comments and events
        self._space = not plan.no_space
        self._before = (_BOM if plan.bom and events else b"") + b"\n" * plan.blank_lines
        self.plain = not (self._before or self._comment or plan.no_space or self._end != b"\n")

    def frame(self, data: bytes) -> bytes:
        """One beat of a stream as the plan wants it framed."""
        if self.plain or not data:
            return data
        if self._comment:
            data = _COMMENT + data
        if not self._space:
            data = data.replace(b"data: ", b"data:").replace(b"event: ", b"event:")
        if self._before:
            data, self._before = self._before + data, b""
        return data.replace(b"\n", self._end) if self._end != b"\n" else data


class Content(NamedTuple):
    """The parts of an answer beside its beats: headers, a whole body, the dialect's error event."""

    headers: list[tuple[bytes, bytes]]
    body: bytes
    error: bytes


class ScriptPlayer:
    """One answer on its way out; `over` is done when nothing more will be written."""

    def __init__(
        self,
        entry: SimLogEntry,
        plan: AnswerPlan,
        renderer: Renderer,
        reply: Reply,
        content: Content,
    ) -> None:
        self._script = plan.script
        self._start_ns = entry.start_ns
        self._actual = entry.actual_ns
        self._done = entry.done_ns
        self._status = entry.status
        self._plan = plan
        self._renderer = renderer
        self._reply = reply
        self._content = content
        self._body = b"\n" * plan.blank_lines + content.body
        self._framing = EventFraming(plan, events=plan.script.streamed)
        self._index = 0
        self._first = 0  # streamed tokens before the beat that is ready
        self._carry = b""
        self._ready = b""
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._prepare()

    @property
    def due_ns(self) -> int:
        """The instant of the beat that is ready."""
        return self._start_ns + self._script.at_ns[self._index]

    def fire(self, now_ns: int) -> int | None:
        """Write the beat that is due, then prepare the next; its due instant, None at the end."""
        reply, script, index = self._reply, self._script, self._index
        if reply.link.unsent > _MOST_UNSENT:
            return now_ns + _RETRY_NS
        kind = script.kind[index]
        self._actual.append(now_ns)
        if self._ready:
            reply.send(self._ready)
        elif kind >= RAW or kind == HEAD:
            self._act(kind)
        self._done.append(time.monotonic_ns())
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
            self._ready = self._plan.junk
        elif kind == PART:
            whole = self._render(self._index + 1)
            cut = _split_point(whole)
            self._ready, self._carry = whole[:cut], whole[cut:]
        else:
            self._ready = b""

    def _render(self, index: int) -> bytes:
        script = self._script
        kind, tokens = script.kind[index], script.tokens[index]
        if kind == ERROR:
            return self._framing.frame(self._content.error)
        if kind in BURSTS and tokens == 0:
            tokens = 1  # a token after the terminal marker, which the plan does not count
        return self._framing.frame(self._renderer.beat(kind, self._first, tokens))

    def _act(self, kind: int) -> None:
        """Carry out a beat that is not a piece of a stream."""
        reply, plan = self._reply, self._plan
        if kind == HEAD:
            length = None if plan.length is None else _NO_END
            reply.start(self._status, self._content.headers, length=length)
        elif kind == WHOLE and plan.length is None:
            reply.whole(self._status, self._content.headers, self._body)
        elif kind in {WHOLE, HALF}:
            promised = len(self._body) + (plan.length or 0)
            reply.start(self._status, self._content.headers, length=promised)
            reply.send(self._body if kind == WHOLE else self._body[: len(self._body) // 2])
        elif kind == RAW:
            reply.link.write(plan.junk)
        elif kind == END:
            reply.finish()
        elif kind == RESET:
            _reset_on_close(reply.link.info("socket"))
            reply.abort()
        elif kind == CUT:
            reply.abort()


def _split_point(data: bytes) -> int:
    """Inside the first character of several bytes, or in the middle if there is none."""
    for index, byte in enumerate(data):
        if byte >= 0xC0:
            return index + 1
    return len(data) // 2


def _reset_on_close(sock: object) -> None:
    """Make the next close a reset; the loop's own transport gives a wrapper of its socket."""
    if isinstance(sock, socket.socket) or hasattr(sock, "setsockopt"):
        with suppress(OSError):  # the client has just left: it is closed already
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
