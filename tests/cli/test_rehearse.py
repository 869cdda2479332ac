from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import msgspec
import pytest
from click.testing import CliRunner

from ledger.notes import attempt_note, marks, settled
from lightgate.cli.main import main
from lightgate.cli.rehearse import command
from lightgate.ledger.journal.journal import Journal
from lightgate.ledger.journal.ship import Shipper
from lightgate.ledger.store.store import Ledger

if TYPE_CHECKING:
    from pathlib import Path

SMALL = ("--requests", "120", "--seeds", "2")


def test_the_table_has_every_policy_between_its_measures() -> None:
    shown = CliRunner().invoke(command, ["--world", "T1", *SMALL, "--policy", "voice"])
    assert shown.exit_code == 0
    lines = shown.stdout.splitlines()
    assert lines[0].startswith("T1: calm, five providers")
    names = [line[:21].strip() for line in lines[2:12]]
    assert names == [
        "fixed-best",
        "fixed-hindsight",
        "mean-of-last-10",
        "least-in-flight",
        "voice, hedge auto",
        "oracle",
        "oracle, hedge p90",
        "oracle-end",
        "oracle-end, hedge p90",
        "oracle-all",
    ]
    assert "still waiting after, s" in shown.stdout
    assert "rehearsed 28 runs" in shown.stderr


def test_json_holds_the_figures() -> None:
    words = ["--world", "tables-2025", *SMALL, "--hedge", "off", "--target", "groq", "--target"]
    shown = CliRunner().invoke(command, [*words, "together", "--policy", "random", "--json"])
    page = json.loads(shown.stdout)
    assert page["targets"] == ["groq/llama-3.1-70b", "together/llama-3.1-70b"]
    assert [row["policy"] for row in page["policies"]][4] == "random"
    fixed = page["policies"][0]
    assert fixed["policy"] == "fixed-best"
    assert fixed["ttft_p50_s"]["mean"] == pytest.approx(0.25, abs=0.05)
    assert fixed["requests"] == 120


@pytest.mark.parametrize(
    ("words", "title"),
    [
        (
            ("queue", "--slots", "2", "--share", "0.5"),
            "120 requests at 1.56/s, own load, 512 tokens in, about 200 out.",
        ),
        (("mixed",), "120 requests at 0.5/s, own load, 3 kinds of requests."),
        (("mixed", "--max-tokens", "7"), "120 requests at 0.5/s, own load, 512 tokens in, 7 out."),
    ],
)
def test_the_title_says_what_is_played(words: tuple[str, ...], title: str) -> None:
    shown = CliRunner().invoke(command, ["--world", *words, *SMALL, "--policy", "random"])
    assert shown.stdout.splitlines()[0].endswith(title)


def test_a_race_is_named_so() -> None:
    words = ["--world", "T1", *SMALL, "--policy", "fastest", "--race", "2", "--json"]
    page = json.loads(CliRunner().invoke(command, words).stdout)
    race = page["policies"][4]
    assert race["policy"] == "fastest, race 2"
    assert race["duplicates"]["mean"] > 0.9


def test_help_has_an_example() -> None:
    assert "Example: lightgate rehearse" in CliRunner().invoke(command, ["--help"]).output


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "Say what to rehearse with"),
        (("--world", "T1", "--ledger"), "Say what to rehearse with"),
        (("--world", "atlantis"), "no world 'atlantis'"),
        (("--world", "T1", "--target", "acme"), "no target 'acme'"),
        (("--world", "T1", "--hedge", "soon"), "no hedge"),
        (("--world", "T1", "--hedge", "p50"), "no hedge"),
        (("--ledger", "--rate", "3"), "--rate is for worlds"),
        (("--ledger", "--max-tokens", "3"), "--max-tokens is for worlds"),
        (("--ledger", "--slots", "0"), "--slots is for worlds"),
        (("--world", "T4", "--share", "0.5"), "has no slots"),
        (("--ledger", "--last", "soon"), "no duration"),
    ],
)
def test_wrong_words_are_answered(
    words: tuple[str, ...],
    says: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lightgate-data").mkdir()
    with Ledger.open("sqlite", tmp_path / "lightgate-data"):
        pass
    assert main(["rehearse", *words]) == 2
    assert says in capsys.readouterr().err


def fill(folder: Path) -> None:
    """Write a ledger of the last hour: one engine is crowded at times, one never is."""
    begin_ns = time.time_ns() - 3_600_000_000_000
    journal = Journal(folder / "journal", 0)
    for number in range(240):
        burst = number % 12  # twelve at once, every 12 s
        target = "far/s1" if burst == 11 else "lab/s1"
        stamps = marks(5, 100 if burst == 11 else 100 + 90 * max(0, burst - 3), 50)
        wall_ns = begin_ns + (number // 12) * 12_000_000_000 + burst * 1_000_000
        note = attempt_note(f"x-{number}", stamps, wall_ns=wall_ns)
        facts = msgspec.structs.replace(note.facts, target=target, provider=target[:3])
        note = msgspec.structs.replace(note, facts=facts)
        journal.write(settled(f"x-{number}", note, wall_ns=wall_ns, tokens_out=5))
    journal.close()
    with Ledger.open("sqlite", folder) as ledger:
        Shipper(ledger, folder / "journal").drain(50)


def test_the_ledger_is_rehearsed_with_the_load_that_it_shows(tmp_path: Path) -> None:
    fill(tmp_path)
    words = ["--ledger", "--data", str(tmp_path), "--seeds", "1", "--policy", "voice"]
    shown = CliRunner().invoke(command, words)
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.splitlines()[0] == "fast: 240 requests of the ledger, 2 targets."
    assert (
        "lab/s1: from 4 requests in flight on each one more delays the first token by"
        in shown.stdout
    )
    assert "far/s1: never more than one request was in flight; what more do there" in shown.stdout
    assert "are guesses: " in shown.stdout
    page = json.loads(CliRunner().invoke(command, [*words, "--json"]).stdout)
    known = {row["target"]: row["first"] for row in page["load"]}
    assert known["lab/s1"]["slope_s"] == pytest.approx(0.09, rel=0.1)
    assert known["lab/s1"]["seen"] == 10
    assert known["far/s1"]["slope_s"] == 0.0
    assert all(0.0 <= row["beyond"]["mean"] <= 1.0 for row in page["policies"])


def test_a_missing_ledger_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["rehearse", "--ledger"]) == 2
    assert "no ledger" in capsys.readouterr().err
