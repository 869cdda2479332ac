"""Every form of batch API at a simulator in this process, whose clock a test moves itself."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from lightgate.clock.source import ManualClock
from lightgate.provider.batch.job import JobAsked, JobLine, JobResult, JobStatus
from lightgate.provider.batch.registry import job_api
from lightgate.provider.catalogue import catalogue
from lightgate.provider.secret import Secret
from lightgate.provider.target import Target
from lightgate.sim.server.server import SimServer
from lightgate.sim.weather import NS
from lightgate.sim.world_file import parse
from lightgate.wire.client.client import Client
from lightgate.wire.client.proxy import Proxies

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from lightgate.provider.batch.job import JobApi

    Lab = Callable[..., Awaitable["BatchLab"]]

FORMS = ("openai", "groq", "together", "mistral", "anthropic", "gemini")
KEY = "sk-lab-0123456789"
TOOK_S = 100  # of every job, unless a test says otherwise


def world_of(form: str, batch: dict[str, Any]) -> dict[str, Any]:
    dialect = form if form in {"anthropic", "gemini"} else "openai"
    named = {} if form == dialect else {"form": form}
    model = {"exact": {"ttft_ms": 1, "gap_ms": 0}, "shape": {"tokens": 5}}
    provider = {
        "dialect": dialect,
        "key": KEY,
        "models": {"m": model},
        "batch": {"finish_s": [TOOK_S, TOOK_S], **named, **batch},
    }
    return {"name": "b", "title": "b", "source": "the tests", "providers": {form: provider}}


def body(form: str, text: str = "hi", model: str = "m") -> bytes:
    """A request in the dialect of a form."""
    if form == "gemini":
        return json.dumps({"contents": [{"role": "user", "parts": [{"text": text}]}]}).encode()
    say = [{"role": "user", "content": text}]
    return json.dumps({"model": model, "max_tokens": 4, "messages": say}).encode()


class BatchLab(NamedTuple):
    """A provider's API, its clock, and the simulator behind it."""

    form: str
    api: JobApi
    clock: ManualClock
    server: SimServer
    target: Target
    client: Client

    def lines(self, tag: str = "t", count: int = 4) -> list[JobLine]:
        return [JobLine(f"{tag}-{number}", body(self.form)) for number in range(count)]

    async def submit(self, lines: list[JobLine], tag: str = "t") -> tuple[JobAsked, JobStatus]:
        asked = await self.asked(lines, tag)
        return asked, await self.api.submit(asked, lines)

    async def asked(self, lines: list[JobLine], tag: str = "t") -> JobAsked:
        since_s = self.clock.wall_ns() / NS
        asked = JobAsked(tag, "/v1/chat/completions", len(lines), since_s=since_s)
        return asked._replace(file=await self.api.upload(asked, lines))

    def advance(self, seconds: float) -> None:
        self.clock.advance(round(seconds * NS))

    async def collect(self, status: JobStatus) -> dict[str, JobResult]:
        found = [result async for result in self.api.results(status)]
        by_id = {result.id: result for result in found}
        assert len(by_id) == len(found)
        return by_id


@asynccontextmanager
async def laboratory() -> AsyncIterator[Lab]:
    """Make labs: each of the form of a provider, with settings of its simulated batch API."""
    made: list[BatchLab] = []

    async def make(form: str, **batch: Any) -> BatchLab:
        clock = ManualClock()
        server = SimServer(parse(world_of(form, batch), "b"), seed=7, batch_clock=clock)
        port = await server.start()
        row = catalogue()[form]
        version = "v1beta" if form == "gemini" else "v1"
        url = f"http://127.0.0.1:{port}/{form}/{version}"
        target = Target(
            name=f"{form}/m", provider=row, model="m", base_url=url, api_key=Secret(KEY)
        )
        client = Client(proxies=Proxies())
        one = BatchLab(form, job_api(target, client), clock, server, target, client)
        made.append(one)
        return one

    try:
        yield make
    finally:
        for one in made:
            await one.client.close()
            await one.server.close()
