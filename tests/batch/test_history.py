from __future__ import annotations

from typing import TYPE_CHECKING

from lightgate.batch.history import NAME, PastTime, PastTimes

if TYPE_CHECKING:
    from pathlib import Path


def test_times_are_kept_by_name_and_the_last_ones_count(tmp_path: Path) -> None:
    past = PastTimes(tmp_path / "data")
    assert past.jobs_s("openai") == []
    assert past.lines_per_s("openai/m") is None
    past.add([PastTime("job", "openai", 1000, float(n), 0.0) for n in range(1, 301)])
    past.add([PastTime("job", "groq", 1000, 5.0, 0.0), PastTime("job", "groq", 1, 0.0, 0.0)])
    rates = (1, 2, 100, 4, 5, 6)
    past.add([PastTime("parallel", "openai/m", 10 * rate, 10.0, 0.0) for rate in rates])
    again = PastTimes(tmp_path / "data")
    assert again.jobs_s("groq") == [5.0]
    assert again.jobs_s("openai") == [float(n) for n in range(101, 301)]
    assert again.lines_per_s("openai/m") == 5  # the median of the last five


def test_a_file_that_is_torn_or_cannot_be_written_teaches_nothing(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b'["job","a",1,2.0,0.0]\nnonsense\n["job","a",')
    assert PastTimes(tmp_path).jobs_s("a") == [2.0]
    (tmp_path / "file").write_bytes(b"")
    PastTimes(tmp_path / "file").add([PastTime("job", "a", 1, 2.0, 0.0)])
    nowhere = PastTimes(None)
    nowhere.add([PastTime("job", "a", 1, 2.0, 0.0)])
    assert nowhere.jobs_s("a") == []
