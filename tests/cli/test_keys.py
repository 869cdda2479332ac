from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from lightgate.cli.main import main
from lightgate.config.load import parse_config
from lightgate.gateway.served.keys import Keyring
from lightgate.gateway.served.resolve import make_snapshot
from lightgate.gateway.served.snapshot import put_snapshot, read_snapshot

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("LIGHTGATE_CONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


def created(capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, Any]:
    assert main(["keys", "create", "--json", *args]) == 0
    made: dict[str, Any] = json.loads(capsys.readouterr().out)
    return made


def listed(capsys: pytest.CaptureFixture[str], *args: str) -> list[dict[str, Any]]:
    assert main(["keys", "list", "--json", *args]) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return found


def test_the_key_alone_is_on_stdout_and_is_said_to_be_the_first(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["keys", "create", "--name", "ci"]) == 0
    said = capsys.readouterr()
    assert re.fullmatch(r"lg-[A-Za-z0-9_-]{43}\n", said.out)
    assert "not shown again" in said.err
    assert "the first" in said.err
    assert said.out.strip() not in said.err
    assert main(["keys", "create", "--name", "two"]) == 0
    assert "the first" not in capsys.readouterr().err


def test_every_term_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    made = created(
        capsys, "--name", "ci", "--budget", "25.50", "--period", "month", "--rpm", "60",
        "--tpm", "100000", "--models", "fast, groq/x", "--max-tokens", "500", "--race",
        "--max-fanout", "3", "--expires", "90d", "--tags", "team=search", "--tags", "a=b=c",
    )  # fmt: skip
    (row,) = listed(capsys)
    assert row.pop("spent_usd") == 0
    assert made == {"key": made["key"], **row}
    ends = datetime.fromisoformat(row["expires"])
    assert timedelta(days=89) < ends - datetime.now(UTC) <= timedelta(days=90)
    expected = {
        "name": "ci", "state": "in use", "budget_usd": 25.5, "budget_period": "month", "rpm": 60,
        "tpm": 100_000, "models": ["fast", "groq/x"], "max_tokens": 500, "may_race": True,
        "max_fanout": 3, "tags": {"team": "search", "a": "b=c"}, "revoked": None,
    }  # fmt: skip
    assert {name: row[name] for name in expected} == expected
    assert row["prefix"] == made["key"][:8]
    assert "hash" not in row


def test_the_table_says_what_a_key_may_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", "list"]) == 0
    assert capsys.readouterr().out.startswith("There is no key.")
    created(capsys, "--name", "ci", "--budget", "25", "--period", "day", "--rpm", "60", "--race")
    assert main(["keys", "list"]) == 0
    shown = capsys.readouterr().out
    for words in (
        "ci",
        "in use",
        "$0.0000",
        "$25.00 a day",
        "60 rpm, races up to 2",
        "all",
        "never",
    ):
        assert words in shown


def test_revoking(capsys: pytest.CaptureFixture[str]) -> None:
    created(capsys, "--name", "one")
    other = created(capsys, "--name", "other")
    assert main(["keys", "revoke", "one"]) == 0
    assert main(["keys", "revoke", other["id"], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["state"] == "revoked"
    assert [row["state"] for row in listed(capsys)] == ["revoked", "revoked"]
    assert main(["keys", "revoke", "one"]) == 2
    assert "no key 'one' that could be revoked" in capsys.readouterr().err


def test_a_name_in_use_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    created(capsys, "--name", "ci")
    assert main(["keys", "create", "--name", "ci"]) == 2
    assert "in use" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((), "Missing option '--name'"),
        (("--name", ""), "1 to 100 characters"),
        (("--name", "a\x1b[2J"), "1 to 100 characters"),
        (("--name", "n", "--budget", "0"), "positive amount"),
        (("--name", "n", "--budget", "-1"), "positive amount"),
        (("--name", "n", "--budget", "nan"), "positive amount"),
        (("--name", "n", "--budget", "much"), "positive amount"),
        (("--name", "n", "--budget", "0.00000000001"), "billionths"),
        (("--name", "n", "--period", "day"), "needs a --budget"),
        (("--name", "n", "--budget", "1", "--period", "week"), "'week' is not one of"),
        (("--name", "n", "--rpm", "0"), "is not in the range"),
        (("--name", "n", "--models", "a,,b"), "empty name"),
        (("--name", "n", "--expires", "soon"), "neither a duration"),
        (("--name", "n", "--expires", "2020-01-01"), "in the past"),
        (("--name", "n", "--expires", "999999999d"), "neither a duration"),
        (("--name", "n", "--tags", "team"), "not K=V"),
    ],
)
def test_what_is_wrong_is_said(
    capsys: pytest.CaptureFixture[str], args: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    assert main(["keys", "create", *args]) == 2
    caught = capsys.readouterr()
    assert said in caught.err
    assert caught.out == ""
    assert not (tmp_path / "lightgate-data").exists()


def test_no_file_holds_a_key(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    put_snapshot(tmp_path / "lightgate-data", make_snapshot(parse_config(""), (), {}))
    keys = [created(capsys, "--name", f"n{i}", "--budget", "1")["key"] for i in range(5)]
    main(["keys", "revoke", "n3"])
    main(["keys", "list"])
    said = capsys.readouterr()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {"ledger.sqlite", "snapshot.json"} <= {path.name for path in files}
    for key in keys:
        for path in files:
            assert key.encode() not in path.read_bytes()
            assert key[8:].encode() not in path.read_bytes()
        assert key[8:] not in said.out + said.err


def test_a_running_gateway_gets_every_change(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    data = tmp_path / "elsewhere"
    (tmp_path / "lightgate.toml").write_text('[gateway]\ndata = "elsewhere"\n')
    put_snapshot(data, make_snapshot(parse_config(""), (), {}))
    secret = created(capsys, "--name", "ci")["key"].encode()
    found = Keyring(read_snapshot(data).keys).find(secret, 0)
    assert found is not None
    assert found.name == "ci"
    assert main(["keys", "revoke", "ci"]) == 0
    assert Keyring(read_snapshot(data).keys).find(secret, 0) is None


def test_a_key_can_be_made_while_the_configuration_is_broken(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The gateway goes on with what it has; its folder has to be named."""
    data, file = tmp_path / "elsewhere", tmp_path / "lightgate.toml"
    file.write_text('[gateway]\ndata = "elsewhere"\n')
    put_snapshot(data, make_snapshot(parse_config(""), (), {}))
    created(capsys, "--name", "before")
    file.write_text("[gateway\n")
    assert main(["keys", "create", "--name", "lost"]) == 3
    assert main(["keys", "create", "--name", "lost", "--data", str(tmp_path / "new")]) == 3
    capsys.readouterr()
    secret = created(capsys, "--name", "ci", "--data", str(data))["key"].encode()
    assert Keyring(read_snapshot(data).keys).find(secret, 0) is not None


def test_the_flag_comes_before_the_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text('[gateway]\ndata = "by-file"\n')
    created(capsys, "--name", "a", "--config", "c.toml")
    created(capsys, "--name", "b", "--config", "c.toml", "--data", "by-flag")
    assert [row["name"] for row in listed(capsys, "--data", "by-file")] == ["a"]
    assert [row["name"] for row in listed(capsys, "--data", "by-flag")] == ["b"]
    assert not (tmp_path / "lightgate-data").exists()


GIVEN = "lg-0123456789abcdefghijklmnopqrstuvwxyzABCDEFG"


def test_a_key_of_the_environment_is_taken_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FIRST", GIVEN)
    words = ("--name", "first", "--from-env", "FIRST")
    made = created(capsys, *words)
    assert "key" not in made  # who gave it has it
    assert created(capsys, *words)["id"] == made["id"]
    assert [row["name"] for row in listed(capsys)] == ["first"]
    assert main(["keys", "revoke", "first"]) == 0
    assert main(["keys", "create", *words]) == 2
    said = capsys.readouterr()
    assert "revoked" in said.err
    assert GIVEN not in said.err + said.out


def test_a_key_of_the_environment_that_was_known_needs_no_server(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FIRST", GIVEN)
    words = ("--name", "first", "--from-env", "FIRST")
    away = tmp_path / "away.toml"
    away.write_text('[gateway]\ndata = "data"\n[ledger]\nurl = "postgresql://u@127.0.0.1:1/x"\n')
    start = ["keys", "create", *words, "--config", str(away)]
    put_snapshot(tmp_path / "data", make_snapshot(parse_config(""), (), {}))
    assert main(start) == 1  # a folder that never had the key
    record = created(capsys, *words, "--data", "data")
    capsys.readouterr()
    assert main([*start, "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["id"] == record["id"]
    assert "is away" in said.err
    assert "The key of FIRST is known here from before." in said.err
    monkeypatch.setenv("FIRST", GIVEN.swapcase().replace("LG-", "lg-"))
    assert main(start) == 1  # another key
    assert main(["keys", "create", "--name", "x", "--config", str(away)]) == 1


@pytest.mark.parametrize(
    "text", ["", "lg-short", "sk-" + GIVEN[3:], "lg-" + "ab" * 25, GIVEN + "\n" + GIVEN]
)
def test_a_key_of_the_environment_that_can_be_guessed_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("FIRST", text)
    assert main(["keys", "create", "--name", "first", "--from-env", "FIRST"]) == 2
    assert "FIRST" in (said := capsys.readouterr().err) or "at random" in said
    assert listed(capsys) == []
