from __future__ import annotations

import json
import subprocess
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from lightgate.advise.advice import Advice, AdvisedChange, Evidence, SavedBounds
from lightgate.advise.advise import AdviceReport
from lightgate.console.work import routes
from lightgate.console.work.advice import KEPT_NS, AdviceDesk, found_apart
from lightgate.errors import LightgateError
from lightgate.gateway.process.logs import CONSOLE_SECRET_ENV
from lightgate.ledger.store.store import Ledger

if TYPE_CHECKING:
    from pathlib import Path

    from console.conftest import Get

SAVED = SavedBounds(0.4, 0.3, 0.5)


def advice(id_: str, **changes: object) -> Advice:
    change = AdvisedChange(
        method="counted", seconds_p50=0.4, seconds_p95=0.9, seconds_mean=SAVED,
        seconds_share=SAVED, dollars_per_1k=SAVED, dollars_per_month=None, dollars_share=SAVED,
    )  # fmt: skip
    seen = Evidence(since="2026-11-01", until="2026-11-15", n=812, query="model=fast", ids=("x-1",))
    facts: dict[str, object] = {
        "id": id_, "kind": "target", "model": "fast", "finding": "<i>groq</i> is faster.",
        "evidence": seen, "change": change, "worse": "3 % dearer", "apply": "[models.fast]\n",
        "verify": "lightgate report", "expect": "less", "score": 0.3,
    }  # fmt: skip
    return Advice(**{**facts, **changes})  # type: ignore[arg-type]


REPORT = AdviceReport(
    source="ledger", since="2026-11-01T00:00", until="2026-11-15T00:00", requests=900,
    models=("fast",),
    advice=(advice("a1"), advice("a2", state="refused", because="n too small")),
)  # fmt: skip


def test_rows_have_their_evidence_and_what_is_not_offered_says_why(tmp_path: Path) -> None:
    told = AdviceDesk(lambda *_: REPORT).page(tmp_path, "14d", 1)
    (row,), (other,) = told.rows, told.others
    assert (row.id, row.n, row.ids, row.worse) == ("a1", 812, ("x-1",), "3 % dearer")
    assert row.figures["n"] == "812"
    assert "0.4" in row.figures["seconds a request"] or "400 ms" in row.figures["seconds a request"]
    assert (other.state, other.because) == ("refused", "n too small")
    assert told.title.startswith("1 advice for 900 answered requests")


def test_it_is_looked_for_once_in_a_while(tmp_path: Path) -> None:
    asked: list[str] = []

    def find(data: Path, last: str) -> AdviceReport:
        asked.append(last)
        return REPORT

    desk = AdviceDesk(find)
    for now in (5, KEPT_NS, KEPT_NS + 4):
        desk.page(tmp_path, "14d", now)
    assert asked == ["14d"]
    desk.page(tmp_path, "7d", 6)
    desk.page(tmp_path, "14d", KEPT_NS + 6)
    assert asked == ["14d", "7d", "14d"]


def test_the_process_that_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LIGHTGATE_CONFIG", raising=False)
    Ledger.open("sqlite", tmp_path).close()
    report = found_apart(tmp_path, "7d")
    assert (report.requests, report.advice) == (0, ())
    assert datetime.fromisoformat(report.until) <= datetime.now(UTC)


def test_what_it_says_when_it_cannot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = subprocess.CompletedProcess([], 2, b"", b"a warning\nThere is no ledger.\n")
    given: list[dict[str, str]] = []

    def run(*_: object, env: dict[str, str], **__: object) -> object:
        given.append(env)
        return ended

    monkeypatch.setenv(CONSOLE_SECRET_ENV, "of the console")
    monkeypatch.setenv("KEPT", "1")
    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(LightgateError, match=r"^There is no ledger\.$"):
        found_apart(tmp_path, "14d")
    assert (given[0]["KEPT"], CONSOLE_SECRET_ENV in given[0]) == ("1", False)


async def test_over_http(get: Get, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "ADVICE", AdviceDesk(lambda *_: REPORT))
    told = json.loads((await get("/api/advice?last=7d")).text)
    assert [row["id"] for row in told["rows"]] == ["a1"]
    assert (await get("/api/advice?last=9d")).status == 400
    assert "a2" in (await get("/api/advice.csv")).text
