"""The answers of one connection, parsed one after the other by one parser.

A parser is made once for a connection: making one costs more than parsing a small answer.
"""

from __future__ import annotations

import httptools

Headers = list[tuple[bytes, bytes]]  # names in lower case


class AnswerParser:
    """llhttp and what it has said about the answer under way.

    Nothing in the callbacks may raise: the parser would hide what it was.
    """

    __slots__ = (
        "_parser",
        "bodies",
        "complete",
        "feed",
        "framed",
        "headers",
        "keep_alive",
        "status",
        "strange",
    )

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self.feed = self._parser.feed_data  # parse; raises httptools' own errors
        self.begin()

    def begin(self) -> None:
        """The next answer: forget the one before."""
        self.headers: Headers = []
        self.bodies: list[bytes] = []  # pieces that nobody has taken yet
        self.status = 0  # of the final answer; 0 until its headers are complete
        self.strange = 0  # a status that nobody asked for, or that of what follows the answer
        self.complete = False
        self.framed = False  # the answer says where it ends
        self.keep_alive = False

    @property
    def version(self) -> str:
        """Of the protocol that the answer speaks."""
        return str(self._parser.get_http_version())

    # From the parser

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header; a trailer is not one."""
        if not self.status:
            self.headers.append((name.lower(), value.rstrip(b" \t")))

    def on_headers_complete(self) -> None:
        """All headers: the final ones, or those of an interim answer."""
        status = int(self._parser.get_status_code())
        if status >= 200:
            self.framed = status in {204, 304}
            for name, _ in self.headers:
                if name in {b"content-length", b"transfer-encoding"}:
                    self.framed = True
            self.status = status
            return
        self.headers = []
        if status == 101 or status < 100:
            self.strange = status or 1

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        if self.status and not self.complete:
            self.bodies.append(body)

    def on_message_complete(self) -> None:
        """An answer is whole."""
        if self.status and not self.complete:
            self.keep_alive = bool(self._parser.should_keep_alive())
            self.complete = True

    def on_message_begin(self) -> None:
        """Something after the answer means that the two sides disagree about where it ended."""
        if self.complete:
            self.strange = self.status
