from __future__ import annotations

import copy
import pickle
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightgate.clock.tokens import Usage
from lightgate.config.load import parse_config
from lightgate.errors import ConfigError, CredentialsError, LightgateError, UsageError
from lightgate.price.rates import Rates, TierRates, rates_of
from lightgate.provider.catalogue import catalogue, provider_named
from lightgate.provider.secret import Secret
from lightgate.provider.target import key_variable, rates_at, resolve

AT = datetime(2026, 11, 15, tzinfo=UTC)


def test_provider_and_model() -> None:
    target = resolve("groq/llama-3.3-70b-versatile", env={"GROQ_API_KEY": "gsk-1"})
    assert target.name == "groq/llama-3.3-70b-versatile"
    assert target.model == "llama-3.3-70b-versatile"
    assert target.base_url == "https://api.groq.com/openai/v1"
    assert target.headers() == (("authorization", "Bearer gsk-1"),)


def test_a_model_may_hold_slashes() -> None:
    target = resolve("together/meta-llama/Llama-3", env={"TOGETHER_API_KEY": "k"})
    assert target.model == "meta-llama/Llama-3"


def test_a_model_may_hold_an_equals_sign() -> None:
    assert resolve("vllm/lora=7", env={}).model == "lora=7"


@pytest.mark.parametrize(
    ("spec", "variable", "header"),
    [
        ("anthropic/c", "ANTHROPIC_API_KEY", ("x-api-key", "k")),
        ("gemini/g", "GEMINI_API_KEY", ("x-goog-api-key", "k")),
        ("gemini/g", "GOOGLE_API_KEY", ("x-goog-api-key", "k")),
        ("openai/o", "OPENAI_API_KEY", ("authorization", "Bearer k")),
    ],
)
def test_the_key_goes_where_the_provider_wants_it(
    spec: str, variable: str, header: tuple[str, str]
) -> None:
    assert header in resolve(spec, env={variable: " k\n"}).headers()


def test_anthropic_is_told_its_version() -> None:
    target = resolve("anthropic/c", env={"ANTHROPIC_API_KEY": "k"})
    assert ("anthropic-version", "2023-06-01") in target.headers()


def test_own_url() -> None:
    target = resolve("lab=http://127.0.0.1:9001/v1/#org/model", env={})
    assert (target.name, target.model) == ("lab", "org/model")
    assert target.base_url == "http://127.0.0.1:9001/v1"
    assert target.provider.dialect == "openai"
    assert target.headers() == ()


def test_own_url_with_key() -> None:
    target = resolve("lab=https://h/v1#m", env={"LAB": "s"}, key_env="LAB")
    assert target.headers() == (("authorization", "Bearer s"),)


def test_local_providers_need_no_key_but_take_one() -> None:
    assert resolve("ollama/llama3", env={}).api_key is None
    assert resolve("vllm/m", env={"VLLM_API_KEY": "k"}).headers() == (
        ("authorization", "Bearer k"),
    )


def test_a_missing_key_names_its_variable() -> None:
    with pytest.raises(CredentialsError, match="GROQ_API_KEY") as caught:
        resolve("groq/m", env={"GROQ_API_KEY": "  "})
    assert caught.value.exit_code == 5
    assert "export GROQ_API_KEY" in caught.value.hint


@pytest.mark.parametrize(
    "spec",
    [
        "",
        "groq",
        "groq/",
        "/m",
        "groq/a b",
        "lab=http://h/v1",
        "lab=http://h/v1#",
        "=http://h#m",
        "l b=http://h#m",
        "lab=h/v1#m",
        "lab=ftp://h/v1#m",
        "lab=http://#m",
        "lab=http:///v1#m",
        "lab=http://h:0/v1#m",
        "lab=http://h:70000/v1#m",
        "lab=http://h:abc/v1#m",
        "lab=http://h/v 1#m",
        "lab=http://[::1/v1#m",
        "lab=http://h/v1?a=b#m",
        "lab=http://h/../v1#m",
        "lab=http://hö/v1#m",
        "lab=http://h/v1#m\n",
    ],
)
def test_a_malformed_target_is_a_usage_error(spec: str) -> None:
    with pytest.raises(UsageError) as caught:
        resolve(spec, env={})
    assert "\n" not in caught.value.message
    assert caught.value.message.endswith(".")


