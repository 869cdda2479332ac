"""Handlers that are coroutines: each request runs as one task behind the door's callbacks."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lightgate.wire.door.inbound import Inbound
    from lightgate.wire.door.reply import Reply

logger = logging.getLogger(__name__)


class TaskHandler:
    """Runs a coroutine for each request and cancels it when the client leaves before the end.

    What the coroutine does after its reply is finished goes on; `running` holds its tasks.
    """

    def __init__(self, handler: Callable[[Inbound, Reply], Awaitable[None]]) -> None:
        self._handler = handler
        self.running: set[asyncio.Task[None]] = set()

    def __call__(self, inbound: Inbound, reply: Reply) -> None:
        """Start the task of one request."""
        task = asyncio.get_running_loop().create_task(self._run(inbound, reply))
        self.running.add(task)
        task.add_done_callback(self.running.discard)
        reply.on_lost = task.cancel

    async def _run(self, inbound: Inbound, reply: Reply) -> None:
        try:
            await self._handler(inbound, reply)
        except asyncio.CancelledError:
            if not reply.finished:
                reply.abort()
            raise
        except Exception as error:  # noqa: BLE001 - the outer wall of a request
            reply.fail(error)
        else:
            if not reply.finished:
                logger.error("a handler returned without finishing its reply")
                reply.fail(None)
