from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from lightgate.cli.main import main
from lightgate.cli.rehearse import command

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
    from lightgate.ledger.store.store import Ledger

    monkeypatch.chdir(tmp_path)
    (tmp_path / "lightgate-data").mkdir()
    with Ledger.open("sqlite", tmp_path / "lightgate-data"):
        pass
    assert main(["rehearse", *words]) == 2
    assert says in capsys.readouterr().err


def test_a_missing_ledger_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["rehearse", "--ledger"]) == 2
    assert "no ledger" in capsys.readouterr().err
