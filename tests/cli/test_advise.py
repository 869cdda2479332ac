"""`lightgate advise`: the table, JSON, what is not offered, and a run in place of a ledger."""

from __future__ import annotations

import json
import sys
import tomllib
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from advice.histories import T0, clean, dear, empty_ledger, keep_in, simulate
from lightgate.advise.words import ms
from lightgate.cli import advise as verb
from lightgate.cli import report
from lightgate.cli.main import main
from lightgate.config.load import parse_config

if TYPE_CHECKING:
    from pathlib import Path

    from advice.histories import SimWorld

SEED = 3


class Clock(datetime):
    """The wall clock of the verb: just after the history."""

    at = T0

    @classmethod
    def now(cls, tz: object = None) -> datetime:  # type: ignore[override] # always UTC here
        assert tz is UTC
        return datetime.fromtimestamp(cls.at, UTC)


@pytest.fixture(autouse=True)
def quiet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LIGHTGATE_CONFIG", raising=False)
    monkeypatch.setattr(verb, "datetime", Clock)
    monkeypatch.setattr(report, "datetime", Clock)


def written(world: SimWorld, folder: Path) -> Path:
    calls = simulate(world, SEED, SEED)
    Clock.at = int(T0 + max(call.at_s for call in calls) + 60)
    with empty_ledger(folder) as ledger:
        keep_in(ledger, calls)
    return folder


def test_what_to_do_and_how_to_check_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = written(dear(SEED), tmp_path / "data")
    assert main(["advise", "--data", str(data)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("1 advice for ")
    assert "other target  chat" in out
    assert 'targets = ["north/llama-w", "south/llama-w"]' in out
    assert "lightgate report --by alias --last 24h" in out
    assert "rehearsed" in out
    assert "other changes were looked at" in out
    assert "hedge:chat" not in out


def test_json_has_the_whole_record_and_its_lines_are_a_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = written(dear(SEED), tmp_path / "data")
    assert main(["advise", "--data", str(data), "--json", "--no-rehearse"]) == 0
    told = json.loads(capsys.readouterr().out)
    (one,) = told["advice"]
    assert one["id"] == "other-target:chat:south/llama-w"
    assert one["change"]["method"] == "replayed"
    month = one["change"]["dollars_per_month"]
    assert 0 < month["low"] <= month["value"] <= month["high"]
    assert one["evidence"]["n"] > 100
    assert one["worse"]
    assert one["rehearsal"] is None
    table = tomllib.loads(one["apply"])["models"]["chat"]
    assert table["policy"] == "ordered"
    providers = "".join(
        f'[providers.{name}]\nbase_url = "http://127.0.0.1:9/v1"\napi_key = "none"\n'
        for name in ("north", "south")
    )
    parse_config(providers + one["apply"])  # the gateway takes it as it is


def test_all_says_why_the_rest_is_not_offered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = written(clean(SEED), tmp_path / "data")
    assert main(["advise", "--data", str(data), "--all", "--model", "chat"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("No advice for ")
    assert "hedge:chat:north/llama-x" in out
    assert "Not offered: " in out
    assert "informative: " in out


def test_lines_are_as_wide_as_the_terminal_and_names_stay_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = written(clean(SEED), tmp_path / "data")
    monkeypatch.setenv("COLUMNS", "72")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(["advise", "--data", str(data), "--all"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("No advice for ")
    assert max(map(len, lines)) <= 72
    assert not [line for line in lines if line.endswith("-")]


def test_a_saving_of_nothing_has_no_sign() -> None:
    assert ms(-0.0001) == "0 ms"
    assert ms(-0.012) == "-12 ms"


def test_a_model_that_nobody_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = written(clean(SEED), tmp_path / "data")
    assert main(["advise", "--data", str(data), "--model", "nothing"]) == 0
    assert "of 0 models" in capsys.readouterr().out


def test_there_is_no_ledger(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["advise", "--data", str(tmp_path / "none")]) == 2
    assert "There is no ledger" in capsys.readouterr().err
    assert main(["advise", "--last", "soon"]) == 2


def test_the_page_of_a_report_has_a_section_with_advice(tmp_path: Path) -> None:
    data, page = written(dear(SEED), tmp_path / "data"), tmp_path / "speed.html"
    assert main(["report", "--data", str(data), "--out", str(page)]) == 0
    text = page.read_text("utf-8")
    assert '<section id="advice">' in text
    assert "1 advice for" in text
    assert "targets = [&quot;north/llama-w&quot;" in text or 'targets = ["north/llama-w"' in text
    assert main(["report", "--data", str(data), "--out", str(page), "--no-advice"]) == 0
    assert 'id="advice"' not in page.read_text("utf-8")


@pytest.mark.parametrize(
    ("option", "words"),
    [("--bill", "had a second attempt"), ("--cascades", "answered by a model with")],
)
def test_a_table_of_what_there_is_none_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str, words: str
) -> None:
    data = written(clean(SEED), tmp_path / "data")
    assert main(["report", option, "--data", str(data)]) == 0
    assert words in capsys.readouterr().err
    assert main(["report", option, "--data", str(data), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == []
    assert main(["report", option, "--data", str(data), "--format", "csv"]) == 2
