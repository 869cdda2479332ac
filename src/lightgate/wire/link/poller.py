"""Readiness of bare sockets, for kernel-stamped links.

The event loop's own watcher for bare sockets (uvloop on libuv) stops without a word when a socket
has an error, as it has after a reset. So the links have an epoll of their own; the loop watches
that one descriptor, and one turn serves every socket that is ready.
"""

from __future__ import annotations

import asyncio
import select
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

BATCH: Final = 512  # sockets served in one turn of the loop; then the others get theirs


class Poller:
    """Calls each watched socket's owner with the events that are ready."""

    __slots__ = ("_epoll", "_loop", "_watched")

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._watched: dict[int, Callable[[int], None]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def watch(self, fd: int, events: int, callback: Callable[[int], None]) -> None:
        """Call back whenever one of these events, an error or a hang-up is there."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(self._epoll.fileno(), self._ready)
        if fd in self._watched:
            self._epoll.modify(fd, events)
        else:
            self._epoll.register(fd, events)
        self._watched[fd] = callback

    def forget(self, fd: int) -> None:
        """Call back no more; to be said before the socket is closed."""
        if self._watched.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def close(self) -> None:
        """Watch nothing any more."""
        if self._epoll.closed:
            return
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._epoll.fileno())
        self._watched.clear()
        self._epoll.close()

    def _ready(self) -> None:
        watched = self._watched
        for fd, events in self._epoll.poll(0, BATCH):
            # A callback may have closed a later socket of this batch, and even opened another one
            # with its number: that one is asked to read, finds nothing, and goes on waiting.
            callback = watched.get(fd)
            if callback is not None:
                callback(events)
