from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from lightgate.cli.main import main
from lightgate.provider.catalogue import catalogue

if TYPE_CHECKING:
    from pathlib import Path


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


def test_every_provider_and_who_is_ready(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_API_KEY", "secret-value")
    found = {row["provider"]: row for row in rows(capsys)}
    assert set(found) == set(catalogue())
    ready = {name for name, row in found.items() if row["ready"]}
    assert ready == {"gemini", *(row.name for row in catalogue().values() if row.local)}
    assert found["gemini"]["key_env"] == "GOOGLE_API_KEY"
    assert found["groq"]["abort_stops_billing"] is False
    assert found["cerebras"]["abort_stops_billing"] is None
    assert "secret-value" not in json.dumps(found)


def test_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in catalogue())
    assert "billed to the end" in shown
    assert "unknown" in shown


def test_models_of_one_provider(capsys: pytest.CaptureFixture[str]) -> None:
    found = {row["target"]: row for row in rows(capsys, "groq")}
    llama = found["groq/llama-3.3-70b-versatile"]
    assert llama["rates"]["input"] == 0.59
    assert llama["rates"]["cached"] is None
    assert main(["models", "groq"]) == 0
    shown = capsys.readouterr().out
    assert "groq/llama-3.3-70b-versatile" in shown
    assert "as of 20" in shown


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
