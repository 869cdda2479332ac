"""Lines by way of a batch API: every line answered once, whatever dies, is lost or comes late."""

from __future__ import annotations

import asyncio
import json
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from batch_lab import FORMS, TOOK_S, laboratory
from lightgate.batch.job_desk import JobDesk
from lightgate.batch.job_log import SUFFIX, JobLog
from lightgate.batch.journal import Checkpoint
from lightgate.batch.lines import BatchLine, LineReader
from lightgate.batch.via import ProviderJobs, ViaAround, ViaOrder
from lightgate.batch.words import BatchWords
from lightgate.errors import PeerReset, UsageError
from lightgate.provider.batch.registry import job_api
from lightgate.provider.secret import Secret
from lightgate.sim.weather import NS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from batch_lab import BatchLab, Lab
    from lightgate.batch.via import ViaSummary
    from lightgate.ledger.journal.notes import Settled
    from lightgate.provider.batch.job import JobApi

SMALL = ViaOrder(job_lines=4)


@pytest.fixture
async def lab() -> AsyncIterator[Lab]:
    async with laboratory() as make:
        yield make


def file_of(count: int, dialect: str = "openai") -> bytes:
    """A batch file whose every line asks something else."""
    if dialect == "anthropic":
        rows: list[Any] = [
            {
                "custom_id": f"id-{n}",
                "params": {
                    "model": "m",
                    "max_tokens": 4,
                    "messages": [{"role": "user", "content": f"say {n}"}],
                },
            }
            for n in range(count)
        ]
    else:
        rows = [
            {
                "custom_id": f"id-{n}",
                "method": "POST",
                "url": "/v1/chat/completions",
                "body": {
                    "model": "m",
                    "max_tokens": 4,
                    "stream": True,
                    "messages": [{"role": "user", "content": f"say {n}"}],
                },
            }
            for n in range(count)
        ]
    return "\n".join(map(json.dumps, rows)).encode()


class Die(Exception):  # noqa: N818 - names the event
    """The process is killed here."""


class Run:
    """One run of a file at a lab; `start` is a process of its own."""

    def __init__(self, at: BatchLab, folder: Path, data: bytes) -> None:
        self.at = at
        self.data = data
        self.out = folder / "out.jsonl"
        self.notes: list[Settled] = []
        self.told: list[str] = []
        self.slept = 0.0

    def read(self) -> Iterator[BatchLine]:
        import io

        found = LineReader().lines(io.BytesIO(self.data))
        return (line for line in found if isinstance(line, BatchLine))

    async def sleep(self, seconds: float) -> None:
        self.slept += seconds
        self.at.clock.advance(round(seconds * NS))
        await asyncio.sleep(0)

    async def start(
        self,
        order: ViaOrder = SMALL,
        *,
        api: JobApi | None = None,
        target: Any = None,
        then: Callable[[ProviderJobs], Any] | None = None,
    ) -> ViaSummary:
        words = BatchWords(target or self.at.target)
        with ExitStack() as stack:
            errors = self.out.with_name("errors.jsonl")
            wall_ns = self.at.clock.wall_ns()
            files = stack.enter_context(Checkpoint(self.out, errors, wall_ns=wall_ns))
            log = stack.enter_context(JobLog(self.out.with_name(self.out.name + SUFFIX)))
            desk = JobDesk(files, words, clock=self.at.clock, settle=self.notes.append)
            around = ViaAround(self.at.clock, self.sleep, self.told.append)
            jobs = ProviderJobs(api or self.at.api, words, log, desk, order, around)
            summary = await jobs.run(self.read)
            if then is not None:
                await then(jobs)
            self.cost_nano = files.cost_nano
            return summary

    @property
    def results(self) -> dict[str, Any]:
        rows = [json.loads(line) for line in self.out.read_bytes().splitlines()]
        found = {row["custom_id"]: row for row in rows}
        assert len(found) == len(rows)  # no line twice
        return found

    @property
    def made(self) -> int:
        """Jobs that the provider was paid for."""
        return self.at.server._batches[self.at.form].jobs.made


