from __future__ import annotations

import csv
import io
import json
import shutil
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from ledger.notes import Called, exchange_note
from lightgate.cli import report as verb
from lightgate.cli.main import main
from lightgate.clock.marks import Marks
from lightgate.clock.outcome import Outcome
from lightgate.clock.tokens import Tokens
from lightgate.ledger.journal.notes import AttemptNote, NoteFacts
from lightgate.ledger.sqlite import FILE
from lightgate.ledger.store import schema
from lightgate.ledger.store.hourly import note_hourly_prices
from lightgate.ledger.store.rollup import Rollup
from lightgate.ledger.store.store import Ledger

if TYPE_CHECKING:
    from pathlib import Path

NOW = datetime(2026, 11, 15, 6, 2, 30, tzinfo=UTC)
NS_PER_S = 1_000_000_000
TOKENS = 300
# Seconds of a whole answer of 300 tokens, successes, failures, days ago.
TRAFFIC = {
    "groq/llama-70b": (2.0, 620, 30, 1),  # 150 tok/s
    "lab/llama-70b": (5.0, 500, 0, 13),  # 60 tok/s
    "groq/old": (1.0, 700, 0, 15),  # beyond the period
    "lab/rare": (3.0, 499, 0, 2),
}


class Clock(datetime):
    """The wall clock of the verb."""

    @classmethod
    def now(cls, tz: object = None) -> datetime:  # type: ignore[override] # always UTC here
        assert tz is UTC
        return NOW


def attempt(target: str, seq: int, wall_ns: int, *, seconds: float, failed: bool) -> AttemptNote:
    provider, model = target.split("/")
    marks = Marks(plan=wall_ns, stamp_source="read")
    marks.send = wall_ns
    marks.headers = wall_ns + 1_000_000
    if not failed:
        first = wall_ns + int(seconds * 0.1 * NS_PER_S)
        last = wall_ns + int(seconds * NS_PER_S)
        marks.answer = first
        marks.burst(first, first, 1, 4, -1, 1)
        marks.burst(last, last, 1, 4, -1, 1)
    marks.end = wall_ns + int(seconds * NS_PER_S)
    made = f"{target}-{seq}"
    facts = NoteFacts(made, made, target, provider, model, "openai-chat", 0, "only", None, wall_ns)
    counted = Tokens(out=TOKENS, streamed=TOKENS, tokens_in=500, source="usage", first_burst=1.0)
    outcome = Outcome.TIMEOUT if failed else Outcome.OK
    ended = Called(outcome=outcome, tokens=Tokens() if failed else counted)
    return AttemptNote.of(facts, marks, ended)


@pytest.fixture
def folder(tmp_path: Path, traffic: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder whose ledger holds the traffic, where the verb looks for it."""
    monkeypatch.setattr(verb, "datetime", Clock)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("LIGHTGATE_CONFIG", raising=False)
    return shutil.copytree(traffic, tmp_path / "lightgate-data")


@pytest.fixture(scope="module")
def traffic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger with all of the traffic, made once."""
    data = tmp_path_factory.mktemp("traffic")
    now_ns = int(NOW.timestamp()) * NS_PER_S
    with Ledger.open("sqlite", data) as ledger, ledger.writing() as connection:
        rollup, rows = Rollup(), []
        for target, (seconds, good, bad, days) in TRAFFIC.items():
            start = now_ns - days * 86_400 * NS_PER_S
            for seq in range(good + bad):
                one = attempt(
                    target, seq, start + seq * NS_PER_S, seconds=seconds, failed=seq >= good
                )
                rollup.add(exchange_note(one.facts.exchange_id), [one])
                rows.append(one.row())
        ledger.insert(connection, schema.attempt_notes, rows)
        rollup.write(ledger, connection)
    return data


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["report", *arguments]) == 0
    return capsys.readouterr().out


