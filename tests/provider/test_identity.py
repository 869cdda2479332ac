"""Names of one model at several providers: by data, nothing by guess."""

from __future__ import annotations

import pytest

from lightgate.provider.catalogue import catalogue
from lightgate.provider.identity import identity, plain_name, read_same_models, same_models

FIREWORKS = catalogue()["fireworks"].model_prefix


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("meta-llama/Llama-3.3-70B-Instruct", "llama-3.3-70b-versatile"),
        ("meta-llama/Llama-3.3-70B-Instruct", "llama-3.3-70b"),
        ("meta-llama/llama-3.3-70b-instruct", "@cf/meta/llama-3.3-70b-instruct"),
        ("openai/gpt-oss-120b", "gpt-oss-120b"),
        ("anthropic/claude-sonnet-4.5", "claude-sonnet-4-5"),
        ("Qwen/Qwen3-32B", "qwen-3-32b"),
    ],
)
def test_the_same_model(one: str, other: str) -> None:
    assert identity(one) == identity(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("acme/Llama-3.3-70B-Instruct", "meta-llama/Llama-3.3-70B-Instruct"),
        ("gpt-4o", "gpt-4o-2024-08-06"),
        ("gpt-4o-2024-08-06", "gpt-4o-2024-11-20"),
        ("@cf/meta/llama-3.3-70b-instruct-fp8-fast", "llama-3.3-70b-instruct"),
        ("llama-3.1-8b-instruct", "llama-3.1-70b-instruct"),
        ("deepseek/deepseek-r1:free", "deepseek/deepseek-r1"),
        ("gpt-4.1", "gpt-41"),
    ],
)
def test_another_model(one: str, other: str) -> None:
    assert identity(one) != identity(other)


PUBLISHED = """
amazon/nova-pro anthropic/claude-haiku cohere/command-a CohereLabs/command-a deepseek/deepseek-v3
deepseek-ai/DeepSeek-V3 google/gemma-3 meta/llama-4 meta-llama/Llama-4 microsoft/phi-4
minimax/minimax-m2 MiniMaxAI/MiniMax-M2 mistral/mistral-small mistralai/Mistral-Small
moonshotai/Kimi-K2 nvidia/nemotron openai/gpt-oss perplexity/sonar Qwen/Qwen3 x-ai/grok-4 xai/grok-4
z-ai/glm-5 zai/glm-5 zai-org/GLM-5 @cf/meta/llama-4 @cf/openai/gpt-oss
"""


@pytest.mark.parametrize("name", PUBLISHED.split())
def test_a_publisher_before_a_name_is_no_part_of_it(name: str) -> None:
    assert plain_name(name) == name.rpartition("/")[2].lower()
    assert plain_name(f"acme-{name}") == f"acme-{name}".lower()
    assert plain_name(f"hub/{name}") == f"hub/{name}".lower()  # only a publisher alone is dropped


def test_a_dot_counts_as_a_dash_between_digits_alone() -> None:
    assert plain_name("V3.1.2-a.b.4-x.") == "v3-1-2-a.b.4-x."


def test_a_providers_prefix_is_no_part_of_a_name() -> None:
    assert identity(f"{FIREWORKS}llama-v3p3-70b-instruct", FIREWORKS) == "llama-3-3-70b-instruct"


def test_the_title_of_a_row_is_plain_and_no_spelling_is_in_two_rows() -> None:
    for plain, title in same_models().items():
        assert plain_name(plain) == plain
        assert plain_name(title) == title
    with pytest.raises(ValueError, match="in two rows"):
        read_same_models('[a]\nalso = ["x"]\n[b]\nalso = ["X"]')