class Wrapped:
    """An API that dies at a step of its way."""

    def __init__(self, api: JobApi, before: str = "", after: str = "", turn: int = 1) -> None:
        self._api = api
        self._before = before
        self._after = after
        self._turn = turn

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._api, name)
        if name not in {self._before, self._after}:
            return real

        async def step(*words: Any) -> Any:
            self._turn -= 1
            if not self._turn and name == self._before:
                raise Die
            answer = await real(*words)
            if not self._turn and name == self._after:
                raise Die
            return answer

        return step


@pytest.mark.parametrize("form", FORMS)
async def test_lines_are_split_into_jobs_and_answered(lab: Lab, form: str, tmp_path: Path) -> None:
    run = Run(await lab(form), tmp_path, file_of(10))
    summary = await run.start()
    assert (summary.jobs, summary.answered, summary.back) == (3, 10, 0)
    assert set(run.results) == {f"id-{n}" for n in range(10)}
    answer = run.results["id-3"]["response"]["body"]
    assert answer["object"] == "chat.completion"  # whatever the provider speaks
    assert answer["choices"][0]["message"]["content"]
    assert len(run.notes) == 10
    assert {note.attempts[0].facts.source for note in run.notes} == {"batch"}
    assert run.slept < TOOK_S + 60
    again = await run.start()
    assert (again.jobs, again.answered, run.made) == (0, 0, 3)


async def test_lines_of_another_dialect_are_answered_in_it(lab: Lab, tmp_path: Path) -> None:
    run = Run(await lab("openai"), tmp_path, file_of(2, "anthropic"))
    await run.start()
    assert run.results["id-0"]["response"]["body"]["type"] == "message"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("step", "paid"),
    [({"before": "submit"}, 2), ({"after": "submit"}, 2), ({"after": "poll"}, 2)],
    ids=["before the submission", "after it", "while it runs"],
)
async def test_a_kill_pays_for_no_job_twice(
    lab: Lab, form: str, step: dict[str, str], paid: int, tmp_path: Path
) -> None:
    """A process that dies around a submission, and a second one that goes on."""
    at = await lab(form)
    run = Run(at, tmp_path, file_of(8))
    with suppress(Die):
        await run.start(api=Wrapped(at.api, **step))  # type: ignore[arg-type]  # as good as one
    summary = await run.start()
    assert summary.back == 0
    assert set(run.results) == {f"id-{n}" for n in range(8)}
    assert run.made == paid
    assert len({note.exchange.id for note in run.notes}) == len(run.notes) == 8


@pytest.mark.parametrize("form", FORMS)
async def test_a_kill_while_results_are_read_takes_each_once(
    lab: Lab, form: str, tmp_path: Path
) -> None:
    at = await lab(form)
    run = Run(at, tmp_path, file_of(8))
    real, seen = JobDesk.answer, 0

    async def dying(desk: JobDesk, *words: Any) -> bool:
        nonlocal seen
        seen += 1
        if seen == 6:
            raise Die
        return await real(desk, *words)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JobDesk, "answer", dying)
        with suppress(Die):
            await run.start()
    assert len(run.results) == 5
    await run.start()
    assert len(run.results) == 8
    assert run.made == 2
    assert len(run.notes) == 8


@pytest.mark.parametrize("form", FORMS)
async def test_results_that_break_off_are_read_again(lab: Lab, form: str, tmp_path: Path) -> None:
    at = await lab(form)
    run = Run(at, tmp_path, file_of(8))
    broken = 0

    class Breaking:
        def __getattr__(self, name: str) -> Any:
            return getattr(at.api, name)

        async def results(self, status: Any) -> Any:
            nonlocal broken
            count = 0
            async for result in at.api.results(status):
                if count == 2 and broken < 3:
                    broken += 1
                    raise PeerReset("The connection broke.")
                yield result
                count += 1

    summary = await run.start(api=Breaking())
    assert (len(run.results), summary.doubles, summary.back, broken) == (8, 0, 0, 3)


@pytest.mark.parametrize("form", FORMS)
async def test_a_lost_answer_is_followed_by_a_look_and_not_by_a_second_job(
    lab: Lab, form: str, tmp_path: Path
) -> None:
    run = Run(await lab(form, lost_every=1), tmp_path, file_of(8))
    summary = await run.start()
    assert (summary.answered, run.made) == (8, 2)
    assert any("found again" in told for told in run.told)


