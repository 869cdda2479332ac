from __future__ import annotations

from typing import TYPE_CHECKING

from own_time import OwnTime

if TYPE_CHECKING:
    from pathlib import Path

MS = 1_000_000


def test_waiting_for_a_processor_takes_no_time_and_all_else_does(tmp_path: Path) -> None:
    queued = tmp_path / "schedstat"
    queued.write_text("7 1000 1\n")
    now = 50 * MS
    own = OwnTime(lambda: now, queued)
    assert own.now_ns() == 50 * MS
    now = 80 * MS  # it slept, or worked
    assert own.now_ns() == 80 * MS
    now, _ = 180 * MS, queued.write_text(f"9 {1000 + 99 * MS} 2\n")
    assert own.lost_ns() == 99 * MS
    assert own.now_ns() == 81 * MS
    assert own.now() == 0.081
    first = own.wall_ns()
    now += 5 * MS
    assert own.wall_ns() == first + 5 * MS
    own.close()


def test_one_who_is_set_aside_between_two_looks_does_not_go_back(tmp_path: Path) -> None:
    queued = tmp_path / "schedstat"
    queued.write_text("0 0 1\n")
    reads = iter([10 * MS, 60 * MS])

    def real_ns() -> int:
        now = next(reads)
        if now == 10 * MS:
            queued.write_text(f"0 {50 * MS} 2\n")  # right after the clock was read
        return now

    own = OwnTime(lambda: 0, queued)
    own._real_ns = real_ns
    assert own.now_ns() == 10 * MS
    own.close()
