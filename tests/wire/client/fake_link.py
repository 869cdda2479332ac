"""A link that only pretends, for roundtrips without a socket."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lightgate.wire.link.link import Peer


class FakeLink:
    """Takes note of what is done to it."""

    def __init__(self) -> None:
        self.is_open = self.reads = True
        self.unsent = 0
        self.said: list[str] = []
        self.written: list[bytes] = []
        self.peer: Peer | None = None

    def attach(self, peer: Peer) -> None:
        self.said.append("attach")
        self.peer = peer

    def write(self, data: bytes | memoryview) -> None:
        self.said.append("write")
        self.written.append(bytes(data))

    def pause_reading(self) -> None:
        self.said.append("pause")
        self.reads = False

    def resume_reading(self) -> None:
        self.said.append("resume")
        self.reads = True

    def close(self) -> None:
        self.is_open = False

    def abort(self) -> None:
        self.is_open = False

    def info(self, name: str) -> object:
        return None
