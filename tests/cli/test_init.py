"""`lightgate init` from an empty folder, as somebody new meets it; and `.env` for other verbs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from lightgate.config.load import load_config

if TYPE_CHECKING:
    from pathlib import Path

    from cli.conftest import Run

CANARY = "sk-CANARY-do-not-tell-0123456789"


def env_file(folder: Path, text: str) -> None:
    (folder / ".env").write_text(text)
    (folder / ".env").chmod(0o600)


async def test_keys_of_the_environment_and_of_the_file_become_a_configuration(
    run: Run, tmp_path: Path
) -> None:
    env_file(tmp_path, f"GROQ_API_KEY={CANARY}\n")
    ran = await run("init", OPENAI_API_KEY=CANARY)
    assert ran.code == 0
    assert ran.out.splitlines() == [
        "openai: OPENAI_API_KEY (environment)",
        "groq: GROQ_API_KEY (.env)",
    ]
    assert "Next: lightgate up" in ran.err
    text = (tmp_path / "lightgate.toml").read_text()
    assert CANARY not in text + ran.out + ran.err
    assert "other prices, other terms" in text
    assert "# auto = true" in text
    config = load_config(tmp_path / "lightgate.toml")
    assert {name: table.api_key for name, table in config.providers.items()} == {
        "openai": "env:OPENAI_API_KEY",
        "groq": "env:GROQ_API_KEY",
    }
    assert not config.gateway.auto
    checked = await run("config", "check", OPENAI_API_KEY=CANARY)
    assert (checked.code, checked.err) == (0, "")


async def test_what_is_commented_out_is_valid_too(run: Run, tmp_path: Path) -> None:
    await run("init", OPENAI_API_KEY="k", GEMINI_API_KEY="k")
    path = tmp_path / "lightgate.toml"
    head, models = path.read_text().split("# [models.fast]")
    loose = "[models.fast]" + models.replace("\n# ", "\n")
    path.write_text(head.replace("# auto = true", "auto = true") + loose)
    config = load_config(path)
    assert config.gateway.auto
    assert config.models["fast"].targets == ("openai/gpt-4o-mini", "gemini/gemini-2.5-flash")


async def test_a_file_that_exists_is_left_as_it_is(run: Run, tmp_path: Path) -> None:
    (tmp_path / "lightgate.toml").write_text("# mine\n")
    ran = await run("init", OPENAI_API_KEY="k")
    assert ran.code == 2
    assert ran.sentence == "lightgate: lightgate.toml exists already and is left as it is."
    assert (tmp_path / "lightgate.toml").read_text() == "# mine\n"
    other = await run("init", "--out", "other.toml", "--auto", "--json", OPENAI_API_KEY="k")
    told = json.loads(other.out)
    assert (told["file"], told["auto"]) == ("other.toml", True)
    assert told["providers"][0]["key_env"] == "OPENAI_API_KEY"
    assert load_config(tmp_path / "other.toml").gateway.auto


async def test_no_key_is_said_with_what_to_do(run: Run, tmp_path: Path) -> None:
    ran = await run("init")
    assert ran.code == 5
    assert ran.sentence == "lightgate: No provider's key is in the environment or in .env."
    assert "OPENAI_API_KEY" in ran.err
    assert not (tmp_path / "lightgate.toml").exists()


async def test_a_key_without_its_address_is_named(run: Run, tmp_path: Path) -> None:
    ran = await run("init", OPENAI_API_KEY="k", AZURE_OPENAI_API_KEY="k")
    assert "azure: AZURE_OPENAI_API_KEY, but Azure OpenAI needs AZURE_OPENAI_RESOURCE" in ran.out
    config = load_config(tmp_path / "lightgate.toml")
    assert list(config.providers) == ["openai"]


async def test_an_sdks_base_url_is_told(run: Run, tmp_path: Path) -> None:
    await run("init", OPENAI_API_KEY="k", OPENAI_BASE_URL="https://proxy/v1")
    assert "https://proxy/v1, by OPENAI_BASE_URL" in (tmp_path / "lightgate.toml").read_text()


@pytest.mark.parametrize(
    "words", [("models",), ("doctor",), ("bench", "openai/x"), ("up",), ("config", "check")]
)
async def test_a_malformed_env_file_stops_the_verbs_that_need_keys(
    run: Run, tmp_path: Path, words: tuple[str, ...]
) -> None:
    env_file(tmp_path, f"{CANARY}\n")
    ran = await run(*words)
    assert ran.code == 3
    assert ran.sentence == "lightgate: .env has a problem."
    assert ".env:1: a line is NAME=VALUE" in ran.err
    assert CANARY not in ran.out + ran.err


async def test_a_key_in_the_file_makes_its_provider_ready(run: Run, tmp_path: Path) -> None:
    env_file(tmp_path, f'GROQ_API_KEY="{CANARY}"\n')
    rows = json.loads((await run("models", "--json")).out)
    assert [row["provider"] for row in rows if row["ready"] and not row["local"]] == ["groq"]


async def test_bench_tells_where_a_variable_has_moved_a_provider(run: Run) -> None:
    ran = await run(
        "bench", "openai/x", "--requests", "1", OPENAI_API_KEY=CANARY,
        OPENAI_BASE_URL="http://127.0.0.1:1/v1",
    )  # fmt: skip
    assert "openai is at http://127.0.0.1:1/v1, by OPENAI_BASE_URL." in ran.err
    assert ran.code != 0
