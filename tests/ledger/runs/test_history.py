from __future__ import annotations

import multiprocessing
import sqlite3
from decimal import Decimal
from typing import TYPE_CHECKING

import msgspec
import pytest

from bench.test_rules import worked
from lightgate.clock.attempt import AttemptRecord
from lightgate.clock.outcome import Outcome
from lightgate.errors import ConfigError
from lightgate.ledger.runs.history import VERSION, History, HistoryFailed, scheduled_runs
from lightgate.ledger.runs.run import Run

if TYPE_CHECKING:
    from pathlib import Path


def attempt(made: str, **changes: object) -> AttemptRecord:
    return msgspec.structs.replace(worked(made)[0], run_id="r-1", **changes)


def a_run(made: str = "r-1", started: str = "2026-01-01T00:00:00Z") -> Run:
    return Run(id=made, started=started, options={"requests": "6"})


def keep(path: Path, run: Run, values: list[float], schedule: str = "s") -> None:
    rows = [
        msgspec.structs.replace(attempt(f"{run.id}-{at}"), ttft_ms=value)
        for at, value in enumerate(values)
    ]
    with History(path) as history:
        history.append(run, rows, schedule=schedule)


def test_an_attempt_comes_back_as_it_went_in(tmp_path: Path) -> None:
    made = attempt(
        "a-1", cost_usd=Decimal("0.000012300000000001"), won=False, ttfa_ms=None,
        outcome=Outcome.RATE_LIMITED, error="no 'quotes' \"here\"",
    )  # fmt: skip
    with History(tmp_path / "h.sqlite") as history:
        assert history.append(a_run(), [made]) == 1
        assert history.attempts() == [made]
        assert history.runs() == [a_run()]


def test_the_columns_are_the_records(tmp_path: Path) -> None:
    path = tmp_path / "h.sqlite"
    with History(path):
        pass
    base = sqlite3.connect(path)
    names = [row[1] for row in base.execute("PRAGMA table_info(attempts)")]
    base.close()
    assert names == [*AttemptRecord.__struct_fields__, "load", "warmup"]


def test_the_same_run_again_changes_nothing(tmp_path: Path) -> None:
    with History(tmp_path / "h.sqlite") as history:
        history.append(a_run(), [attempt("a-1")])
        done = msgspec.structs.replace(a_run(), finished="2026-01-01T00:01:00Z")
        assert history.append(done, [attempt("a-1"), attempt("a-2")]) == 1
        assert [row.id for row in history.attempts()] == ["a-1", "a-2"]
        assert history.runs() == [done]


def test_queries_by_target_run_and_time(tmp_path: Path) -> None:
    times = ["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z"]
    rows = [
        attempt(f"a-{at}", wall_time=time, target=f"lab/s{at % 2}") for at, time in enumerate(times)
    ]
    with History(tmp_path / "h.sqlite") as history:
        history.append(a_run("r-1", times[0]), rows)
        history.append(a_run("r-2", times[2]), [attempt("b-1", wall_time=times[2])], schedule="s")

        def ids(**wanted: str) -> list[str]:
            return [row.id for row in history.attempts(**wanted)]

        assert ids(target="lab/s0") == ["a-0", "a-2"]
        assert ids(since=times[1]) == ["a-1", "a-2", "b-1"]
        assert ids(since=times[1], until=times[2]) == ["a-1"]
        assert ids(run_id="r-2") == ["b-1"]
        assert ids(target="x' OR 1=1 --") == []
        assert [run.id for run in history.runs()] == ["r-1", "r-2"]
        assert [run.id for run in history.runs(schedule="s")] == ["r-2"]
        assert [run.id for run in history.runs(until=times[1])] == ["r-1"]
        assert history.cells("r-1") == [("lab/s0", "c=1"), ("lab/s1", "c=1")]


def test_samples_are_the_successes_of_each_run(tmp_path: Path) -> None:
    path = tmp_path / "h.sqlite"
    keep(path, a_run("r-2", "2026-01-02T00:00:00Z"), [3.0, 4.0])
    keep(path, a_run("r-1", "2026-01-01T00:00:00Z"), [1.0, 2.0])
    keep(path, a_run("r-3", "2026-01-03T00:00:00Z"), [9.0], schedule="other")
    made, recording = worked("w-1")
    with History(path) as history:
        warm = msgspec.structs.replace(recording, warmup=True)
        failed = attempt("w-2", outcome=Outcome.TIMEOUT)
        lost = attempt("w-3", won=False)
        run = a_run("r-4", "2026-01-04T00:00:00Z")
        history.append(run, [made, failed, lost], {"w-1": warm}, schedule="s")
        found = history.samples("ttft_ms", target="lab/s1", load="c=1", schedule="s")
        last = history.samples("ttft_ms", target="lab/s1", load="c=1", schedule="s", last=2)
    assert found == [("r-1", [1.0, 2.0]), ("r-2", [3.0, 4.0])]
    assert last == [("r-2", [3.0, 4.0])]


