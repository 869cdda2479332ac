from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from lightgate.ledger.runs.folder import DiskFailed, RunFolder
from lightgate.report.pages import files
from lightgate.report.pages.files import write_report
from report.conftest import Markup

if TYPE_CHECKING:
    from pathlib import Path

    from report.conftest import Sample


def test_a_folder_gets_its_page_its_table_and_its_charts(sample: Sample, tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    folder.write_run(sample.run)
    for attempt in sample.attempts[:240]:
        folder.append(attempt, sample.recordings[attempt.id])
    written = write_report(folder)
    assert [path.name for path in written] == [
        "report.html",
        "summary.csv",
        "degradation.svg",
        "degradation.png",
        "ttft_cdf.svg",
        "ttft_cdf.png",
        "cost_speed.svg",
        "cost_speed.png",
        "arrivals_1.svg",
        "arrivals_1.png",
    ]
    assert sorted(path.name for path in folder.path.iterdir()) == sorted(
        [*(path.name for path in written), "run.json", "attempts.jsonl", "bursts.jsonl"]
    )
    for path in written:
        if path.suffix == ".svg":
            assert Markup(path.read_text("utf-8")).elements[0][0] == "svg"
        if path.suffix == ".png":
            assert path.read_bytes().startswith(b"\x89PNG\r\n")
    assert write_report(folder) == written  # again, over the old files


def test_a_run_without_attempts_has_no_empty_charts(sample: Sample, tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    folder.write_run(msgspec.structs.replace(sample.run, cells=()))
    assert [path.name for path in write_report(folder)] == [files.HTML, files.CSV]


def test_a_disk_that_refuses_is_said(sample: Sample, tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    folder.write_run(sample.run)
    (folder.path / files.HTML).mkdir()
    (folder.path / files.HTML / "in the way").touch()
    with pytest.raises(DiskFailed, match=r"report\.html cannot be written"):
        write_report(folder)