def test_credentials_in_a_url_are_refused_and_not_repeated() -> None:
    with pytest.raises(UsageError, match="credentials") as caught:
        resolve("lab=https://user:hunter2@h/v1#m", env={})
    assert "hunter2" not in caught.value.message + caught.value.hint


def test_a_key_typed_as_its_variable_is_not_repeated() -> None:
    with pytest.raises(UsageError) as caught:
        resolve("lab=https://h/v1#m", env={}, key_env="sk-live-123")
    assert "sk-live" not in caught.value.message + caught.value.hint


@given(st.text(max_size=60))
@settings(max_examples=300, derandomize=True)
def test_any_text_gives_a_target_or_one_of_our_errors(text: str) -> None:
    for spec in (text, f"vllm/{text}", f"lab={text}#m", f"lab=http://{text}"):
        try:
            outcome = resolve(spec, env={}).base_url
        except LightgateError as error:
            outcome = error.message
        assert outcome.startswith(("http://", "https://")) or outcome.endswith(".")


def test_a_templated_url_is_filled_from_the_environment() -> None:
    env = {"AZURE_OPENAI_RESOURCE": "my-lab", "AZURE_OPENAI_API_KEY": "k"}
    target = resolve("azure/gpt", env=env)
    assert target.base_url == "https://my-lab.openai.azure.com/openai/v1"
    assert target.headers() == (("api-key", "k"),)


def test_a_templated_url_is_filled_from_the_configuration_first() -> None:
    config = parse_config('[providers.bedrock]\nvariables = { AWS_REGION = "eu-west-1" }')
    env = {"AWS_REGION": "us-east-1", "AWS_BEARER_TOKEN_BEDROCK": "k"}
    target = resolve("bedrock/m", env=env, config=config)
    assert target.base_url == "https://bedrock-runtime.eu-west-1.amazonaws.com/openai/v1"


def test_a_missing_variable_says_what_to_set() -> None:
    with pytest.raises(ConfigError, match="AWS_REGION") as caught:
        resolve("bedrock/m", env={"AWS_BEARER_TOKEN_BEDROCK": "k"})
    assert "AWS_DEFAULT_REGION" in caught.value.hint


@pytest.mark.parametrize("value", ["a/b", "evil.com/#", "a@b", "..", ".", ":1", "a b", "a?b", "ä"])
def test_a_variable_cannot_change_the_host(value: str) -> None:
    env = {"CLOUDFLARE_ACCOUNT_ID": value, "AWS_REGION": value}
    env |= {"CLOUDFLARE_API_TOKEN": "k", "AWS_BEARER_TOKEN_BEDROCK": "k"}
    for spec in ("cloudflare/m", "bedrock/m"):
        with pytest.raises(ConfigError, match="may hold only"):
            resolve(spec, env=env)


