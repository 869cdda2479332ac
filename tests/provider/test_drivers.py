from __future__ import annotations

import pytest

from lightgate.provider.catalogue import Provider, catalogue
from lightgate.provider.drivers import drivers

PLAIN = Provider(name="x", title="X", base_url="http://127.0.0.1:1/v1")


@pytest.mark.parametrize(
    ("model", "size", "form"),
    [
        ("meta-llama/Llama-3.3-70B-Instruct", "70B", None),
        ("llama-3.3-70b-versatile", "70B", None),
        ("mixtral-8x7b-32768", "8x7B", None),
        ("qwen2.5-0.5b-instruct-q4_k_m", "0.5B", "q4_k_m"),
        ("Meta-Llama-3.1-8B-Instruct-FP8", "8B", "fp8"),
        ("gpt-4o-mini", None, None),
        ("gemma3b2", None, None),
        ("model-awq", None, "awq"),
    ],
)
def test_size_and_quantisation_are_read_from_the_name(
    model: str, size: str | None, form: str | None
) -> None:
    found = drivers(PLAIN, model)
    assert found.get("size") == size
    assert found.get("quantisation") == form
    assert found["operator"] == "X"


def test_hardware_is_what_the_catalogue_says() -> None:
    assert drivers(catalogue()["groq"], "m")["hardware"] == "LPU"
    assert drivers(catalogue()["cerebras"], "m")["hardware"] == "wafer-scale"
    assert "hardware" not in drivers(catalogue()["openai"], "m")
    assert "operator" not in drivers(catalogue()["vllm"], "m")
