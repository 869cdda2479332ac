"""Answers that real engines gave, played back on a socket as HTTP/1.1 frames them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import asyncio

FOLDER = Path(__file__).parent / "fixtures" / "streams"
TRANSFORMERS = "transformers-serve-5.17.txt"


class Recorded(NamedTuple):
    """One streamed answer: its head, and each event of its body."""

    head: bytes
    events: tuple[bytes, ...]

    @property
    def body(self) -> bytes:
        return b"".join(self.events)

    def chunked(self, *, ends: bool = True) -> bytes:
        """The answer with one chunk for each event, and the last chunk where the body `ends`."""
        chunks = [b"%x\r\n%b\r\n" % (len(event), event) for event in self.events]
        return self.head + b"".join(chunks) + (b"0\r\n\r\n" if ends else b"")

    async def play(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer every request of a connection with the recording."""
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            lines = head.lower().split(b"\r\n")
            length = next(line for line in lines if line.startswith(b"content-length:"))
            await reader.readexactly(int(length.partition(b":")[2]))
            writer.write(self.chunked())
            await writer.drain()


def recorded(name: str = TRANSFORMERS) -> Recorded:
    """Read a recording of tests/fixtures/streams."""
    head, _, body = (FOLDER / name).read_bytes().partition(b"\r\n\r\n")
    events = tuple(event + b"\n\n" for event in body.split(b"\n\n") if event.strip())
    return Recorded(head + b"\r\n\r\n", events)
