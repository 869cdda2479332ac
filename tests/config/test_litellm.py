from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from lightgate.config.litellm.convert import import_litellm
from lightgate.config.litellm.deployment import KnownProvider
from lightgate.config.load import parse_config
from lightgate.errors import ConfigError
from lightgate.provider.catalogue import catalogue
from lightgate.provider.target import resolve

if TYPE_CHECKING:
    from lightgate.config.litellm.convert import ImportedConfig
    from lightgate.config.model import Config

KNOWN = {
    name: KnownProvider(row.base_url, row.dialect, row.auth, row.key_env)
    for name, row in catalogue().items()
}
# A production file as people have it: load balancing, fallbacks, own servers, secrets in the text.
WHOLE = """
model_list:
  - model_name: gpt-4o
    litellm_params:
      model: azure/gpt-4o-eu
      api_base: https://my-endpoint-europe.openai.azure.com/
      api_key: os.environ/AZURE_API_KEY_EU
      api_version: "2024-02-01"
      rpm: 6
  - model_name: gpt-4o
    litellm_params:
      model: openai/gpt-4o
      api_key: os.environ/OPENAI_API_KEY
      rpm: 3
  - model_name: gpt-4o
    litellm_params: {model: gpt-4o, api_key: sk-proj-CANARY-1, rpm: 1}
  - model_name: llama
    litellm_params:
      model: groq/llama-3.3-70b-versatile
      temperature: 0.2
      timeout: 20
  - model_name: llama-local
    litellm_params:
      model: hosted_vllm/meta-llama/Llama-3.3-70B
      api_base: http://10.0.0.5:8000/v1
      api_key: none
    model_info:
      input_cost_per_token: 0.0000002
      output_cost_per_token: 4.0e-7
      mode: chat
  - model_name: "anthropic/*"
    litellm_params: {model: "anthropic/*", api_key: os.environ/ANTHROPIC_API_KEY}
  - model_name: palm
    litellm_params: {model: palm/chat-bison}
router_settings:
  routing_strategy: simple-shuffle
  num_retries: 2
  timeout: 30
  allowed_fails: 3
  cooldown_time: 30
  redis_host: os.environ/REDIS_HOST
  redis_password: CANARY-2
  model_group_alias: {"gpt-4": "gpt-4o"}
litellm_settings:
  drop_params: true
  fallbacks: [{"gpt-4o": ["llama"]}, {"llama": ["llama-local"]}]
  context_window_fallbacks: [{"llama": ["gpt-4o"]}]
  cache: true
  cache_params: {type: redis, host: localhost, ttl: 600}
general_settings:
  master_key: sk-CANARY-3
  database_url: postgresql://u:CANARY-4@db/x
environment_variables:
  LANGFUSE_SECRET_KEY: CANARY-5
"""


def imported(text: str, env: dict[str, str] | None = None) -> ImportedConfig:
    return import_litellm(text, known=KNOWN, env=env or {})


def config_of(text: str, env: dict[str, str] | None = None) -> Config:
    return parse_config(imported(text, env).text)


def one(params: str, more: str = "") -> str:
    return f"model_list:\n  - model_name: m\n    litellm_params: {{{params}}}\n{more}"


def notes(made: ImportedConfig) -> dict[str, str]:
    return {note.where: note.said for note in made.notes}


def test_a_whole_file() -> None:
    config = config_of(WHOLE)
    gpt = config.models["gpt-4o"]
    assert gpt.targets == (
        "azure/gpt-4o-eu", "openai/gpt-4o", "openai-2/gpt-4o", "groq/llama-3.3-70b-versatile",
    )  # fmt: skip
    assert (gpt.policy, gpt.weights) == ("weighted", (6, 3, 1, 0))
    assert (gpt.hedge, gpt.timeout, gpt.retries) == ("off", 30 * 10**9, 0)
    assert gpt.cache is not None
    assert (gpt.cache.mode, gpt.cache.ttl) == ("exact", 600 * 10**9)
    assert config.models["gpt-4"] == gpt
    llama = config.models["llama"]
    assert llama.targets == ("groq/llama-3.3-70b-versatile", "vllm/meta-llama/Llama-3.3-70B")
    assert (llama.policy, llama.timeout) == ("ordered", 20 * 10**9)
    assert (config.models["llama-local"].policy, config.models["llama-local"].retries) == (
        "ordered", 2,
    )  # fmt: skip
    assert set(config.models) == {"gpt-4o", "gpt-4", "llama", "llama-local"}
    assert (config.gateway.breaker.streak, config.gateway.breaker.open) == (4, 30 * 10**9)
    azure = config.providers["azure"]
    assert azure.variables == {"AZURE_OPENAI_RESOURCE": "my-endpoint-europe"}
    assert azure.api_key == "env:AZURE_API_KEY_EU"
    assert config.providers["vllm"].base_url == "http://10.0.0.5:8000/v1"
    assert config.providers["vllm"].api_key == "none"
    assert config.providers["openai-2"].like == "openai"
    assert config.providers["openai-2"].base_url is None
    price = config.prices["vllm/meta-llama/Llama-3.3-70B"]
    assert (float(price.input), float(price.output)) == (0.2, 0.4)


