"""Keep the providers' lists of models up to date, while `lightgate up` runs.

    python -m lightgate.gateway.process.lists ORDER

A look at the lists is a process of its own, which ends: it reads the configuration, fetches the
lists that are due, writes them to the data folder and prints what came of it. It happens at the
start, when a list is six hours old, and within a second after a client asked for an unknown name,
at most once a minute.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lightgate.clock.source import SYSTEM
from lightgate.errors import LightgateError
from lightgate.gateway.process.child import end_with_parent
from lightgate.gateway.process.lock import PARENT_DEATH_ENV
from lightgate.gateway.process.logs import CONSOLE_SECRET_ENV, say
from lightgate.gateway.process.prepare import ListNews, ListOrder, Preparation
from lightgate.provider.kept_lists import AGAIN_NS, FRESH_NS, WANTED
from lightgate.provider.model_list import NO_LIST

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from lightgate.clock.source import Clock

LOOK_S: Final = 1.0  # between two looks at whether a list is wanted
MOST_S: Final = 90.0  # that one look takes
_log = logging.getLogger(__name__)


class ListKeeper:
    """Has lists fetched when they are due; `changed` is called when the names are others."""

    def __init__(
        self,
        order: Callable[[], ListOrder],
        data: Path,
        changed: Callable[[], Awaitable[None]],
        *,
        clock: Clock = SYSTEM,
    ) -> None:
        self._order = order
        self._mark = data / WANTED
        self._changed = changed
        self._clock = clock
        self._seen = self._marked()
        self._tried_ns: int | None = None
        self._told: dict[str, str] = {}
        self.looked = asyncio.Event()  # after the first look

    def again(self) -> None:
        """Look at the next turn: the configuration may have another provider now."""
        self._tried_ns = None

    async def run(self, pause: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """Look now and then, until cancelled."""
        while True:
            await self.look()
            self.looked.set()
            await pause(LOOK_S)

    async def look(self) -> bool:
        """Fetch what is due, if anything may be; whether there was a look at the lists."""
        now, marked = self._clock.now_ns(), self._marked()
        since = None if self._tried_ns is None else now - self._tried_ns
        wanted = marked != self._seen
        if since is not None and since < (AGAIN_NS if wanted else FRESH_NS):
            return False
        self._tried_ns, self._seen = now, marked
        try:
            async with asyncio.timeout(MOST_S):
                news = await _ask(msgspec.structs.replace(self._order(), wanted=wanted))
        except TimeoutError:
            say(_log, logging.WARNING, "The lists of models were not fetched in time")
            return True
        if news is not None:
            await self._take(news)
        return True

    async def _take(self, news: ListNews) -> None:
        for name, problem in news.problems.items():
            if self._told.get(name) != problem:
                level = logging.INFO if problem == NO_LIST else logging.WARNING
                say(_log, level,
                    f"The list of models of {name} could not be fetched: {problem}. Models that"
                    f" are in no other list are known as {name}/MODEL only.",
                    provider=name)  # fmt: skip
        self._told = dict(news.problems)
        if not news.changed:
            return
        try:
            await self._changed()
        except LightgateError as error:
            say(_log, logging.WARNING, f"The names of models stay as they are. {error.message}")
        except Exception:  # noqa: BLE001 - the wall of a background task: workers need no list
            _log.exception("The names of models stay as they are")

    def _marked(self) -> int | None:
        try:
            return self._mark.stat().st_mtime_ns
        except OSError:
            return None


async def _ask(order: ListOrder) -> ListNews | None:
    """Carry an order out in a process of its own; None where it failed and said why.

    The process asks providers and needs their keys, but not the console's secret.
    """
    env = {name: value for name, value in os.environ.items() if name != CONSOLE_SECRET_ENV}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "lightgate.gateway.process.lists",
        msgspec.json.encode(order).decode(),
        stdin=asyncio.subprocess.PIPE,  # never written; our death closes it
        stdout=asyncio.subprocess.PIPE,
        env={**env, PARENT_DEATH_ENV: "1"},
        start_new_session=True,  # Ctrl-C reaches the parent alone
    )
    try:
        if process.stdout is None:
            return None
        said = await process.stdout.read()
        await process.wait()
        return msgspec.json.decode(said, type=ListNews)
    except ValueError:
        say(_log, logging.WARNING, "The lists of models stay as they are", code=process.returncode)
        return None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


def main(arguments: list[str]) -> int:
    """Carry out one order; the exit code."""
    end_with_parent(os.environ, grace_s=0.0)
    order = msgspec.json.decode(arguments[0], type=ListOrder)
    try:
        news = Preparation.of(order).refresh_lists(wanted=order.wanted)
    except LightgateError as error:
        sys.stderr.write(f"{error.message}\n")
        return error.exit_code
    sys.stdout.buffer.write(msgspec.json.encode(news))
    return 0


def order_of(prepare: Preparation) -> ListOrder:
    """The order for a look at the lists under the present configuration."""
    facts: Any = prepare.facts
    return ListOrder(
        path=None if prepare.path is None else str(prepare.path),
        typed=prepare.typed,
        world=prepare.world,
        facts=None if facts is None else dict(facts),
        port=prepare.port,
    )


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