def test_the_table_judges_what_has_enough_requests(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = said(capsys, "--by", "target", "--data", str(folder)).splitlines()
    assert lines[0].startswith("Speed by target, 2026-11-01T06:02Z to 2026-11-15T06:02Z, ")
    rows = [line.split() for line in lines if line.startswith(("groq/", "lab/"))]
    assert [row[0] for row in rows] == ["groq/llama-70b", "lab/llama-70b"]
    assert [row[1] for row in rows] == ["1", "3"]
    assert float(rows[0][2]) == pytest.approx(150.0, rel=0.011)
    assert "30 (4.6 %)" in lines[3]
    assert any("1 target with 499 requests: lab/rare (499)." in line for line in lines)
    assert "groq/old" not in "".join(lines)


def test_json_carries_n_interval_and_definition(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = json.loads(said(capsys, "--by", "target", "--json", "--data", str(folder)))
    first = data["rows"][0]
    assert (first["name"], first["successes"], first["attempts"]) == ("groq/llama-70b", 620, 650)
    between = first["speed_total_interval"]
    assert between["low"] <= first["speed_total_p50"] <= between["high"]
    assert first["ttft_p95_ms"] == pytest.approx(200.0, rel=0.011)
    assert first["tokens_out"] == 620 * TOKENS
    assert data["small"] == [{"name": "lab/rare", "successes": 499, "attempts": 499}]
    assert "whole time" in data["definition"]


def test_groups_by_model_and_provider(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    by_model = json.loads(said(capsys, "--json", "--data", str(folder)))
    assert [(row["name"], row["successes"]) for row in by_model["rows"]] == [("llama-70b", 1_120)]
    by_provider = json.loads(said(capsys, "--json", "--by", "provider", "--data", str(folder)))
    counted = {row["name"]: row["successes"] for row in by_provider["rows"]}
    assert counted == {"groq": 620, "lab": 999}


def test_another_period_and_another_limit(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = json.loads(
        said(capsys, "--json", "--by", "target", "--last", "3d", "--min-requests", "400")
    )
    assert folder.name == "lightgate-data"  # found without being named
    assert [row["name"] for row in data["rows"]] == ["groq/llama-70b", "lab/rare"]
    assert data["small"] == []


def test_first_figures_while_nothing_has_enough(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = ("--by", "target", "--last", "2d", "--json", "--data", str(folder))
    assert json.loads(said(capsys, *few))["preliminary"] is False  # 620 of one target
    rare = ("--by", "target", "--last", "3d", "--data", str(folder))
    assert "First figures" not in said(capsys, *rare)
    shutil.rmtree(folder)
    with Ledger.open("sqlite", folder) as ledger, ledger.writing() as connection:
        wall_ns = int(NOW.timestamp() - 60) * NS_PER_S
        notes = [attempt("lab/new", n, wall_ns, seconds=2.0, failed=False) for n in range(7)]
        rollup = Rollup()
        for one in notes:
            rollup.add(exchange_note(one.facts.exchange_id), [one])
        ledger.insert(connection, schema.attempt_notes, [one.row() for one in notes])
        rollup.write(ledger, connection)
    text = said(capsys, "--data", str(folder))
    assert "First figures: no model has 500 successful requests yet" in text
    assert any(line.startswith("new ") for line in text.splitlines())
    strict = said(capsys, "--data", str(folder), "--min-requests", "500")
    assert "n too small (fewer than 500): 1 model with 7 requests: new (7)." in strict
    told = "n too small (fewer than 500): 1 model with 7 requests; --min-requests 1 shows them"
    assert strict.splitlines()[2].startswith(told)  # in the place of the table


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("speed.html", b"<!doctype html>"),
        ("speed.md", b"**Speed by model"),
        ("speed.csv", b"by,name,"),
        ("speed.json", b"{"),
        ("speed.svg", b"<svg"),
        ("speed.PNG", b"\x89PNG"),
    ],
)
def test_the_ending_of_the_file_says_the_form(
    folder: Path, name: str, start: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder / name
    assert main(["report", "--out", str(path)]) == 0
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", f"wrote {path}\n")
    assert path.read_bytes().startswith(start)


@pytest.mark.usefixtures("folder")
def test_a_form_goes_to_stdout(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main(["report", "--format", "csv", "--by", "target"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsysbinary.readouterr().out.decode())))
    assert [row["enough"] for row in rows] == ["true", "true", "false"]
    assert main(["report", "--format", "png"]) == 0
    assert capsysbinary.readouterr().out.startswith(b"\x89PNG")


def test_the_configuration_names_the_folder(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder.rename(tmp_path / "elsewhere")
    (tmp_path / "own.toml").write_text('[gateway]\ndata = "./elsewhere"\n')
    assert "llama-70b" in said(capsys, "--config", str(tmp_path / "own.toml"))


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--last", "soon"), "--last 'soon' is no duration."),
        (("--out", "speed"), "--out speed does not say which form it should have."),
        (("--format", "svg", "--last", "1h"), "There is no group to draw."),
        (("--data", "nowhere"), "There is no ledger in nowhere."),
        (("--min-requests", "0"), "Invalid value for '--min-requests'"),
    ],
)
def test_bad_input_is_a_sentence(
    arguments: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", *arguments]) == 2
    assert capsys.readouterr().err.startswith(f"lightgate: {sentence}")


@pytest.mark.usefixtures("folder")
def test_looking_does_not_make_a_ledger(tmp_path: Path) -> None:
    assert main(["report", "--data", str(tmp_path / "new")]) == 2
    assert not (tmp_path / "new").exists()
    assert not (tmp_path / FILE).exists()


def test_self_hosted_providers_cost_their_hours(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start = int(NOW.timestamp()) - 10 * 86_400
    with Ledger.open("sqlite", folder) as ledger:
        note_hourly_prices(ledger, {"lab": Decimal(2)}, start)
    data = json.loads(said(capsys, "--by", "target", "--json", "--data", str(folder)))
    (lab,) = data["hourly"]
    assert (lab["provider"], lab["hours"], lab["cost_usd"]) == ("lab", 240, 480)
    assert 0 < lab["in_use"] < 0.01
    assert lab["usd_per_mtok"] == pytest.approx(480 * 1e6 / lab["tokens_out"], rel=1e-4)
    rows = {row["name"]: row for row in data["rows"]}
    share = rows["lab/llama-70b"]["tokens_out"] / lab["tokens_out"]
    assert rows["lab/llama-70b"]["cost_usd"] == pytest.approx(480 * share)
    assert rows["groq/llama-70b"]["cost_usd"] == 0
    text = said(capsys, "--by", "provider", "--data", str(folder))
    assert "self-hosted" in text
    assert "idle cost" in text
    for form in ("md", "html"):
        assert "$480" in said(capsys, "--format", form, "--data", str(folder))


def test_by_key_and_tag(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Ledger.open("sqlite", folder) as ledger, ledger.writing() as connection:
        rows = [
            exchange_note(f"groq/llama-70b-{seq}", tags="team=search").row(1) for seq in range(620)
        ]
        ledger.insert(connection, schema.exchange_notes, rows)
    for by, name in (("key", "k-1"), ("tag", "team=search"), ("alias", "fast")):
        data = json.loads(said(capsys, "--by", by, "--json", "--data", str(folder)))
        (row,) = data["rows"]
        assert (data["by"], row["name"], row["successes"]) == (by, name, 620)
    text = said(capsys, "--by", "tag", "--data", str(folder))
    assert "counts for each of them" in text
