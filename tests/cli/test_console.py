"""`lightgate console`: links, ends of sessions, and the log of changes."""

from __future__ import annotations

import io
import json
import os
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from full_disk import full_disk
from lightgate.cli.greeting import sign_in
from lightgate.cli.in_force import write_in_force
from lightgate.cli.main import main
from lightgate.clock.source import ManualClock
from lightgate.console.admin.health import CONFIG_FILE
from lightgate.console.admin.sign_in import FOLDER, SignIns, link_address
from lightgate.errors import LightgateError
from lightgate.gateway.process.lock import DataFolderLock, SupervisorState

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("LIGHTGATE_CONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Path]:
    """A data folder on which a gateway says that it runs."""
    data = tmp_path / "lightgate-data"
    with DataFolderLock(data) as folder:
        folder.write(
            SupervisorState(
                pid=os.getpid(), version="1", started="2026-11-16T00:00:00Z", host="127.0.0.1",
                port=8080, console_host="0.0.0.0", console_port=8081,
            )
        )  # fmt: skip
        yield data


def test_a_link_alone_is_on_stdout(running: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["console", "link"]) == 0
    said = capsys.readouterr()
    address, _, code = said.out.strip().partition("#")
    assert address == "http://127.0.0.1:8081/enter"
    assert code not in said.err
    assert SignIns(running).redeem(code, "") is not None


def test_a_link_for_another_address(running: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["console", "link", "--json", "--base", "https://gate.example/"]) == 0
    told = json.loads(capsys.readouterr().out)
    address, _, code = told["url"].partition("#")
    assert address == "https://gate.example/enter"
    assert SignIns(running).redeem(code, "") is not None
    assert main(["console", "link", "--base", "gate.example"]) == 2


def test_a_link_needs_a_gateway(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["console", "link"]) == 1
    assert "No `lightgate up` runs" in capsys.readouterr().err


def test_addresses_of_links() -> None:
    assert link_address("::1", 81, "c") == "http://[::1]:81/enter#c"
    assert link_address("::", 81, "c") == "http://127.0.0.1:81/enter#c"


def test_everybody_is_signed_out(running: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sign_ins = SignIns(running)
    made = sign_ins.redeem(sign_ins.new_link("up"), "")
    assert made is not None
    assert main(["keys", "create", "--name", "ci"]) == 0
    assert main(["console", "sign-out", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.partition("\n")[2]) == {"ended": 1}
    assert sign_ins.session_of(made[0]) is None
    assert main(["console", "sign-out"]) == 0
    assert capsys.readouterr().out == "Ended 0 sessions.\n"


def test_changes_of_the_command_line_are_in_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["console", "audit"]) == 0
    assert capsys.readouterr().out == "Nothing was changed yet.\n"
    assert main(["keys", "create", "--name", "ci", "--rpm", "60", "--models", "a,b"]) == 0
    secret = capsys.readouterr().out.strip()
    assert main(["keys", "revoke", "ci"]) == 0
    assert main(["console", "audit", "--json"]) == 0
    text = capsys.readouterr().out
    revoked, created = json.loads(text)
    assert (created["action"], created["via"], created["name"]) == ("key.create", "cli", "ci")
    assert (created["before"], created["after"]["rpm"]) == (None, 60)
    assert list(revoked["after"]) == ["revoked"]
    assert revoked["before"] == {"revoked": None}
    assert secret not in text
    assert "hash" not in text
    assert main(["console", "audit", "--limit", "1"]) == 0
    shown = capsys.readouterr().out
    assert "key.revoke ci" in shown
    assert "none → 20" in shown
    assert "key.create" not in shown


def test_the_configuration_in_force(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_KEY", "a-secret-of-the-lab")
    path = tmp_path / "lightgate.toml"
    path.write_text(
        '[gateway]\nworkers = 2\n[providers.lab]\nbase_url = "http://127.0.0.1:9/v1"\n'
        'api_key = "env:LAB_KEY"\n[models.fast]\ntargets = ["lab/s1"]\n'
    )
    write_in_force(tmp_path, path, {"port": 9999})
    text = (tmp_path / CONFIG_FILE).read_text()
    assert "a-secret-of-the-lab" not in text
    rows = {row["key"]: row for row in json.loads(text)["rows"]}
    assert rows["gateway.workers"]["source"] == f"{path}:2"
    assert (rows["gateway.port"]["value"], rows["gateway.port"]["source"]) == (
        "9999",
        "flag --port",
    )
    assert rows["gateway.host"]["source"] == "default"
    assert rows["providers.lab.api_key"]["value"] == "env:LAB_KEY"
    assert rows["providers.lab.api_key"]["source"].endswith("set in the environment")
    assert (tmp_path / CONFIG_FILE).stat().st_mode & 0o077 == 0


def in_force(data: Path) -> dict[str, Any]:
    """What was written down, its rows by their keys."""
    kept: dict[str, Any] = json.loads((data / CONFIG_FILE).read_text())
    return {**kept, "rows": {row["key"]: row for row in kept["rows"]}}


def test_without_a_file_all_values_are_flags_and_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lightgate.cli.in_force.SYSTEM", ManualClock())
    write_in_force(tmp_path, None, {"port": 9})
    kept = in_force(tmp_path)
    assert (kept["as_of"], kept["file"]) == ("2023-11-14T22:13:20Z", None)
    flag = kept["rows"].pop("gateway.port")
    assert (flag["value"], flag["source"]) == ("9", "flag --port")
    assert {row["source"] for row in kept["rows"].values()} == {"default"}


def test_a_password_in_an_address_is_not_written_down(tmp_path: Path) -> None:
    path = tmp_path / "lightgate.toml"
    path.write_text('[ledger]\nurl = "postgresql://lab:a-secret-word@127.0.0.1/base"\n')
    write_in_force(tmp_path, path, {})
    kept = in_force(tmp_path)
    assert kept["file"] == str(path)
    assert kept["rows"]["ledger.url"]["value"] == "postgresql://***@127.0.0.1/base"
    assert "a-secret-word" not in (tmp_path / CONFIG_FILE).read_text()


def test_a_file_that_is_no_configuration_is_named(tmp_path: Path) -> None:
    path = tmp_path / "other.toml"
    path.write_text("[gateway\n")
    with pytest.raises(LightgateError, match=r"other\.toml is not valid TOML"):
        write_in_force(tmp_path, path, {})


def test_up_prints_a_link_on_a_terminal_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    up: Any = SimpleNamespace(data=tmp_path, console_host="127.0.0.1", console_port=8081)
    monkeypatch.setattr("sys.stderr", io.StringIO())  # a file or a pipe, which may be kept
    assert "lightgate console link" in sign_in(up)
    assert not (tmp_path / FOLDER).exists()
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    address, _, rest = sign_in(up).partition("#")
    assert address == "http://127.0.0.1:8081/enter"
    assert SignIns(tmp_path).redeem(rest.split()[0], "") is not None


def test_a_full_disk_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full_disk(monkeypatch)
    with pytest.raises(LightgateError, match="cannot be written: No space left on device"):
        write_in_force(tmp_path, None, {})
