from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ledger.notes import Called, attempt_note, marks, settled
from ledger.store.test_seen import keep
from lightgate.cli.main import main
from lightgate.clock.tokens import Usage, count
from lightgate.errors import Exit
from lightgate.ledger.store.store import Ledger
from lightgate.provider.catalogue import catalogue

if TYPE_CHECKING:
    import asyncio

    from cli.conftest import OnTerminal, Ran, Run, Serve


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for row in catalogue().values():
        for name in row.key_env:
            monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("LIGHTGATE_CONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


def rows(capsys: pytest.CaptureFixture[str], *args: str) -> list[dict[str, Any]]:
    assert main(["models", "--json", *args]) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return found


@pytest.fixture
def nobody_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """No server of this machine answers, whatever runs here."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    tables = [
        f'[providers.{row.name}]\nbase_url = "http://127.0.0.1:{port}/v1"\n'
        for row in catalogue().values()
        if row.local
    ]
    Path("lightgate.toml").write_text("".join(tables), "utf-8")


@pytest.mark.usefixtures("nobody_runs")
def test_every_provider_and_which_can_be_called(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_API_KEY", "secret-value")
    found = {row["provider"]: row for row in rows(capsys)}
    assert set(found) == set(catalogue())
    assert {name for name, row in found.items() if row["ready"]} == {"gemini"}
    local = {row.name for row in catalogue().values() if row.local}
    assert {row["state"] for name, row in found.items() if name in local} == {"not running"}
    assert found["gemini"]["key_env"] == "GOOGLE_API_KEY"
    assert found["groq"]["state"] == "no key"
    assert found["groq"]["abort_stops_billing"] is False
    assert found["cerebras"]["abort_stops_billing"] is None
    assert "secret-value" not in json.dumps(found)


@pytest.mark.usefixtures("nobody_runs")
def test_a_key_without_the_rest_is_not_ready(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "secret-value")
    azure = next(row for row in rows(capsys) if row["provider"] == "azure")
    assert (azure["ready"], azure["state"]) == (False, "not set up")
    assert "AZURE_OPENAI_RESOURCE" in azure["remark"]
    assert main(["models"]) == 0
    assert "azure is not set up: Azure OpenAI needs" in capsys.readouterr().out


async def test_local_servers_are_asked(run: Run, serving: Serve, tmp_path: Path) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        body = b'{"object":"list","data":[]}' if b"/v1/models" in head else b"{}"
        writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\n")
        writer.write(b"content-length: %d\r\n\r\n%b" % (len(body), body))
        await writer.drain()

    async with serving(script) as port:
        (tmp_path / "lightgate.toml").write_text(
            f'[providers.vllm]\nbase_url = "http://127.0.0.1:{port}/v1"\n'
        )
        done: Ran = await run("models", "--json")
    vllm = next(row for row in json.loads(done.out) if row["provider"] == "vllm")
    assert (vllm["ready"], vllm["state"]) == (True, "running")


@pytest.mark.usefixtures("nobody_runs")
def test_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in catalogue())
    assert "not billed" in shown


@pytest.mark.parametrize("args", [["models"], ["models", "groq"], ["prices", "llama-3.3"]])
@pytest.mark.parametrize("columns", [80, 120])
def test_no_word_is_broken_on_a_terminal(
    columns: int, args: list[str], on_terminal: OnTerminal
) -> None:
    narrow, wide = on_terminal(columns, *args), on_terminal(4_000, *args)
    assert set(wide.split()) <= set(narrow.split())
    assert max(map(len, narrow.splitlines())) <= columns
    assert "\N{BOX DRAWINGS LIGHT HORIZONTAL}" not in narrow  # the tables of a run have no lines


def test_models_of_one_provider(capsys: pytest.CaptureFixture[str]) -> None:
    found = {row["target"]: row for row in rows(capsys, "groq")}
    llama = found["groq/llama-3.3-70b-versatile"]
    assert llama["rates"]["input"] == 0.59
    assert llama["rates"]["cached"] is None
    assert main(["models", "groq"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("Groq: https://api.groq.com/openai/v1 (key in GROQ_API_KEY)\n")
    assert "groq/llama-3.3-70b-versatile" in shown
    assert "as of 20" in shown


def test_a_provider_that_a_variable_has_moved_is_shown_where_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    assert main(["models", "openai"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("OpenAI: http://127.0.0.1:9/v1, by OPENAI_BASE_URL (key in OPENAI_")
    own = tmp_path / "own.toml"
    own.write_text('[providers.openai]\nbase_url = "http://127.0.0.1:10/v1"\n')
    assert main(["models", "openai", "--config", str(own)]) == 0
    assert capsys.readouterr().out.startswith("OpenAI: http://127.0.0.1:10/v1 (key in ")
    monkeypatch.setenv("OPENAI_BASE_URL", "htp://x")
    assert main(["models", "openai"]) == Exit.CONFIG
    assert "OPENAI_BASE_URL is no base URL" in capsys.readouterr().err


def test_a_provider_without_a_list_can_still_be_called(capsys: pytest.CaptureFixture[str]) -> None:
    assert rows(capsys, "vllm") == []
    assert main(["models", "vllm"]) == 0
    assert "vllm/MODEL" in capsys.readouterr().out


def test_the_configuration_adds_providers(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "lightgate.toml").write_text(
        '[providers.lab]\nbase_url = "http://127.0.0.1:9001/v1"\napi_key = "env:LAB_KEY"\n'
    )
    lab = next(row for row in rows(capsys) if row["provider"] == "lab")
    assert lab["base_url"] == "http://127.0.0.1:9001/v1"
    assert (lab["ready"], lab["key_env"]) == (False, "LAB_KEY")


GATEWAY = """
[providers.lab]
base_url = "http://127.0.0.1:9001/v1"
api_key = "none"
[models.fast]
targets = ["lab/s1", "lab/s2"]
max_tokens = 4096
[prices."lab/s1"]
input = 1
output = 10
[priors."lab/s2"]
ttft = "90ms"
"""


@pytest.fixture
def traffic(tmp_path: Path) -> None:
    """A configuration, and a ledger with 300 answers of 1 to 300 tokens, an hour ago."""
    (tmp_path / "lightgate.toml").write_text(GATEWAY)
    data = tmp_path / "lightgate-data"
    wall_ns = time.time_ns() - 3600 * 10**9
    notes = []
    for n in range(300):
        stamps = marks(4, 100, 10)
        tokens = count(stamps, Usage(tokens_in=12, tokens_out=n + 1))
        one = attempt_note(f"x-{n}", stamps, Called(tokens=tokens), wall_ns=wall_ns)
        notes.append(settled(f"x-{n}", one, wall_ns=wall_ns))
    with Ledger.open("sqlite", data) as ledger:
        keep(ledger, data, notes)


@pytest.mark.usefixtures("traffic")
def test_priors_and_where_they_come_from(capsys: pytest.CaptureFixture[str]) -> None:
    found = {row["target"]: row for row in rows(capsys, "--priors")}
    s1 = found["lab/s1"]
    assert (s1["source"], s1["n"]) == ("traffic", 299)  # a single token has no speed
    assert found["lab/s1"]["ttft_p50_ms"] == pytest.approx(100, rel=0.02)
    assert (found["lab/s2"]["source"], found["lab/s2"]["ttft_p50_ms"]) == ("config", 90)
    assert main(["models", "--priors"]) == 0
    shown = capsys.readouterr().out
    assert "lab/s1" in shown
    assert "traffic" in shown


@pytest.mark.usefixtures("traffic")
def test_caps_that_the_traffic_suggests(capsys: pytest.CaptureFixture[str]) -> None:
    every, one = rows(capsys, "--caps")
    assert (every["model"], every["key_id"], one["key_id"]) == ("fast", None, "k-1")
    assert (every["n"], every["p99"], every["cap"], every["suggested"]) == (300, 297, 4096, 384)
    assert (every["reserved_now_usd"], every["reserved_usd"]) == (0.04096, 0.00384)
    assert every["config"] == "[models.fast]\nmax_tokens = 384\n"
    assert one["config"] is None
    assert main(["models", "--caps"]) == 0
    shown = capsys.readouterr().out
    assert "[models.fast]\nmax_tokens = 384\n" in shown
    assert "$0.04096 > $0.00384" in shown


@pytest.mark.usefixtures("traffic")
def test_caps_look_back_as_far_as_they_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert rows(capsys, "--caps", "--last", "30m") == []
    assert main(["models", "--caps", "--last", "soon"]) == 2
    assert main(["models", "--caps", "groq"]) == 2


def test_without_a_ledger_there_are_no_caps(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "--caps"]) == 2
    assert "There is no ledger in" in capsys.readouterr().err
    assert rows(capsys, "--priors") == []
