from __future__ import annotations

import re
from datetime import date

import pytest

from lightgate.config.load import parse_config
from lightgate.config.notation import check_base_url
from lightgate.errors import UsageError
from lightgate.provider.catalogue import (
    Provider,
    catalogue,
    did_you_mean,
    fill,
    known_providers,
    placeholders,
    provider_named,
    read_catalogue,
)
from lightgate.provider.table_text import table_text

WANTED = [
    "openai",
    "azure",
    "anthropic",
    "gemini",
    "vertex",
    "bedrock",
    "groq",
    "cerebras",
    "sambanova",
    "together",
    "fireworks",
    "deepinfra",
    "replicate",
    "generalcompute",
    "mistral",
    "cohere",
    "deepseek",
    "xai",
    "perplexity",
    "openrouter",
    "nvidia",
    "novita",
    "nebius",
    "hyperbolic",
    "huggingface",
    "cloudflare",
    "vllm",
    "sglang",
    "llamacpp",
    "ollama",
    "lmstudio",
    "tgi",
]
ROWS = list(catalogue().values())


def test_every_wanted_provider_has_a_row() -> None:
    assert set(WANTED) <= set(catalogue())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_row_is_whole(row: Provider) -> None:
    filled = fill(row.base_url, dict.fromkeys(placeholders(row.base_url), "x"))
    assert check_base_url(filled) == filled
    assert row.local == filled.startswith("http://127.0.0.1:")
    assert row.docs.startswith("https://")
    assert date.fromisoformat(row.as_of).year >= 2026
    assert row.kinds
    assert row.local or row.key_env
    assert all(re.fullmatch(r"[A-Z][A-Z0-9_]*", name) for name in row.key_env)
    assert row.name == row.name.lower()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_abort_policy_says_where_it_comes_from(row: Provider) -> None:
    if row.abort.stops_billing is not None:
        assert row.abort.source
        assert date.fromisoformat(row.abort.as_of).year >= 2026


@pytest.mark.parametrize(
    ("name", "stops"),
    [
        ("openai", True),
        ("anthropic", True),
        ("fireworks", True),
        ("groq", False),
        ("gemini", False),
        ("bedrock", False),
        ("mistral", False),
        ("cerebras", None),
        ("openrouter", None),
        ("vllm", True),
    ],
)
def test_abort_policy_is_that_of_the_sources(name: str, stops: bool | None) -> None:
    assert catalogue()[name].abort.stops_billing is stops


def test_quirks_reach_the_rows() -> None:
    rows = catalogue()
    assert rows["openai"].quirks.max_tokens_field == "max_completion_tokens"
    assert not rows["mistral"].quirks.stream_usage
    assert not rows["cohere"].quirks.stream_usage
    assert rows["vllm"].quirks.ignore_eos
    assert rows["vllm"].quirks.min_tokens
    assert rows["groq"].quirks.stream_usage


def test_price_ids_are_those_of_the_price_list() -> None:
    from genai_prices.data_snapshot import get_snapshot

    listed = {provider.id for provider in get_snapshot().providers}
    assert {row.price_provider for row in ROWS if row.price_provider} <= listed


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[x]\ntitle = "X"\nbase_url = "https://x"\ncolour = "red"', "colour"),
        ('[x]\ntitle = "X"\nbase_url = "https://x"\nquirks = { tools = true }', "tools"),
        ('[x]\ntitle = "X"\nbase_url = "https://x"\nquirks = { stream_usage = "no" }', "bool"),
        ('[x]\ntitle = "X"\nbase_url = "https://x"\ndialect = "cobol"', "cobol"),
        ('[x]\ntitle = "X"\nbase_url = "https://{REGION}.x"', "variables"),
        ('[x]\ntitle = "X"', "base_url"),
    ],
)
def test_a_wrong_row_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read_catalogue(text)


def test_the_configuration_is_laid_over_a_row() -> None:
    config = parse_config(
        '[providers.groq]\nbase_url = "http://127.0.0.1:9/v1"\nabort_stops_billing = true\n'
        '[providers.lab]\nbase_url = "http://127.0.0.1:9/v1"\ndialect = "anthropic"\n'
    )
    groq, lab = provider_named("groq", config), provider_named("lab", config)
    assert groq.base_url == "http://127.0.0.1:9/v1"
    assert groq.abort.stops_billing is True
    assert groq.abort.source == "lightgate.toml"
    assert groq.price_provider == "groq"
    assert catalogue()["groq"].abort.stops_billing is False
    assert (lab.dialect, lab.auth) == ("anthropic", "x-api-key")
    assert lab.headers == (("anthropic-version", "2023-06-01"),)
    assert {*WANTED, "lab"} <= set(known_providers(config))


def test_an_unknown_provider_is_answered_with_the_nearest() -> None:
    with pytest.raises(UsageError) as caught:
        provider_named("gorq")
    assert caught.value.exit_code == 2
    assert caught.value.hint == "Did you mean groq?"


def test_nothing_near_gives_no_guess() -> None:
    assert did_you_mean("qqqqqq", catalogue()) == ""


def test_a_table_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pkgutil.get_data", lambda _package, _name: None)
    with pytest.raises(FileNotFoundError, match=r"some\.toml"):
        table_text("some.toml")


@pytest.mark.parametrize(
    ("auth", "variables"),
    [
        ("google", ()),
        ("azure", ()),
        ("x-lab-key", ("OPENAI_API_KEY",)),
        ("none", ("OPENAI_API_KEY",)),
    ],
)
def test_a_provider_that_is_signed_for_takes_no_key_from_the_environment(
    auth: str, variables: tuple[str, ...]
) -> None:
    config = parse_config(f'[providers.openai]\nauth = "{auth}"\n')
    found = provider_named("openai", config)
    assert (found.auth, found.key_env) == (auth, variables)
