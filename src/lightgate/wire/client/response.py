"""The parser of one connection's answers, one after the other.

A parser is made once for a connection: making one costs more than parsing a small answer.
"""

from __future__ import annotations

from typing import Final

import httptools

Headers = list[tuple[bytes, bytes]]  # names in lower case
_BODILESS: Final = frozenset((204, 304))
_CODINGS: Final = frozenset((b"content-encoding", b"transfer-encoding"))


class ResponseParser:
    """llhttp and what it has said about the answer under way.

    Nothing in the callbacks may raise: the parser would hide what it was. `bodies` are pieces that
    have not been taken yet; llhttp appends to that list itself.
    """

    __slots__ = (
        "_parser",
        "bodies",
        "chunked",
        "coded",
        "complete",
        "feed",
        "framed",
        "headers",
        "keep_alive",
        "on_body",
        "pieces",
        "status",
        "strange",
        "version",
    )

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.on_body = self.bodies.append  # no call of ours for each piece
        self._parser = httptools.HttpResponseParser(self)
        self.feed = self._parser.feed_data  # parse; raises httptools' own errors
        self.begin()

    def begin(self) -> None:
        """Forget the answer before: the next one begins."""
        self.headers: Headers = []
        self.bodies.clear()
        self.status = 0  # of the final answer; 0 until its headers are complete
        self.strange = 0  # a status that nobody asked for, or that of what follows the answer
        self.complete = False
        self.framed = False  # the answer says where it ends
        self.chunked = False  # ... by a last chunk
        self.coded = False  # its body, or its way here, may have a coding that is not known
        self.keep_alive = False
        self.version = ""  # of HTTP
        self.pieces = 0  # of the body, once something follows it

    # From the parser

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep one header; a trailer is not one."""
        if not self.status:
            self.headers.append((name.lower(), value.rstrip(b" \t")))

    def on_headers_complete(self) -> None:
        """Read the status: of the final answer, or of an interim one, which is passed over."""
        status = int(self._parser.get_status_code())
        if self.complete:  # a second answer: `strange` ends the roundtrip
            return
        if status >= 200:
            self.framed = status in _BODILESS
            for name, value in self.headers:
                if name == b"content-length":
                    self.framed = True
                elif name in _CODINGS:
                    self._coded(name, value)
            self.status = status
            self.version = self._parser.get_http_version()
            return
        self.headers = []
        if status == 101 or status < 100:
            self.strange = status or 1

    def _coded(self, name: bytes, value: bytes) -> None:
        if name == b"transfer-encoding":
            self.framed = self.chunked = True
        if value != b"chunked":
            self.coded = True

    def on_message_complete(self) -> None:
        """Note that the answer is whole."""
        if self.status and not self.complete:
            self.keep_alive = bool(self._parser.should_keep_alive())
            self.complete = True

    def on_message_begin(self) -> None:
        """Note bytes after the answer: the two sides disagree about where it ended."""
        if self.complete:
            self.strange = self.status
            self.pieces = len(self.bodies)
