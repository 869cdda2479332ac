"""The record of jobs: what is written is there after a crash, and a torn line never was."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lightgate.batch.job_log import (
    CollectedJob,
    DroppedJob,
    JobLog,
    LeftJob,
    OverJob,
    PlannedJob,
    SubmittedJob,
    SubmittingJob,
    fingerprint,
)
from lightgate.errors import UsageError
from lightgate.provider.secret import Secret

if TYPE_CHECKING:
    from pathlib import Path


def planned(tag: str) -> PlannedJob:
    return PlannedJob(tag, "openai/m", "/v1/chat/completions", "ab", (1, 2))


def test_a_job_is_what_its_records_say(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl.jobs"
    with JobLog(path) as log:
        for tag in ("a", "b", "c", "d"):
            log.write(planned(tag))
        for tag in ("b", "c", "d"):
            log.write(SubmittingJob(tag, "file", 5.0))
        log.write(SubmittedJob("c", ("job",)))
        log.write(OverJob("c", "job", "completed", 9.0, 99.0))
        log.write(CollectedJob("c", 2))
        log.write(DroppedJob("d", "no job was made"))
        log.write(LeftJob("b"))
    with JobLog(path) as log:
        assert [job.planned.tag for job in log.live] == ["a", "b"]
        assert log.jobs["a"].submitting is None
        assert log.jobs["b"].submitting == SubmittingJob("b", "file", 5.0)
        assert log.jobs["c"].over == OverJob("c", "job", "completed", 9.0, 99.0)
        assert [tag for tag, job in log.jobs.items() if job.left] == ["b"]
        assert log.jobs["d"].dropped == "no job was made"


def test_every_cut_of_the_file_is_a_state_before(tmp_path: Path) -> None:
    path = tmp_path / "jobs"
    with JobLog(path) as log:
        log.write(planned("a"))
        log.write(SubmittingJob("a", "", 5.0))
        log.write(SubmittedJob("a", ("job",)))
    whole = path.read_bytes()
    ends = [place + 1 for place, byte in enumerate(whole) if byte == 10]
    for size in range(len(whole) + 1):
        path.write_bytes(whole[:size])
        with JobLog(path) as log:
            entries = sum(end <= size for end in ends)
            job = log.jobs.get("a")
            assert (job is not None) == (entries > 0)
            if job is not None:
                assert (job.submitting is not None) == (entries > 1)
                assert bool(job.ids) == (entries > 2)
            log.write(planned("z"))  # goes on where the last whole line ended
        with JobLog(path) as log:
            assert "z" in log.jobs


def test_a_record_of_a_later_version_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "jobs"
    path.write_bytes(b'["p","a","t","/v1/x","",[1],2]\n')
    with pytest.raises(UsageError, match="newer"):
        JobLog(path)


def test_a_fingerprint_tells_keys_apart_and_does_not_hold_them() -> None:
    one, two = fingerprint(Secret("sk-one-123456")), fingerprint(Secret("sk-two-123456"))
    assert one != two
    assert len(one) == 8
    assert "sk" not in one
    assert fingerprint(None) == ""
