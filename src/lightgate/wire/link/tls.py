"""TLS over any link, with ssl.MemoryBIO in between.

The inner link stamps a read before it is decrypted. The loop's own TLS cannot do that: it hands on
plain text only, and closes a connection in its own time.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from lightgate.wire.link.link import Link, Peer

_PLAIN_SIZE: Final = 65536
_SLICE: Final = 1 << 20  # bytes that are encrypted in one turn of the loop: some 2 ms
_HandshakeDone = Callable[[Exception | None], None]


def client_context() -> ssl.SSLContext:
    """A client's context: certificates and names verified, TLS 1.2 or newer, HTTP/1.1 only."""
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


def said_goodbye(link: Link) -> bool:
    """Whether the end of a link's bytes can be trusted.

    Without TLS it always is; with TLS the other side must have sent its close_notify, because
    anyone on the way can end a TCP connection.
    """
    tls = link.info("ssl_object")
    if not isinstance(tls, ssl.SSLObject):
        return True
    try:
        return not tls.read(1)
    except ssl.SSLZeroReturnError:
        return True
    except ssl.SSLError:  # it would like to read more
        return False


class TlsLink:
    """A link that speaks TLS over another one; the inner link's stamps are kept as they are.

    `on_handshake` is called once, with None or with the error that ended it.
    """

    __slots__ = (
        "_early",
        "_in",
        "_inner",
        "_on_handshake",
        "_open",
        "_out",
        "_ready",
        "_tls",
        "_waiting",
        "peer",
    )

    def __init__(self, inner: Link, context: ssl.SSLContext, host: str) -> None:
        self._in = ssl.MemoryBIO()
        self._out = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_hostname=host)
        self._inner = inner
        self.peer: Peer | None = None
        self._early: tuple[int, int] | None = None  # stamps of bytes that came before the owner
        self._ready = False
        self._waiting: deque[memoryview] = deque()  # not encrypted yet
        self._open = True
        self._on_handshake: _HandshakeDone | None = None

    def start(self, done: _HandshakeDone) -> None:
        """Begin the handshake."""
        self._on_handshake = done
        self._inner.attach(self)
        self._shake()

    # Link

    @property
    def is_open(self) -> bool:
        """Whether bytes may still be written."""
        return self._open and self._ready and self._inner.is_open

    @property
    def unsent(self) -> int:
        """Bytes that the kernel has not taken yet."""
        return self._inner.unsent + sum([len(data) for data in self._waiting])

    def attach(self, peer: Peer) -> None:
        """Name the owner; bytes that came with the handshake reach it in the next turn."""
        self.peer = peer
        if self._early is not None:
            asyncio.get_running_loop().call_soon(self._deliver, *self._early)
            self._early = None

    def write(self, data: bytes | memoryview) -> None:
        """Encrypt and send; a large body piece by piece, one in each turn of the loop."""
        if not self.is_open or not data:
            return
        if len(data) > _SLICE or self._waiting:
            self._waiting.append(memoryview(data))
            if len(self._waiting) == 1:
                self._encrypt_more()
            return
        self._tls.write(data)
        self._flush()

    def _encrypt_more(self) -> None:
        """Send the next piece of what waits."""
        if not self._waiting:
            return
        if not self.is_open:
            self._waiting.clear()
            return
        data = self._waiting.popleft()
        self._tls.write(data[:_SLICE])
        self._flush()
        if len(data) > _SLICE:
            self._waiting.appendleft(data[_SLICE:])
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._encrypt_more)

    def pause_reading(self) -> None:
        """Stop reading."""
        self._inner.pause_reading()

    def resume_reading(self) -> None:
        """Go on reading."""
        self._inner.resume_reading()

    def close(self) -> None:
        """Send close_notify and what is queued, then close."""
        self.peer = None
        if self._open and self._ready:
            for data in self._waiting:
                self._tls.write(data)
            self._waiting.clear()
            with contextlib.suppress(ssl.SSLError):  # the answer to it is not waited for
                self._tls.unwrap()
            self._flush()
        self._open = False
        self._inner.close()

    def abort(self) -> None:
        """Close the socket now."""
        self.peer = None
        self._open = False
        self._inner.abort()

    def info(self, name: str) -> object:
        """Facts of the connection."""
        return self._tls if name == "ssl_object" else self._inner.info(name)

    # Peer of the inner link

    def on_read(self, data: bytes, stamp: int, since: int) -> None:
        """Decrypt one read; all of its bytes keep the stamp of the read."""
        self._in.write(data)
        if not self._ready:
            self._shake()
            if not self._ready:
                return
        if self.peer is None:
            self._early = (stamp, since)
            return
        self._deliver(stamp, since)

    def on_eof(self) -> None:
        """Take the end of the socket; the framing of HTTP decides whether the answer was whole."""
        if not self._ready:
            self._lose(ConnectionResetError("closed during the TLS handshake"))
        elif self.peer is None:
            self._lose(ConnectionResetError("closed after the TLS handshake"))
        else:
            self.peer.on_eof()

    def on_lost(self, error: Exception | None) -> None:
        """Take the loss of the socket."""
        self._lose(error or ConnectionResetError("connection lost"))

    def pause_writing(self) -> None:
        """Tell the owner that the socket's backlog is full."""
        if self.peer is not None:
            self.peer.pause_writing()

    def resume_writing(self) -> None:
        """Tell the owner that the socket's backlog has drained."""
        if self.peer is not None:
            self.peer.resume_writing()

    def _shake(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return
        except (ssl.SSLError, ssl.CertificateError) as error:
            self._flush()
            self._lose(error)
            return
        self._ready = True
        self._flush()
        done, self._on_handshake = self._on_handshake, None
        if done is not None:
            done(None)

    def _deliver(self, stamp: int, since: int) -> None:
        parts: list[bytes] = []
        ended = False
        failure: ssl.SSLError | None = None
        while not ended and failure is None:
            try:
                part = self._tls.read(_PLAIN_SIZE)
            except ssl.SSLWantReadError:
                break
            except ssl.SSLZeroReturnError:
                ended = True
            except ssl.SSLError as error:
                failure = error
            else:
                ended = not part
                parts.append(part)
        self._flush()  # key updates and alerts that the reading produced
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        if data and self.peer is not None:
            self.peer.on_read(data, stamp, since)
        if failure is not None:
            self._lose(failure)
        elif ended and self.peer is not None:
            self.peer.on_eof()

    def _flush(self) -> None:
        data = self._out.read()
        if data:
            self._inner.write(data)

    def _lose(self, error: Exception) -> None:
        peer, self.peer = self.peer, None
        done, self._on_handshake = self._on_handshake, None
        self._open = False
        self._inner.abort()
        if done is not None:
            done(error)
        elif peer is not None:
            peer.on_lost(error)
