"""The checkpoint of a job: what is done stays done, at whatever byte the process died."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from lightgate.batch.journal import ERRORS, OUT, Checkpoint, JobBusy, key_of
from lightgate.batch.lines import BatchLine
from lightgate.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path


def line(number: int, text: str = "") -> BatchLine:
    body = json.dumps({"n": text or number}).encode()
    return BatchLine(number, f"id-{number}", "openai-chat", body)


def opened(folder: Path, **options: bool) -> Checkpoint:
    return Checkpoint(folder / "out", folder / "errors", wall_ns=1, **options)


def answer(job: Checkpoint, number: int, cost: int = 7) -> None:
    job.sent(number, "t")
    job.record(
        number, key_of(line(number)), OUT, b'{"n": %d}\n' % number,
        cost_nano=cost, tokens_in=2, tokens_out=3, target="t", exchange_id=f"x{number}",
    )  # fmt: skip


def numbers(folder: Path) -> list[int]:
    return [json.loads(one)["n"] for one in (folder / "out").read_bytes().splitlines()]


def test_what_is_done_is_known_again(tmp_path: Path) -> None:
    with opened(tmp_path) as job:
        answer(job, 1)
        answer(job, 3)
        job.record(2, key_of(line(2)), ERRORS, b"no\n")
        job.sent(4, "t")
    with opened(tmp_path) as job:
        assert [job.is_done(n, key_of(line(n))) for n in range(1, 5)] == [True, True, True, False]
        assert (job.answered, job.failed, job.resent) == (2, 1, 1)
        assert (job.cost_nano, job.tokens_in, job.tokens_out) == (14, 4, 6)
        assert job.result_at(job.keys[key_of(line(3))]) == b'{"n": 3}\n'
        assert job.last is not None
        assert job.last.number == 2


def test_a_process_that_dies_at_any_byte_loses_and_repeats_nothing(tmp_path: Path) -> None:
    """Cut both files at every place where a kill may have left them, then go on."""
    with opened(tmp_path) as job:
        for number in (1, 2):
            answer(job, number)
        sizes = [path.stat().st_size for path in (tmp_path / "out", tmp_path / "out.journal")]
        answer(job, 3)
    whole_out = (tmp_path / "out").read_bytes()
    whole_journal = (tmp_path / "out.journal").read_bytes()
    cuts = [(sizes[0], at) for at in range(sizes[1], len(whole_journal) + 1)]
    cuts += [(at, len(whole_journal)) for at in range(sizes[0], len(whole_out) + 1)]
    for at_out, at_journal in cuts:
        (tmp_path / "out").write_bytes(whole_out[:at_out])
        (tmp_path / "out.journal").write_bytes(whole_journal[:at_journal])
        with opened(tmp_path) as job:
            done = job.is_done(3, key_of(line(3)))
            assert done == (at_out == len(whole_out))
            assert job.cost_nano == (21 if done else 14)
            if not done:
                answer(job, 3)
            answer(job, 4)
        assert numbers(tmp_path) == [1, 2, 3, 4]
        with opened(tmp_path) as job:
            assert job.answered == 4
            assert job.cost_nano == 28


def test_a_result_that_is_damaged_does_not_count(tmp_path: Path) -> None:
    with opened(tmp_path) as job:
        answer(job, 1)
        answer(job, 2)
    data = (tmp_path / "out").read_bytes()
    (tmp_path / "out").write_bytes(data[:-3] + b"\0\0\n")
    with opened(tmp_path) as job:
        assert not job.is_done(2, key_of(line(2)))
        answer(job, 2)
    assert numbers(tmp_path) == [1, 2]


def test_failed_lines_can_be_opened_again(tmp_path: Path) -> None:
    with opened(tmp_path) as job:
        answer(job, 1)
        job.record(2, key_of(line(2)), ERRORS, b"no\n", cost_nano=5, exchange_id="x2")
    with opened(tmp_path, retry_failed=True) as job:
        assert (job.answered, job.failed, job.cost_nano) == (1, 0, 7)
        assert not job.is_done(2, key_of(line(2)))
        assert (tmp_path / "errors").read_bytes() == b""
        answer(job, 2)
    with opened(tmp_path) as job:
        assert (job.answered, job.failed) == (2, 0)


def test_a_file_that_has_changed_is_noticed(tmp_path: Path) -> None:
    with opened(tmp_path) as job:
        answer(job, 1)
        with pytest.raises(UsageError, match="Line 1 is not the one"):
            job.is_done(1, key_of(line(1, "another")))


def test_results_of_something_else_are_not_touched(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    with pytest.raises(UsageError, match="was not written by a job"):
        opened(tmp_path)
    assert (tmp_path / "out").read_text() == "mine"


def test_results_that_are_gone_are_not_begun_anew(tmp_path: Path) -> None:
    with opened(tmp_path) as job:
        answer(job, 1)
    (tmp_path / "out").unlink()
    with pytest.raises(UsageError, match="are gone"):
        opened(tmp_path)


def test_one_process_at_a_time(tmp_path: Path) -> None:
    with opened(tmp_path), pytest.raises(JobBusy):
        opened(tmp_path)


def test_a_full_disk_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path) as job:
        answer(job, 1)
        out = job._files[OUT]
        whole = out.append
        taken: list[bytes] = []

        def full(data: bytes) -> None:
            if not taken:
                taken.append(data)
                raise OSError(28, "No space left on device")
            whole(data)

        monkeypatch.setattr(out, "append", full)
        answer(job, 2)
        assert numbers(tmp_path) == [1]
        job.flush()
        assert numbers(tmp_path) == [1, 2]
        answer(job, 3)
    assert numbers(tmp_path) == [1, 2, 3]
    with opened(tmp_path) as job:
        assert job.answered == 3


def test_only_the_last_records_are_held_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lightgate.batch.journal.CHECKED", 3)
    with opened(tmp_path) as job:
        for number in range(1, 11):
            answer(job, number)
        job.record(11, key_of(line(11)), ERRORS, b"no\n")
    with opened(tmp_path) as job:
        assert (job.answered, job.failed, job.cost_nano) == (10, 1, 70)
    (tmp_path / "out").write_bytes(b"")
    with pytest.raises(UsageError, match="shorter than it was"):
        opened(tmp_path)
