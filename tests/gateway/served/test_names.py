"""Bare model names: whose model is meant, and what is said where none or several are."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec
import pytest

from lightgate.config.load import parse_config
from lightgate.console.labels import LabelNames
from lightgate.errors import ConfigError
from lightgate.gateway.served.asked import ModelUnknown
from lightgate.gateway.served.example import example_name
from lightgate.gateway.served.names import offers_of
from lightgate.gateway.served.resolve import make_snapshot
from lightgate.gateway.served.served import Served
from lightgate.provider.catalogue import catalogue
from lightgate.provider.model_list import ModelList, OfferedModel

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

AT = datetime(2026, 11, 15, tzinfo=UTC)


def served(*keys: str, config: str = "", lists: Mapping[str, ModelList] | None = None) -> Served:
    env = dict.fromkeys(keys, "sk-test")
    return Served(make_snapshot(parse_config(config), (), env, lists=lists), env)


def listed(provider: str, *models: str, problem: str = "", fetched: bool = True) -> ModelList:
    return ModelList(
        base_url=catalogue()[provider].base_url,
        tried_ns=1,
        fetched_ns=1 if fetched else None,
        models=tuple(OfferedModel(model) for model in models),
        problem=problem,
    )


def refused(gateway: Served, model: str) -> str:
    with pytest.raises(ModelUnknown) as caught:
        gateway.alias(model)
    assert caught.value.status == 404
    return f"{caught.value.message} {caught.value.hint}"


@pytest.mark.parametrize(
    ("key", "model", "target"),
    [
        ("OPENAI_API_KEY", "gpt-4o", "openai/gpt-4o"),
        ("ANTHROPIC_API_KEY", "claude-sonnet-4-5", "anthropic/claude-sonnet-4-5"),
        ("GEMINI_API_KEY", "gemini-2.5-flash", "gemini/gemini-2.5-flash"),
        ("GROQ_API_KEY", "llama-3.3-70b-versatile", "groq/llama-3.3-70b-versatile"),
        ("GROQ_API_KEY", "openai/gpt-oss-120b", "groq/openai/gpt-oss-120b"),
        ("OPENROUTER_API_KEY", "gpt-4o", "openrouter/openai/gpt-4o"),
        ("OPENROUTER_API_KEY", "claude-sonnet-4-5", "openrouter/anthropic/claude-sonnet-4.5"),
        ("FIREWORKS_API_KEY", "glm-5p1", "fireworks/accounts/fireworks/models/glm-5p1"),
        ("CEREBRAS_API_KEY", "llama-3.3-70b-versatile", "cerebras/llama-3.3-70b"),
    ],
)
def test_one_key_and_the_models_own_name_are_enough(key: str, model: str, target: str) -> None:
    assert served(key).alias(model).targets == (target,)


def test_the_maker_comes_before_others_that_have_the_model() -> None:
    gateway = served("OPENAI_API_KEY", "OPENROUTER_API_KEY", "AZURE_OPENAI_API_KEY")
    assert gateway.alias("gpt-4o").targets == ("openai/gpt-4o",)


def test_one_target_is_asked_in_order_and_several_are_chosen_from() -> None:
    keys = ("GROQ_API_KEY", "CEREBRAS_API_KEY")
    several = served(*keys, config="[gateway]\nauto = true\n").alias("llama-3.3-70b")
    assert len(several.targets) == 2
    assert (served("OPENAI_API_KEY").alias("gpt-4o").policy, several.policy) == ("ordered", "chat")


def test_a_providers_exact_name_comes_before_the_same_model_under_another() -> None:
    gateway = served("GROQ_API_KEY", "CEREBRAS_API_KEY")
    assert gateway.alias("llama-3.3-70b-versatile").targets == ("groq/llama-3.3-70b-versatile",)
    assert gateway.alias("llama-3.3-70b").targets == ("cerebras/llama-3.3-70b",)


def test_a_name_that_two_providers_have_is_ambiguous() -> None:
    said = refused(served("GROQ_API_KEY", "CEREBRAS_API_KEY"), "gpt-oss-120b")
    assert "ambiguous: cerebras and groq have it" in said
    assert "cerebras/gpt-oss-120b" in said
    assert "groq/openai/gpt-oss-120b" in said
    assert "auto = true" in said


def test_auto_makes_an_alias_of_every_keyed_provider_of_the_model() -> None:
    keys = ("GROQ_API_KEY", "CEREBRAS_API_KEY", "TOGETHER_API_KEY")
    gateway = served(
        *keys,
        config="[gateway]\nauto = true",
        lists={"together": listed("together", "meta-llama/Llama-3.3-70B-Instruct-Turbo")},
    )
    for spelling in ("llama-3.3-70b-versatile", "meta-llama/Llama-3.3-70B-Instruct"):
        alias = gateway.alias(spelling)
        assert set(alias.targets) == {
            "groq/llama-3.3-70b-versatile",
            "cerebras/llama-3.3-70b",
            "together/meta-llama/Llama-3.3-70B-Instruct-Turbo",
        }
        assert (alias.policy, alias.hedge) == ("chat", "auto")


def test_auto_puts_no_other_model_beside_one() -> None:
    """A quantised, a dated and a foreign model of like names are models of their own."""
    gateway = served(
        "OPENAI_API_KEY",
        "TOGETHER_API_KEY",
        config="[gateway]\nauto = true",
        lists={
            "openai": listed("openai", "gpt-4o", "gpt-4o-2024-08-06"),
            "together": listed(
                "together", "acme/gpt-4o", "openai/gpt-4o-fp8", "openai/gpt-4o-2024-11-20"
            ),
        },
    )
    assert gateway.alias("gpt-4o").targets == ("openai/gpt-4o",)
    assert gateway.alias("gpt-4o-2024-08-06").targets == ("openai/gpt-4o-2024-08-06",)


def test_an_alias_of_the_configuration_wins_over_a_bare_name() -> None:
    config = '[models.gpt-4o]\ntargets = ["groq/llama-3.3-70b-versatile"]'
    gateway = served("OPENAI_API_KEY", "GROQ_API_KEY", config=config)
    assert gateway.alias("gpt-4o").targets == ("groq/llama-3.3-70b-versatile",)


def test_a_target_under_its_own_name_is_passed_on_whatever_the_lists_say() -> None:
    gateway = served("OPENAI_API_KEY", lists={"openai": listed("openai", "gpt-4o")})
    assert gateway.alias("openai/gpt-99").targets == ("openai/gpt-99",)


def test_a_providers_own_list_brings_new_models_and_fine_tunes() -> None:
    fine = "ft:gpt-4o:acme::abc"
    lists = {"openai": listed("openai", "gpt-4o", "gpt-7", fine)}
    gateway = served("OPENAI_API_KEY", lists=lists)
    assert gateway.alias("gpt-7").targets == ("openai/gpt-7",)
    assert gateway.alias(fine).targets == (f"openai/{fine}",)
    assert "Did you mean 'gpt-4o'" in refused(gateway, "gpt-4oo")


def test_a_dated_name_is_a_variant_of_a_listed_one() -> None:
    lists = {"anthropic": listed("anthropic", "claude-sonnet-4-5-20250929")}
    gateway = served("ANTHROPIC_API_KEY", lists=lists)
    assert gateway.alias("claude-sonnet-4-5").targets == ("anthropic/claude-sonnet-4-5",)
    assert gateway.alias("claude-sonnet-4-5-20250929").targets[0].endswith("-20250929")
    assert gateway.alias("claude-sonnet-4-5@1").targets == ("anthropic/claude-sonnet-4-5@1",)


def test_without_a_list_the_makers_pattern_decides() -> None:
    assert served("OPENAI_API_KEY").alias("gpt-99").targets == ("openai/gpt-99",)
    assert "not served here" in refused(served("OPENAI_API_KEY"), "zzz")


def test_a_missing_key_is_named() -> None:
    said = refused(served("GROQ_API_KEY"), "claude-sonnet-4-5")
    assert "made by Anthropic" in said
    assert "Set ANTHROPIC_API_KEY" in said
    assert "no provider has a key" in refused(served(), "gpt-4o")


def test_a_list_that_could_not_be_fetched_is_named_with_what_to_do() -> None:
    lists = {"groq": listed("groq", problem="it refused the key with 401", fetched=False)}
    said = refused(served("GROQ_API_KEY", lists=lists), "new-llama")
    assert "The list of models of Groq could not be fetched (it refused the key with 401)" in said
    assert "groq/MODEL" in said


def test_a_list_of_another_address_is_not_believed() -> None:
    other = ModelList(
        base_url="https://elsewhere/v1", tried_ns=1, fetched_ns=1, models=(OfferedModel("gpt-8"),)
    )
    snapshot = served("OPENAI_API_KEY", lists={"openai": other}).snapshot
    assert "gpt-8" not in snapshot.names


def test_a_name_without_a_provider_that_has_it_is_wanted_in_the_lists() -> None:
    gateway = served("OPENAI_API_KEY")
    assert not gateway.names.missed
    refused(gateway, "zzz")
    assert gateway.names.missed


def test_googles_price_list_names_models_that_ai_studio_does_not_have() -> None:
    assert "claude-sonnet-4-5" not in offers_of(catalogue()["gemini"], None, (), AT).models
    assert "made by Anthropic" in refused(served("GEMINI_API_KEY"), "claude-sonnet-4-5")


def test_dated_names_of_a_list_have_the_price_of_their_model() -> None:
    own = listed("openai", "gpt-4o-2024-08-06")
    offers = offers_of(catalogue()["openai"], own, (), AT)
    assert offers.prices["gpt-4o-2024-08-06"] == offers.prices["gpt-4o"]
    assert offers.models["gpt-4o-2024-08-06"].context_window == 128_000
    assert list(offers.models) == ["gpt-4o-2024-08-06", "gpt-4o"]


def test_unknown_names_do_not_pile_up() -> None:
    gateway = served("OPENAI_API_KEY")
    for number in range(2500):
        gateway.alias(f"gpt-{number}")
    assert len(gateway.targets) <= 1000


@pytest.mark.parametrize(
    ("keys", "lists", "name"),
    [
        (("OPENAI_API_KEY",), {}, "gpt-4o-mini"),
        (("ANTHROPIC_API_KEY",), {}, "claude-haiku-4-5"),
        (("GEMINI_API_KEY",), {}, "gemini-2.5-flash"),
        (("GROQ_API_KEY",), {}, "llama-3.3-70b-versatile"),
        (("FIREWORKS_API_KEY",), {}, "gpt-oss-20b"),
        (("OPENROUTER_API_KEY",), {}, "openai/gpt-4o-mini"),
        (("DEEPINFRA_API_KEY",), {}, None),
        (
            ("OPENAI_API_KEY",),
            {"openai": listed("openai", "whisper-1", "gpt-4-turbo", "gpt-3.5-turbo")},
            "gpt-3.5-turbo",
        ),
        (
            ("DEEPINFRA_API_KEY",),
            {"deepinfra": listed("deepinfra", "BAAI/bge-embed", "acme/chat")},
            "acme/chat",
        ),
    ],
)
def test_the_example_is_a_model_that_exists(
    keys: tuple[str, ...], lists: dict[str, ModelList], name: str | None
) -> None:
    gateway = served(*keys, lists=lists)
    assert example_name(gateway.snapshot) == name
    if name is not None:
        assert gateway.alias(name).targets


def test_every_example_of_the_catalogue_can_be_asked_for() -> None:
    for row in catalogue().values():
        if row.example and not row.variables:
            gateway = served(row.key_env[0])
            name = example_name(gateway.snapshot)
            assert name is not None
            assert gateway.alias(name).targets == (f"{row.name}/{row.model_prefix}{row.example}",)


def test_known_bare_names_are_labels_of_metrics_and_made_up_ones_are_not(tmp_path: Path) -> None:
    snapshot = served("OPENAI_API_KEY", lists={"openai": listed("openai", "ft:gpt-4o:me")}).snapshot
    known = LabelNames(tmp_path)
    known.use(snapshot)
    assert known.model("ft:gpt-4o:me") == "ft:gpt-4o:me"
    assert known.target("openai/ft:gpt-4o:me") == ("openai", "ft:gpt-4o:me")
    assert known.model("gpt-4o-made-up") == "other"


def test_prices_of_models_have_the_catalogues_prices_of_calls() -> None:
    own = '[prices."openai/mine"]\ninput = 1\noutput = 2\n'
    reach = served("OPENAI_API_KEY", config=own).snapshot.providers["openai"]
    calls = catalogue()["openai"].calls
    assert calls
    for model in ("gpt-4o-mini", "mine"):
        assert reach.prices[model].calls.items() >= calls.items()


def test_an_example_whose_short_name_means_others_too_is_shown_with_its_provider() -> None:
    both = served("GROQ_API_KEY", "CEREBRAS_API_KEY").snapshot
    groq = both.providers["groq"]
    name = f"{groq.provider.model_prefix}{groq.provider.example}"
    other = msgspec.structs.replace(
        both, providers={"groq": groq}, names={name: (f"groq/{name}", f"cerebras/{name}")}
    )
    assert example_name(other) == f"groq/{name}"
    assert example_name(msgspec.structs.replace(other, auto=True)) == name
    assert example_name(msgspec.structs.replace(other, providers={})) is None


def test_a_target_of_an_unknown_provider_is_a_wrong_snapshot() -> None:
    with pytest.raises(ConfigError, match="does not know the provider of nobody/m"):
        served("OPENAI_API_KEY")._make("nobody/m")