@pytest.mark.parametrize("metric", ["id", "outcome", 'ttft_ms" --'])
def test_only_metrics_have_samples(tmp_path: Path, metric: str) -> None:
    with History(tmp_path / "h.sqlite") as history, pytest.raises(ValueError, match="no metric"):
        history.samples(metric, target="x", load="")


def test_the_load_comes_from_the_recording(tmp_path: Path) -> None:
    made, recording = worked("a-1")
    with History(tmp_path / "h.sqlite") as history:
        loaded = msgspec.structs.replace(recording, load="20/s poisson")
        history.append(a_run(), [made], {"a-1": loaded})
        assert history.cells("r-1") == [("lab/s1", "20/s poisson")]


def test_a_failed_append_keeps_nothing(tmp_path: Path) -> None:
    with History(tmp_path / "h.sqlite") as history:
        broken = attempt("a-2", error=object())  # nothing that SQLite can hold
        with pytest.raises(HistoryFailed, match="cannot be written"):
            history.append(a_run(), [attempt("a-1"), broken])
        assert (history.attempts(), history.runs()) == ([], [])
        assert history.append(a_run(), [attempt("a-1")]) == 1


def test_an_older_file_gets_the_missing_columns(tmp_path: Path) -> None:
    path = tmp_path / "h.sqlite"
    with History(path) as history:
        history.append(a_run(), [attempt("a-1")])
    base = sqlite3.connect(path)
    base.execute("ALTER TABLE attempts DROP COLUMN first_bound_ms")
    base.commit()
    base.close()
    with History(path) as history:
        assert history.attempts()[0].first_bound_ms is None
        history.append(a_run(), [attempt("a-2")])
        assert history.attempts(run_id="r-1")[1].first_bound_ms == 0.0


def test_an_older_file_with_the_old_name_of_resent_is_read(tmp_path: Path) -> None:
    path = tmp_path / "h.sqlite"
    made = [attempt("a-1", resent=True, end="marker"), attempt("a-2")]
    with History(path) as history:
        history.append(a_run(), made)
    base = sqlite3.connect(path)
    base.execute("ALTER TABLE attempts RENAME COLUMN resent TO replayed")
    base.commit()
    base.close()
    with History(path) as history:
        assert history.attempts() == made


def test_a_newer_file_and_no_history_are_refused(tmp_path: Path) -> None:
    newer = tmp_path / "newer.sqlite"
    base = sqlite3.connect(newer)
    base.execute(f"PRAGMA user_version = {VERSION + 1}")
    base.commit()
    base.close()
    with pytest.raises(ConfigError, match="newer Lightgate"):
        History(newer)
    (tmp_path / "text").write_text(
        "this is no database, and long enough to be read as a header\n" * 20
    )
    with pytest.raises(HistoryFailed, match="is no history"):
        History(tmp_path / "text")
    with pytest.raises(HistoryFailed, match="cannot be opened"):
        History(tmp_path / "text" / "h.sqlite")


def _write(path: Path, name: str, runs: int) -> None:
    for at in range(runs):
        keep(path, a_run(f"{name}-{at}"), [1.0] * 5)


def test_two_writers_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "h.sqlite"
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_write, args=(path, name, 10)) for name in ("x", "y")]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0]
    with History(path) as history:
        assert len(history.runs()) == 20
        assert len(history.attempts()) == 100


def test_runs_of_schedules_are_read_oldest_first_and_only_the_newest(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"

    def read(most: int = 9, since: str = "2026-01-02", until: str = "2026-01-05") -> list[str]:
        found = scheduled_runs(path, since=since, until=until, most=most)
        return [f"{name}:{run.id}" for name, run in found]

    assert read() == []
    assert not path.exists()
    for day in range(1, 6):
        keep(path, a_run(f"r-{day}", f"2026-01-0{day}T00:00:00Z"), [1.0], schedule=f"s{day}")
    keep(path, a_run("by-hand", "2026-01-03T01:00:00Z"), [1.0], schedule="")
    assert read() == ["s2:r-2", "s3:r-3", "s4:r-4"]
    assert read(most=2) == ["s3:r-3", "s4:r-4"]
    assert read(since="2026-01-02T00:00:00Z", until="2026-01-04T00:00:00Z") == ["s2:r-2", "s3:r-3"]


def test_a_file_that_is_no_history_is_said_and_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    path.write_bytes(b"something else" * 100)
    with pytest.raises(HistoryFailed, match=r"history.sqlite cannot be read: "):
        scheduled_runs(path, since="", until="3", most=9)
    assert path.read_bytes() == b"something else" * 100


def test_the_folders_of_a_history_are_made_and_a_broken_one_is_said(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "h.sqlite"
    with History(path):
        assert path.exists()
    with History(path) as history:
        history._base.execute("DROP TABLE attempts")
        with pytest.raises(HistoryFailed, match=r"h\.sqlite cannot be read: no such table"):
            history._read("SELECT * FROM attempts", ())