async def test_jobs_of_others_are_not_taken_for_ours(lab: Lab, tmp_path: Path) -> None:
    """Nothing marks a job of Anthropic's: the ids of its lines say whose it is."""
    at = await lab("anthropic", lost_every=3)
    strangers = [await at.submit(at.lines(f"other{n}"), "other") for n in range(2)]
    assert len(strangers) == 2
    run = Run(at, tmp_path, file_of(4))
    summary = await run.start()
    assert (summary.answered, run.made) == (4, 3)


async def test_a_job_that_may_be_of_another_is_neither_waited_for_nor_cancelled(
    lab: Lab, tmp_path: Path
) -> None:
    """Another client submits a job of as many lines just after ours, whose answer was lost."""
    at = await lab("anthropic", lost_every=1000)
    jobs = at.server._batches["anthropic"].jobs
    run = Run(at, tmp_path, file_of(4))
    jobs.made = 999  # ours is the one whose answer is lost
    real = run.sleep
    others: list[str] = []

    async def sleep(seconds: float) -> None:
        await real(seconds)
        if not others:
            _, other = await at.submit(at.lines("other"), "other")
            others.append(other.id)
            at.server._batches["anthropic"].jobs.jobs[other.id].due = [(None, False)] * 4

    run.sleep = sleep  # type: ignore[method-assign]  # of this run alone
    safe_s = at.clock.wall_ns() / NS + 10 * TOOK_S
    summary = await run.start(ViaOrder(job_lines=4, safe_s=safe_s))
    assert (summary.answered, summary.back) == (4, 0)
    assert at.clock.wall_ns() / NS < safe_s
    assert any(" or " in told for told in run.told)
    jobs.jobs[others[0]].cancelled_ns = None
    again = Run(at, tmp_path / "again", file_of(4))
    (tmp_path / "again").mkdir()
    jobs.made = 999
    at.server._batches["anthropic"].jobs.spec = msgspec.structs.replace(
        jobs.spec, finish_s=(36000.0, 36000.0)
    )
    soon_s = at.clock.wall_ns() / NS + 60
    await again.start(ViaOrder(job_lines=4, safe_s=soon_s))
    assert jobs.jobs[others[0]].cancelled_ns is None


@pytest.mark.parametrize("form", FORMS)
async def test_what_expires_or_fails_is_left_to_another_way(
    lab: Lab, form: str, tmp_path: Path
) -> None:
    run = Run(await lab(form, window_s=TOOK_S / 2, errors=0.2), tmp_path, file_of(8))
    summary = await run.start(ViaOrder(job_lines=8))
    assert summary.answered == len(run.results) <= 4
    assert summary.answered + summary.back == 8
    assert not run.out.with_name("errors.jsonl").read_bytes()


async def test_a_line_that_is_wrong_ends_in_the_errors(lab: Lab, tmp_path: Path) -> None:
    data = file_of(2).replace(b'"max_tokens": 4', b'"max_tokens": -4', 1)
    run = Run(await lab("openai"), tmp_path, data)
    summary = await run.start()
    assert (summary.answered, summary.back) == (2, 0)
    (row,) = run.out.with_name("errors.jsonl").read_bytes().splitlines()
    assert json.loads(row)["response"]["status_code"] == 400
    assert len(run.results) == 1


@pytest.mark.parametrize("form", FORMS)
async def test_the_last_safe_moment(lab: Lab, form: str, tmp_path: Path) -> None:
    """Jobs that take a day are cancelled in time; what they did is kept, the rest is open."""
    at = await lab(form, finish_s=[1000, 1000])
    run = Run(at, tmp_path, file_of(8))
    safe_s = at.clock.wall_ns() / NS + 520
    summary = await run.start(ViaOrder(job_lines=4, safe_s=safe_s))
    assert at.clock.wall_ns() / NS < safe_s + 60
    assert summary.stopped == "the deadline is near"
    assert summary.answered == len(run.results) == 4
    assert summary.back == 4