def test_nothing_is_dropped_silently() -> None:
    made = imported(WHOLE)
    told = notes(made)
    assert set(told) == {
        "environment_variables",
        "general_settings.database_url",
        "general_settings.master_key",
        "gpt-4o: rpm, tpm",
        "litellm_settings.cache_params.host",
        "litellm_settings.context_window_fallbacks",
        "litellm_settings.drop_params",
        "model_list[0] (gpt-4o).api_version",
        "model_list[3] (llama).temperature",
        "model_list[4] (llama-local).model_info.mode",
        "model_list[5] (anthropic/*)",
        "model_list[6] (palm)",
        "providers.openai-2",
        "router_settings.allowed_fails",
        "router_settings.cooldown_time",
        "router_settings.model_group_alias",
        "router_settings.num_retries",
        "router_settings.redis_host",
        "router_settings.redis_password",
    }
    for where, said in told.items():
        assert f"#   {where}: {said}\n" in made.text
    assert "[shared] url" in told["router_settings.redis_host"]
    assert "x-lightgate-dropped" in told["litellm_settings.drop_params"]


def test_no_secret_is_copied() -> None:
    made = imported(WHOLE)
    assert "CANARY" not in made.text
    assert "CANARY" not in str(made.notes)
    assert config_of(WHOLE).providers["openai-2"].api_key == "env:OPENAI_2_API_KEY"
    assert "put it into $OPENAI_2_API_KEY" in notes(made)["providers.openai-2"]


def test_the_guide_shows_what_comes_out() -> None:
    guide = Path(__file__).parents[2] / "docs" / "guides" / "from-litellm.md"
    text = guide.read_text("utf-8")
    given = text.partition("$ cat config.yaml\n")[2].partition("\n\n$ ")[0]
    shown = text.partition("```toml\n")[2].partition("```")[0]
    assert imported(given).text == shown


@pytest.mark.parametrize(
    ("params", "target", "tables"),
    [
        ("model: openai/gpt-4o", "openai/gpt-4o", set()),
        ("model: gpt-4o-mini", "openai/gpt-4o-mini", set()),
        ("model: claude-sonnet-4-5", "anthropic/claude-sonnet-4-5", set()),
        ("model: together_ai/meta-llama/L", "together/meta-llama/L", set()),
        ("model: groq/x, api_key: os.environ/G", "groq/x", {"groq"}),
        ("model: groq/x, api_base: 'https://api.groq.com/openai/v1'", "groq/x", set()),
        ("model: openai/x, api_base: 'http://gpu-1.lab:8000/v1'", "gpu-1-lab-8000/x",
         {"gpu-1-lab-8000"}),
        ("model: my-org/x, api_base: 'http://h/v1'", "h/my-org/x", {"h"}),
        ("model: x, custom_llm_provider: openai, api_base: 'http://h/v1'", "h/x", {"h"}),
        ("model: azure_ai/mistral, api_base: 'https://a.b/models'", "a-b/mistral", {"a-b"}),
        ("model: ollama/llama3, api_base: 'http://gpu:11434'", "ollama/llama3", {"ollama"}),
        ("model: vertex_ai/gemini-2.5-pro, vertex_project: p-1, vertex_location: us-east1",
         "vertex/gemini-2.5-pro", {"vertex"}),
    ],
)  # fmt: skip
def test_who_is_called(params: str, target: str, tables: set[str]) -> None:
    config = config_of(one(params))
    assert config.models["m"].targets == (target,)
    assert set(config.providers) == tables


def test_addresses_in_our_form() -> None:
    assert config_of(one("model: ollama/l, api_base: 'http://g:11434/'")).providers[
        "ollama"
    ].base_url == ("http://g:11434/v1")
    text = one("model: anthropic/c, api_base: 'https://proxy.corp'")
    proxied = config_of(text).providers["proxy-corp"]
    assert (proxied.base_url, proxied.dialect) == ("https://proxy.corp/v1", "anthropic")
    text = one("model: openai/x, api_base: os.environ/LAB")
    assert config_of(text, {"LAB": "http://lab/v1"}).providers["lab"].base_url == "http://lab/v1"
    made = imported(text)
    assert "write it down" in notes(made)["providers.replace-me-invalid"]
    assert parse_config(made.text).models["m"].targets == ("replace-me-invalid/x",)


