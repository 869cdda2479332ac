"""Whatever is typed wrong: the right exit code, a sentence on stderr, nothing on stdout."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from lightgate.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("LIGHTGATE_CONFIG", raising=False)
    monkeypatch.delenv("LIGHTGATE_DEBUG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["modls"], 2, "Did you mean 'models'?"),
        (["qqq"], 2, "There is no verb 'qqq'."),
        (["--colour"], 2, "--colour"),
        (["models", "--jsn"], 2, "--jsn"),
        (["models", "gorq"], 2, "Did you mean groq?"),
        (["models", "groq", "extra"], 2, "extra"),
        (["models", "--config"], 2, "--config"),
        (["models", "--config", "gone.toml"], 3, "gone.toml"),
        (["prices", "--config", "."], 3, "no configuration file"),
        (["up", "--world", "nowhere"], 2, "There is no world 'nowhere'."),
        (["schedule", "remove", "x"], 2, "There is none at all;"),
        (["bench", "a=http://h/v1#m", "a=http://i/v1#m"], 2, "Two targets have the name 'a'."),
        (["bench", "a=http://h/v1#m", "--engine-metrics", "--out", "x"], 2, "'--out' is an option"),
    ],
)
def test_wrong_words(
    args: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(args) == code
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("lightgate: ")
    assert said in shown.err
    assert "Traceback" not in shown.err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[gateway\n", "lightgate.toml:1:9: "),
        ("[gateway]\nprt = 1\n", "gateway.prt: unknown key; did you mean 'port'?"),
        ('[providers.x]\napi_key = "sk-123456"\n', "env:NAME"),
        ("\x00", "lightgate.toml:1"),
    ],
)
def test_a_wrong_file_in_the_working_folder(
    text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "lightgate.toml").write_text(text)
    assert main(["models"]) == 3
    shown = capsys.readouterr()
    assert shown.out == ""
    assert said in shown.err
    assert "sk-123456" not in shown.err


def test_a_wrong_file_in_the_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LIGHTGATE_CONFIG", "gone.toml")
    assert main(["prices"]) == 3
    assert "gone.toml" in capsys.readouterr().err


@pytest.mark.parametrize(("args", "code"), [(["modls"], 2), (["models", "--config", "x.toml"], 3)])
def test_as_a_process(args: list[str], code: int, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "lightgate", *args],
        capture_output=True, text=True, timeout=100, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == code
    assert done.stdout == ""
    assert done.stderr.startswith("lightgate: ")
    assert "Traceback" not in done.stderr
