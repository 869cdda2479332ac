from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from lightgate.cli.main import main
from lightgate.cli.output import dollars

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("LIGHTGATE_CONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


def rates(capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, dict[str, Any]]:
    assert main(["prices", "--json", *args]) == 0
    return {row["target"]: row["rates"] for row in json.loads(capsys.readouterr().out)}


def test_all_prices(capsys: pytest.CaptureFixture[str]) -> None:
    found = rates(capsys)
    assert found["groq/llama-3.3-70b-versatile"]["output"] == 0.79
    assert {name.split("/")[0] for name in found} >= {
        "openai",
        "gemini",
        "vertex",
        "xai",
        "bedrock",
    }


@pytest.mark.parametrize(
    "pattern", ["groq/llama-3.3-70b-v", "GROQ/*-70b-versatile", "*/llama-3.3-70b-v*"]
)
def test_patterns(pattern: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = rates(capsys, pattern)
    assert "groq/llama-3.3-70b-versatile" in found
    assert "openai/gpt-4o" not in found


def test_unknown_is_null_and_a_dot(capsys: pytest.CaptureFixture[str]) -> None:
    assert rates(capsys, "groq/llama-3.3-70b-versatile").popitem()[1]["cached"] is None
    assert main(["prices", "groq/*"]) == 0
    shown = capsys.readouterr().out.splitlines()
    head, row = shown[0], next(line for line in shown if "llama-3.3-70b-versatile" in line)
    assert dict(zip(head.split(), row.split(), strict=False))["cached"] == "·"


def test_a_column_that_says_nothing_is_left_out(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["prices", "together/meta-llama/Llama-3.3-70B-Instruct-Turbo"]) == 0
    head, _, caption = capsys.readouterr().out.splitlines()
    assert head.split() == ["target", "input", "output"]
    assert "Prices as of 20" in caption
    (tmp_path / "lightgate.toml").write_text('[prices."lab/s1"]\ninput = 1\noutput = 2\n')
    assert main(["prices", "*/*-s1*"]) == 0
    assert main(["prices", "lab/*"]) == 0
    assert "override" in capsys.readouterr().out


def test_nothing_matches(capsys: pytest.CaptureFixture[str]) -> None:
    assert rates(capsys, "no-such-model") == {}
    assert main(["prices", "no-such-model"]) == 0
    assert capsys.readouterr().out == "No price is known for 'no-such-model'.\n"
    assert main(["prices", "gpt-4o-mimi"]) == 0
    assert "Did you mean openai/gpt-4o-mini" in capsys.readouterr().out


def test_own_prices_come_first(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = tmp_path / "own.toml"
    config.write_text(
        '[prices."openai/gpt-4o"]\ninput = 0\noutput = 1.25\n'
        '[prices."lab/s1"]\ninput = 1\noutput = 2\n'
    )
    found = rates(capsys, "--config", str(config))
    assert found["openai/gpt-4o"]["source"] == "override"
    assert (found["openai/gpt-4o"]["input"], found["openai/gpt-4o"]["output"]) == (0, 1.25)
    assert found["lab/s1"]["output"] == 2
    assert found["openai/gpt-4o-mini"]["source"] == "list"


@pytest.mark.parametrize(
    ("amount", "shown"),
    [
        (None, "unknown"),
        (Decimal(0), "0.00"),
        (Decimal("0.5"), "0.50"),
        (Decimal("0.075"), "0.075"),
        (Decimal("1E+2"), "100.00"),
        (Decimal("12.3400"), "12.34"),
        (Decimal("0.0416666666666667"), "0.0416667"),
        (Decimal("0.00000123"), "0.00000123"),
    ],
)
def test_dollars(amount: Decimal | None, shown: str) -> None:
    assert dollars(amount) == shown


def test_a_batch_price_that_follows_from_a_discount_is_marked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The list's own batch prices are plain, and a provider without a known discount has none."""
    found = rates(capsys, "groq/llama-3.3-70b-versatile").popitem()[1]
    assert found["batch_source"] == "discount"
    assert found["batch_input"] == found["input"] / 2
    assert main(["prices", "groq/*"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert "~0.295" in next(line for line in shown if "llama-3.3-70b-versatile" in line)
    assert "~ = the list price with the provider's batch discount" in shown[-1]
    assert rates(capsys, "openai/*")["openai/gpt-4o-mini"]["batch_source"] == "list"
    assert rates(capsys, "together/*llama-3.3*").popitem()[1]["batch_source"] is None
