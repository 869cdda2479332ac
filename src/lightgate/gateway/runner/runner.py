"""Look after all batches: begin those that wait, tell those that run, delete what is too old."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from lightgate.gateway.runner.job_run import JobRun, RunnerTools
from lightgate.gateway.runner.window import SendWindow

if TYPE_CHECKING:
    from collections.abc import Callable

    from lightgate.gateway.batches.records import BatchJob
    from lightgate.gateway.batches.store import BatchStore
    from lightgate.gateway.runner.job_run import Send
    from lightgate.gateway.served.snapshot import BatchTerms

LOOK_S: Final = 0.25  # between two looks at the store
SWEEP_LOOKS: Final = 240  # looks between two sweeps
AT_ONCE: Final = 16  # batches that run side by side
AT_ONCE_PER_OWNER: Final = 2
REST_NS: Final = 5_000_000_000  # before a batch that broke off is begun again
END_S: Final = 8.0  # for lines under way, when the process ends
_log = logging.getLogger(__name__)


class BatchRunner:
    """Carries out the batches of one store."""

    def __init__(
        self, store: BatchStore, send: Send, terms: BatchTerms, now_ns: Callable[[], int]
    ) -> None:
        self._pool = ThreadPoolExecutor(1, "lightgate-runner")
        self.window = SendWindow(terms.at_once, now_ns)
        self.tools = RunnerTools(store, self._pool, self.window, send, terms.max_lines)
        self._runs: dict[str, tuple[JobRun, asyncio.Task[None]]] = {}
        self._resting: dict[str, int] = {}  # batches that broke off: until when
        self._now_ns = now_ns
        self._looks = 0

    def use(self, terms: BatchTerms) -> None:
        """Go on under other terms."""
        self.window.most = float(terms.at_once)
        self.window.width = min(self.window.width, self.window.most)
        self.tools.max_lines = terms.max_lines

    async def run(self, stop: asyncio.Event) -> None:
        """Look now and then until told to stop; then let lines under way come to their end."""
        while not stop.is_set():
            try:
                await self.look()
            except (sqlite3.Error, OSError) as error:
                _log.warning("The store of batches cannot be read: %s", error)
            try:
                async with asyncio.timeout(LOOK_S):
                    await stop.wait()
            except TimeoutError:
                pass
        await self.end()

    async def look(self) -> None:
        """Begin and tell, once."""
        store = self.tools.store
        if not store.exists:
            return  # nobody has left anything
        if self._looks % SWEEP_LOOKS == 0:
            await self.tools.in_thread(store.sweep)
        self._looks += 1
        jobs = await self.tools.in_thread(store.active)
        owners = Counter(run.job.owner for run, _ in self._runs.values())
        for job in jobs:
            running = self._runs.get(job.id)
            if running is not None:
                running[0].told(job)
            elif self._resting.get(job.id, 0) > self._now_ns():
                continue
            elif len(self._runs) < AT_ONCE and owners[job.owner] < AT_ONCE_PER_OWNER:
                owners[job.owner] += 1
                self._begin(job)

    async def end(self) -> None:
        """Send no more, and wait a while for what is under way."""
        self.window.close()
        tasks = [task for _, task in self._runs.values()]
        for run, _ in tuple(self._runs.values()):
            run.stop()
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=END_S)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)
        self._pool.submit(self.tools.store.close)
        self._pool.shutdown(wait=True)

    def _begin(self, job: BatchJob) -> None:
        run = JobRun(job, self.tools)
        task = asyncio.create_task(run.run(), name=job.id)
        self._runs[job.id] = run, task
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Forget a run; one that failed is begun again by the next look."""
        self._runs.pop(task.get_name(), None)
        self._resting.pop(task.get_name(), None)
        if not task.cancelled() and task.exception() is not None:
            self._resting[task.get_name()] = self._now_ns() + REST_NS
            _log.error("A batch broke off and is begun again", exc_info=task.exception())