@given(st.from_regex(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*", fullmatch=True))
@settings(max_examples=100, derandomize=True)
def test_every_allowed_value_stays_in_its_place(value: str) -> None:
    env = {"AWS_REGION": value, "AWS_BEARER_TOKEN_BEDROCK": "k"}
    try:
        url = resolve("bedrock/m", env=env).base_url
    except LightgateError:
        return
    assert url == f"https://bedrock-runtime.{value}.amazonaws.com/openai/v1"


CONFIG = """
[providers.groq]
api_key = "env:OTHER"
[providers.lab]
base_url = "http://127.0.0.1:9001/v1"
api_key = "none"
hourly_cost = 2.69
abort_stops_billing = true
[providers.nowhere]
api_key = "none"
[prices."openai/my-model"]
input = 1.5
output = 6
as_of = 2026-01-02
"""


def test_the_configuration_names_key_cost_and_abort_policy() -> None:
    config = parse_config(CONFIG)
    assert resolve("groq/m", env={"OTHER": "o"}, config=config).headers()[-1][1] == "Bearer o"
    with pytest.raises(CredentialsError, match="OTHER"):
        resolve("groq/m", env={"GROQ_API_KEY": "k"}, config=config)
    lab = resolve("lab/s1", env={}, config=config)
    assert lab.hourly_cost == Decimal("2.69")
    assert lab.provider.abort.stops_billing is True
    assert lab.api_key is None


def test_a_flag_comes_before_the_file() -> None:
    config = parse_config(CONFIG)
    env = {"OTHER": "o", "FLAG": "f"}
    target = resolve("groq/m", env=env, config=config, key_env="FLAG")
    assert target.headers()[-1][1] == "Bearer f"


def test_an_own_provider_needs_a_base_url() -> None:
    with pytest.raises(ConfigError, match="base_url"):
        resolve("nowhere/m", env={}, config=parse_config(CONFIG))


def test_own_prices_reach_the_cost() -> None:
    target = resolve("openai/my-model", env={"OPENAI_API_KEY": "k"}, config=parse_config(CONFIG))
    cost = target.cost(Usage(tokens_in=1_000_000, tokens_out=500_000), AT)
    assert (cost.cost_usd, cost.cost_source) == (Decimal("4.5"), "override")
    assert cost.price_as_of == "2026-01-02"


def test_paid_by_the_hour_has_no_price_per_request() -> None:
    target = resolve("lab/s1", env={}, config=parse_config(CONFIG))
    cost = target.cost(Usage(tokens_in=10, tokens_out=10), AT)
    assert (cost.cost_usd, cost.cost_source) == (None, "hourly")


def test_a_batch_costs_its_own_price_or_the_discount_of_its_provider() -> None:
    openai = resolve("openai/gpt-4o", env={"OPENAI_API_KEY": "k"})
    used = Usage(tokens_in=1_000_000, tokens_out=1_000_000)
    whole, batch = openai.cost(used, AT).cost_usd, openai.cost(used, AT, batch=True).cost_usd
    assert whole is not None
    assert batch == whole / 2
    groq = resolve("groq/llama-3.3-70b-versatile", env={"GROQ_API_KEY": "k"})
    offer = groq.provider.batch
    assert offer is not None
    assert offer.discount is not None
    rates = rates_of("groq", groq.model, AT)
    assert rates is not None
    assert rates.input is not None
    sent = Usage(tokens_in=1_000_000, tokens_out=0)
    assert groq.cost(sent, AT, batch=True).cost_usd == rates.input * offer.discount.input
    bare = resolve("vllm/m", env={})
    assert bare.provider.batch is None
    assert bare.cost(sent, AT, batch=True).cost_usd is None


def test_key_variable_tells_who_is_ready() -> None:
    config = parse_config(CONFIG)
    rows = catalogue()
    assert key_variable(rows["openai"], None, {}) == ("OPENAI_API_KEY", False)
    assert key_variable(rows["gemini"], None, {"GOOGLE_API_KEY": "k"}) == ("GOOGLE_API_KEY", True)
    assert key_variable(rows["ollama"], None, {}) == (None, True)
    assert key_variable(rows["groq"], config, {"GROQ_API_KEY": "k"}) == ("OTHER", False)
    assert key_variable(provider_named("lab", config), config, {}) == (None, True)


def test_a_secret_does_not_show_itself() -> None:
    secret = Secret("sk-very-secret")
    shown = f"{secret} {secret!r} {secret!s} {secret:>20} {[secret]} {{'k': {secret}}}"
    assert "very" not in shown
    target = resolve("openai/o", env={"OPENAI_API_KEY": "sk-very-secret"})
    assert "very" not in repr(target)
    assert secret.reveal() == "sk-very-secret"


def test_a_secret_is_compared_but_never_serialised() -> None:
    assert Secret("a") == Secret(" a ")
    assert Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert len({Secret("a"), Secret("a")}) == 1
    with pytest.raises(TypeError):
        pickle.dumps(Secret("a"))
    with pytest.raises(TypeError):
        copy.deepcopy(Secret("a"))


@pytest.mark.parametrize("text", ["", "   ", "a\r\nx-evil: 1", "a b", "schlüssel", "a\x00b"])
def test_a_key_that_no_header_can_carry_is_refused(text: str) -> None:
    with pytest.raises(CredentialsError) as caught:
        Secret(text, origin="The key in X")
    assert text.strip() == "" or text not in caught.value.message


@pytest.mark.parametrize(
    ("spec", "env", "url"),
    [
        ("openai/o", {"OPENAI_BASE_URL": "https://proxy/v1/"}, "https://proxy/v1"),
        ("anthropic/c", {"ANTHROPIC_BASE_URL": "https://proxy"}, "https://proxy/v1"),
        ("anthropic/c", {"ANTHROPIC_BASE_URL": "https://proxy/v1"}, "https://proxy/v1"),
        ("gemini/g", {"GOOGLE_GEMINI_BASE_URL": "https://proxy"}, "https://proxy/v1beta"),
        ("groq/l", {"GROQ_BASE_URL": "https://proxy"}, "https://proxy/openai/v1"),
        ("groq/l", {"OPENAI_BASE_URL": "https://proxy"}, "https://api.groq.com/openai/v1"),
        ("openai/o", {"OPENAI_BASE_URL": " "}, "https://api.openai.com/v1"),
    ],
)
def test_the_variable_of_the_official_sdk_names_the_base_url(
    spec: str, env: dict[str, str], url: str
) -> None:
    keys = {name: "k" for row in catalogue().values() for name in row.key_env}
    assert resolve(spec, env=keys | env).base_url == url


def test_a_base_url_of_the_file_stands_above_the_sdks_variable() -> None:
    config = parse_config('[providers.openai]\nbase_url = "https://file/v1"')
    env = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "https://variable/v1"}
    assert resolve("openai/o", env=env, config=config).base_url == "https://file/v1"


def test_a_variable_that_is_no_base_url_is_named() -> None:
    env = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "ftp://x"}
    with pytest.raises(ConfigError, match="OPENAI_BASE_URL is no base URL"):
        resolve("openai/o", env=env)


