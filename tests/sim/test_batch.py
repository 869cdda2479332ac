"""The simulator's batch APIs: states by the clock, single lines, losses and limits."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from lightgate.clock.source import ManualClock
from lightgate.sim.batch.jobs import SimJob, SimJobLine, SimJobs, SimLineEnd
from lightgate.sim.weather import NS
from lightgate.sim.world import WorldBatch

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sim.conftest import Sim

LINES = tuple(SimJobLine(f"l{number}", b"{}") for number in range(10))
STEADY = {"finish_s": (100.0, 100.0)}  # every job takes exactly this long


def answered(job: SimJob, line: SimJobLine) -> SimLineEnd:
    return SimLineEnd(line.id, "answer", 200, b"{}")


def jobs_of(clock: ManualClock, **spec: Any) -> SimJobs:
    return SimJobs(WorldBatch(**{**STEADY, **spec}), clock, answered, seed=7, name="lab")


def test_a_job_is_done_when_its_last_line_is() -> None:
    clock = ManualClock()
    jobs = jobs_of(clock)
    job = jobs.make("j", LINES, {})
    clock.advance(50 * NS)
    assert jobs.state(job)[:2] == ("running", 5)
    clock.advance(50 * NS)
    assert jobs.state(job) == ("completed", 10, 100 * NS)
    assert {end.fate for end in jobs.results(job)} == {"answer"}


def test_a_cancelled_job_keeps_what_was_done_and_what_was_done_while_it_ended() -> None:
    clock = ManualClock()
    jobs = jobs_of(clock, cancel_s=20)
    job = jobs.make("j", LINES, {})
    clock.advance(30 * NS)
    jobs.cancel(job)
    assert jobs.state(job).phase == "cancelling"
    clock.advance(20 * NS)
    jobs.cancel(job)  # a second time changes nothing
    assert jobs.state(job) == ("cancelled", 5, 50 * NS)
    fates = [end.fate for end in jobs.results(job)]
    assert (fates.count("answer"), fates.count("cancelled")) == (5, 5)


def test_lines_expire_with_the_window() -> None:
    clock = ManualClock()
    jobs = jobs_of(clock, window_s=40)
    job = jobs.make("j", LINES, {})
    clock.advance(1000 * NS)
    assert jobs.state(job) == ("expired", 4, 40 * NS)
    fates = [end.fate for end in jobs.results(job)]
    assert (fates.count("answer"), fates.count("expired")) == (4, 6)


def test_shares_of_lines_fail_or_never_finish() -> None:
    clock = ManualClock()
    jobs = jobs_of(clock, errors=0.3, stuck=0.2)
    lines = tuple(SimJobLine(str(number), b"{}") for number in range(1000))
    job = jobs.make("j", lines, {})
    clock.advance(90_000 * NS)
    fates = [end.fate for end in jobs.results(job)]
    assert fates.count("error") == pytest.approx(300, abs=50)
    assert fates.count("expired") == pytest.approx(200, abs=50)
    assert jobs.results(job) == jobs.results(job)


def test_times_of_jobs_are_lognormal() -> None:
    clock = ManualClock()
    jobs = jobs_of(clock, finish_s=(420.0, 3600.0))
    took = sorted(jobs.make(str(n), LINES[:1], {}).due[0][0] or 0 for n in range(1000))
    assert took[500] / NS == pytest.approx(420, rel=0.2)
    assert took[900] / NS == pytest.approx(3600, rel=0.3)


async def test_an_answer_may_be_lost_a_submission_refused_and_a_file_wrong(
    serve: Callable[..., Awaitable[Sim]],
) -> None:
    sim = await serve(lab={"batch": {"finish_s": [9, 9], "lost_every": 2, "refused_every": 3}})
    row = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {}}
    good = json.dumps(row).encode()
    ends = []
    for content in (good, good, good, good + b"\n" + good):
        parts = b'--b\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--b\r\n'
        head = b'content-disposition: form-data; name="file"; filename="x"\r\n\r\n'
        upload = await sim.ask("/lab/v1/files", parts + head + content + b"\r\n--b--\r\n")
        made = await sim.ask(
            "/lab/v1/batches",
            {"input_file_id": upload.json["id"], "endpoint": "/v1/chat/completions"},
        )
        ends.append((made.end, made.status))
    assert ends == [("complete", 200), ("cut", 0), ("complete", 429), ("complete", 200)]
    listed = (await sim.ask("/lab/v1/batches")).json["data"]
    assert [job["status"] for job in listed] == ["failed", "in_progress", "in_progress"]
    assert listed[0]["errors"]["data"][0]["code"] == "duplicate_custom_id"
