"""Conversations in a closed loop: a worker begins its next one as soon as its last one ended."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from lightgate.bench.workload.conversation import Conversation, Session
from lightgate.clock.quantile import interval, quantile

if TYPE_CHECKING:
    from collections.abc import Callable

    from lightgate.bench.workload.conversation import Talk, Turn
    from lightgate.bench.workload.workload import Workload
    from lightgate.provider.target import Target
    from lightgate.wire.client.client import Client
    from lightgate.wire.client.roundtrip import Deadlines


class Sessions:
    """Holds conversations with one target."""

    def __init__(
        self,
        client: Client,
        target: Target,
        talk: Talk,
        workload: Workload,
        deadlines: Deadlines,
    ) -> None:
        self._client = client
        self._target = target
        self._talk = talk
        self._workload = workload
        self._deadlines = deadlines

    async def run(
        self, workers: int, sessions: range, on_turn: Callable[[int, int, Turn], None]
    ) -> list[str]:
        """Hold those with these numbers; `on_turn` gets number, worker and turn.

        Returned is what the whole ones took, as sentences.
        """
        numbers = iter(sessions)
        over: list[Session] = []

        async def worker(own: int) -> None:
            for number in numbers:

                def take(turn: Turn, number: int = number) -> None:
                    on_turn(number, own, turn)

                conversation = Conversation(self._target, self._talk, self._workload, number)
                over.append(await conversation.run(self._client, self._deadlines, take))

        async with asyncio.TaskGroup() as group:
            for own in range(workers):
                group.create_task(worker(own))
        return [self._sentence(over)]

    def _sentence(self, over: list[Session]) -> str:
        whole = [session.total_ns / 1e9 for session in over if session.total_ns is not None]
        kind = "agent loops" if self._talk.tools else "conversations"
        about = "about " if self._talk.own else ""
        said = (
            f"{self._target.name}: {len(whole)} of {len(over)} {kind} of {about}{self._talk.turns}"
            " turns"
        )
        if interval(whole, 0.5) is None:
            return f"{said} were complete."
        middle, most = quantile(whole, 0.5), quantile(whole, 0.9)
        tail = "" if interval(whole, 0.9) is None else f", p90 {most:.2f} s"
        return f"{said} were complete; a whole one took p50 {middle:.2f} s{tail}."