@pytest.mark.parametrize(
    ("strategy", "policy"),
    [
        ("latency-based-routing", "fastest"),
        ("cost-based-routing", "cheapest"),
        ("least-busy", "fastest"),
        ("simple-shuffle", "weighted"),
        ("no-such-strategy", "weighted"),
    ],
)
def test_strategies(strategy: str, policy: str) -> None:
    text = (
        "model_list:\n"
        "  - {model_name: m, litellm_params: {model: groq/a, weight: 3}}\n"
        "  - {model_name: m, litellm_params: {model: cerebras/a, weight: 1}}\n"
        f"router_settings: {{routing_strategy: {strategy}}}\n"
    )
    model = config_of(text).models["m"]
    assert model.policy == policy
    assert model.weights == ((3, 1) if policy == "weighted" else ())
    told = notes(imported(text))
    inexact = strategy in {"least-busy", "no-such-strategy"}
    assert ("router_settings.routing_strategy" in told) == inexact
    assert ("m: weight" in told) == (policy != "weighted")


def test_a_cooldown_longer_than_our_longest_pause() -> None:
    breaker = config_of("router_settings: {cooldown_time: 600}").gateway.breaker
    assert (breaker.open, breaker.max_open) == (600 * 10**9, 600 * 10**9)


def test_an_order_becomes_the_order() -> None:
    text = (
        "model_list:\n"
        "  - {model_name: m, litellm_params: {model: groq/a, order: 2}}\n"
        "  - {model_name: m, litellm_params: {model: cerebras/a, order: 1}}\n"
    )
    model = config_of(text).models["m"]
    assert (model.policy, model.targets) == ("ordered", ("cerebras/a", "groq/a"))


def test_the_same_target_twice_has_both_shares() -> None:
    entry = "  - {model_name: m, litellm_params: {model: groq/a}}\n"
    model = config_of(f"model_list:\n{entry}{entry}{entry.replace('groq', 'xai')}").models["m"]
    assert (model.targets, model.weights) == (("groq/a", "xai/a"), (2, 1))


def test_a_second_azure_is_like_the_first() -> None:
    text = "model_list:\n" + "".join(
        f"  - {{model_name: m, litellm_params: {{model: azure/g, api_key: os.environ/K,"
        f" api_base: 'https://{name}.openai.azure.com'}}}}\n"
        for name in ("eu", "us")
    )
    config = parse_config(imported(text).text)
    assert config.models["m"].targets == ("azure/g", "azure-2/g")
    two = resolve("azure-2/g", env={"K": "k"}, config=config)
    assert two.base_url == "https://us.openai.azure.com/openai/v1"
    assert two.headers() == (("api-key", "k"),)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [1", "not valid YAML"),
        ("a: !!python/object/apply:os.system ['true']", "not valid YAML"),
        ("- 1", "not a LiteLLM configuration"),
        ("", "not a LiteLLM configuration"),
        ("model_list: 3", "not a LiteLLM configuration"),
    ],
)
def test_what_is_no_configuration(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        imported(text)


WORDS = st.sampled_from(
    [
        "gpt-4o",
        "openai/gpt-4o",
        "groq/a b",
        "x/\x7f",
        "*",
        "",
        'q"\\',
        "a\nb",
        "ollama/ö",
        "-",
        "😀/x",
    ]
) | st.text(max_size=8)
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), WORDS, st.lists(WORDS, max_size=2),
    st.dictionaries(WORDS, st.lists(WORDS, max_size=2), max_size=2),
)  # fmt: skip
PARAMS = st.dictionaries(
    st.sampled_from(
        ["model", "api_base", "rpm", "tpm", "weight", "order", "timeout", "stream_timeout",
         "max_tokens", "num_retries", "input_cost_per_token", "output_cost_per_token",
         "custom_llm_provider", "vertex_project", "aws_region_name", "other"]
    ),
    VALUES | st.sampled_from(["http://h:8000/v1", "https://e.openai.azure.com", "os.environ/X"]),
)  # fmt: skip
SETTINGS = st.dictionaries(
    st.sampled_from(
        ["routing_strategy", "num_retries", "timeout", "allowed_fails", "cooldown_time", "cache",
         "fallbacks", "default_fallbacks", "model_group_alias", "cache_params", "stream_timeout"]
    ),
    VALUES | st.lists(st.dictionaries(WORDS, st.lists(WORDS, max_size=2), max_size=2), max_size=2),
)  # fmt: skip


@given(
    st.lists(st.tuples(WORDS, PARAMS), max_size=5),
    SETTINGS,
    st.sampled_from(["sk-CANARY", "os.environ/GOOD", "os.environ/CANARY!", None]),
)
@settings(max_examples=200)
def test_whatever_it_says_the_result_is_a_configuration_without_secrets(
    models: list[tuple[str, dict[str, Any]]], table: dict[str, Any], key: str | None
) -> None:
    entries = [
        {"model_name": name, "litellm_params": params | ({"api_key": key} if key else {})}
        for name, params in models
    ]
    data = {"model_list": entries, "router_settings": table, "general_settings": table}
    made = imported(yaml.safe_dump(data))
    parse_config(made.text)
    assert "CANARY" not in made.text