def test_a_bare_name_is_answered_with_the_target_of_its_maker() -> None:
    with pytest.raises(UsageError) as caught:
        resolve("gpt-4o", env={})
    assert caught.value.hint.startswith("Did you mean openai/gpt-4o?")


OWN_PRICES = """
[prices."groq/mine"]
input = 1
output = 2
cached = 0.25
cache_write = 3
batch_input = 0.5
batch_output = 1.5
characters = 4
audio_hour = 5
calls = { web_search = 6 }
tiers = { flex = { input = 0.1, output = 0.2, cached = 0.3, cache_write = 0.4 } }
as_of = 2026-02-03
[providers.lab]
base_url = "http://127.0.0.1:9/v1"
"""


def test_the_prices_of_a_target_are_the_users_own_or_those_of_the_list() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    config = parse_config(OWN_PRICES)
    own = rates_at("groq/mine", config, at)
    flex = TierRates(
        input=Decimal("0.1"),
        output=Decimal("0.2"),
        cached=Decimal("0.3"),
        cache_write=Decimal("0.4"),
    )
    assert own == Rates(
        input=Decimal(1),
        output=Decimal(2),
        cached=Decimal("0.25"),
        cache_write=Decimal(3),
        batch_input=Decimal("0.5"),
        batch_output=Decimal("1.5"),
        batch_source="override",
        characters=Decimal(4),
        audio_hour=Decimal(5),
        calls={"web_search": Decimal(6)},
        tiers={"flex": flex},
        source="override",
        as_of="2026-02-03",
    )
    listed = rates_of("openai", "gpt-4o", at)
    assert listed is not None
    assert rates_at("openai/gpt-4o", None, at) == rates_at("openai/gpt-4o", config, at) == listed
    for target in ("openai/no-such-model", "nobody/gpt-4o", "lab/gpt-4o", "groq/mine"):
        assert rates_at(target, None if target == "groq/mine" else config, at) is None
    assert rates_at("lab/gpt-4o", None, at) is None


def test_every_price_of_a_file_is_taken_over() -> None:
    text = """
    [prices."lab/m"]
    input = 1
    output = 2
    cached = 3
    cache_write = 4
    batch_input = 5
    batch_output = 6
    characters = 7
    audio_hour = 8
    input_audio = 9
    output_audio = 10
    output_image = 11
    calls = { search = 12, request = 13 }
    as_of = 2026-11-01
    [prices."lab/m".tiers.fast]
    input = 14
    output = 15
    cached = 16
    cache_write = 17
    [prices."lab/plain"]
    input = 1
    output = 2
    """
    config = parse_config(text)
    fast = TierRates(
        input=Decimal(14), output=Decimal(15), cached=Decimal(16), cache_write=Decimal(17)
    )
    assert rates_at("lab/m", config, AT) == Rates(
        input=Decimal(1), output=Decimal(2), cached=Decimal(3), cache_write=Decimal(4),
        batch_input=Decimal(5), batch_output=Decimal(6), batch_source="override",
        characters=Decimal(7), audio_hour=Decimal(8), input_audio=Decimal(9),
        output_audio=Decimal(10), output_image=Decimal(11),
        calls={"search": Decimal(12), "request": Decimal(13)}, tiers={"fast": fast},
        source="override", as_of="2026-11-01",
    )  # fmt: skip
    plain = Rates(input=Decimal(1), output=Decimal(2), source="override")
    assert rates_at("lab/plain", config, AT) == plain