async def test_what_a_job_did_after_it_was_given_up_is_counted_as_double(
    lab: Lab, tmp_path: Path
) -> None:
    at = await lab("openai", cancel_s=400)
    run = Run(at, tmp_path, file_of(4))
    safe_s = at.clock.wall_ns() / NS + 10

    async def in_parallel(jobs: ProviderJobs) -> None:
        """The engine answers all lines meanwhile; then the job ends after all."""
        for kept in list(jobs._lines.values()):
            jobs._desk._files.record(kept.line.number, kept.key, 0, b"{}\n")  # type: ignore[attr-defined]  # the desk of this test
        at.advance(1000)

    summary = await run.start(ViaOrder(job_lines=4, safe_s=safe_s), then=in_parallel)
    assert (summary.answered, summary.back) == (0, 4)
    again = await run.start()
    assert (again.answered, again.doubles, run.made) == (0, 4, 1)
    assert (await run.start()).doubles == 0


async def test_a_refusal_for_now_is_waited_for_and_a_final_one_is_not(
    lab: Lab, tmp_path: Path
) -> None:
    busy = Run(await lab("openai", refused_every=2), tmp_path, file_of(12))
    summary = await busy.start()
    assert (summary.answered, summary.back, busy.made) == (12, 0, 3)
    (tmp_path / "b").mkdir()
    at = await lab("openai")
    wrong = Run(at, tmp_path / "b", file_of(12))
    stranger = msgspec.structs.replace(at.target, api_key=Secret("sk-nobody-123"))
    api = job_api(stranger, at.client)
    summary = await wrong.start(api=api, target=stranger)
    assert (summary.answered, summary.back, wrong.made) == (0, 4, 0)
    assert "401" in summary.stopped
    assert "sk-nobody" not in summary.stopped


async def test_jobs_under_another_key_are_not_given_up_silently(lab: Lab, tmp_path: Path) -> None:
    at = await lab("openai")
    run = Run(at, tmp_path, file_of(4))
    with suppress(Die):
        await run.start(api=Wrapped(at.api, before="poll"))
    other = msgspec.structs.replace(at.target, api_key=Secret("sk-other-123456"))
    with pytest.raises(UsageError, match="another key"):
        await run.start(target=other)
    assert (await run.start()).answered == 4


async def test_identical_lines_are_asked_once(lab: Lab, tmp_path: Path) -> None:
    first = file_of(2)
    twins = first.replace(b"id-", b"twin-")
    run = Run(await lab("openai"), tmp_path, first + b"\n" + twins)
    summary = await run.start()
    assert summary.answered == 2  # the engine copies the others from their twins
    assert set(run.results) == {"id-0", "id-1"}


async def test_one_answer_that_there_is_no_such_job_is_not_believed(
    lab: Lab, tmp_path: Path
) -> None:
    at = await lab("openai")
    run = Run(at, tmp_path, file_of(4))
    jobs = at.server._batches["openai"].jobs
    polls = 0

    class Forgetful:
        def __getattr__(self, name: str) -> Any:
            return getattr(at.api, name)

        async def poll(self, name: str) -> Any:
            nonlocal polls
            polls += 1
            kept = dict(jobs.jobs)
            if polls < 4:
                jobs.jobs.clear()
            try:
                return await at.api.poll(name)
            finally:
                jobs.jobs.update(kept)

    summary = await run.start(api=Forgetful())
    assert summary.answered == 4


async def test_cost_is_that_of_the_batch_tier(lab: Lab, tmp_path: Path) -> None:
    from decimal import Decimal

    from lightgate.price.rates import Rates

    at = await lab("openai")
    own = Rates(
        input=Decimal(2), output=Decimal(8), batch_input=Decimal(1), batch_output=Decimal(4)
    )
    target = msgspec.structs.replace(at.target, rates=own)
    run = Run(at, tmp_path, file_of(5))
    await run.start(target=target)
    usage = [row["response"]["body"]["usage"] for row in run.results.values()]
    wanted = sum(1000 * one["prompt_tokens"] + 4000 * one["completion_tokens"] for one in usage)
    assert run.cost_nano == wanted
    assert sum(note.exchange.cost_nano or 0 for note in run.notes) == wanted
    assert {note.attempts[0].facts.cost_source for note in run.notes} == {"override"}


async def test_no_more_lines_go_into_jobs_than_may_be_paid(lab: Lab, tmp_path: Path) -> None:
    run = Run(await lab("openai"), tmp_path, file_of(12))
    summary = await run.start(ViaOrder(job_lines=4, most_lines=6))
    assert (summary.answered, run.made) == (6, 2)
    assert summary.stopped == "no more may be spent"
