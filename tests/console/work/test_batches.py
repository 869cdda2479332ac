from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from lightgate.batch.history import PastTime, PastTimes
from lightgate.console.work.batches import batch_list
from lightgate.console.work.own_gateway import OwnGateway
from lightgate.gateway.batches.records import BatchJob, FileProblem
from lightgate.gateway.batches.store import BatchStore
from lightgate.gateway.served.snapshot import BatchTerms

if TYPE_CHECKING:
    from pathlib import Path

    from console.conftest import Get

NOW = 1_700_000_100


def job(id_: str, **changes: Any) -> BatchJob:
    facts: dict[str, Any] = {
        "id": id_, "owner": "", "kind": "openai", "endpoint": "/v1/chat/completions",
        "input_file": f"in-{id_}", "output_file": f"out-{id_}", "error_file": f"err-{id_}",
        "created_s": NOW - 100, "expires_s": NOW + 80_000, "keep_s": 86_400, "digest": id_,
    }  # fmt: skip
    return BatchJob(**{**facts, **changes})


@pytest.fixture
def own(tmp_path: Path) -> OwnGateway:
    store = BatchStore(tmp_path)
    under_way = job(
        "b1", state="in_progress", total=100, completed=18, failed=2, model="lab/s1",
        at={"in_progress": NOW - 10}, usage={"input": 500, "output": 900}, owner="key-1",
    )  # fmt: skip
    times = {"in_progress": NOW - 60, "finalizing": NOW - 50, "completed": NOW - 49}
    ended = job("b2", state="completed", total=5, completed=5, at=times)
    problem = FileProblem("bad", "<b>No line</b> is one.", 3)
    refused = job("b3", state="failed", at={"failed": NOW - 1}, problems=(problem,))
    for one in (under_way, ended, refused):
        store.add_job(one, BatchTerms(), repeated=False)
        store.change(one.id, lambda _, one=one: one)  # type: ignore[misc]
    store.close()
    return OwnGateway(tmp_path)


def test_progress_rate_and_end(own: OwnGateway) -> None:
    rows = {row.id: row for row in batch_list(own, "all", NOW).rows}
    assert list(rows) == ["b3", "b2", "b1"]
    first = rows["b1"]
    assert (first.done, first.total, first.failed, first.active) == (20, 100, 2, True)
    assert first.rate_per_s == 2.0
    assert first.ends == "2023-11-14T22:15:40Z"  # 80 lines at 2 a second from now
    assert (first.tokens_in, first.tokens_out, first.key) == (500, 900, "key-1")
    assert (rows["b2"].rate_per_s, rows["b2"].ends) == (0.5, None)
    assert rows["b2"].over == "2023-11-14T22:14:11Z"
    assert (rows["b3"].rate_per_s, rows["b3"].problem) == (None, "<b>No line</b> is one.")


@pytest.mark.parametrize(
    ("state", "ids"),
    [("running", ["b1"]), ("ended", ["b3", "b2"]), ("failed", ["b3", "b1"])],
)
def test_states(own: OwnGateway, state: str, ids: list[str]) -> None:
    assert [row.id for row in batch_list(own, state, NOW).rows] == ids


def test_earlier_runs_and_the_commands_of_an_empty_folder(tmp_path: Path) -> None:
    own = OwnGateway(tmp_path)
    PastTimes(tmp_path).add([PastTime("parallel", "lab/s1", 10, 2.0, float(NOW))])
    told = batch_list(own, "all", NOW)
    assert told.rows == []
    assert not (tmp_path / "batches").exists()  # looking makes nothing
    assert [(one.name, one.lines, one.seconds) for one in told.past] == [("lab/s1", 10, 2.0)]
    assert told.try_lines[0].endswith("> lines.jsonl")


def test_the_commands_of_an_empty_folder_work_one_after_the_other(tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    curl = tmp_path / "curl"
    said = '{"id":"file-0a1b","object":"file"}'
    curl.write_text(f"#!/bin/sh\nprintf '%s\\n' \"$@\" >> {asked}\necho '{said}'\n", "utf-8")
    curl.chmod(0o700)
    lines = batch_list(OwnGateway(tmp_path), "all", NOW).try_lines
    subprocess.run(
        ["sh", "-e", "-c", "\n".join(lines)], cwd=tmp_path, check=True, capture_output=True,
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
    )  # fmt: skip
    assert json.loads((tmp_path / "lines.jsonl").read_text("utf-8"))["custom_id"] == "1"
    words = asked.read_text("utf-8").splitlines()
    assert "file=@lines.jsonl" in words
    assert json.loads(words[-1])["input_file_id"] == "file-0a1b"


async def test_over_http(get: Get, own: OwnGateway) -> None:
    told = json.loads((await get("/api/batches?state=running&colour=1")).text)
    assert [row["id"] for row in told["rows"]] == ["b1"]
    assert told["ignored"] == ["colour"]
    assert (await get("/api/batches?state=odd")).status == 400
    assert (await get("/api/batches.csv")).text.count("\r\n") == 4
