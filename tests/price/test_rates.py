from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from lightgate.clock.tokens import Usage
from lightgate.price.cost import PriceTerms, price_of
from lightgate.price.rates import list_as_of, models_of, rates_of

AT = datetime(2026, 11, 15, tzinfo=UTC)
MILLION = Usage(tokens_in=1_000_000, tokens_out=1_000_000)


def test_list_price_of_a_known_model() -> None:
    rates = rates_of("groq", "llama-3.3-70b-versatile", AT)
    assert rates is not None
    assert (rates.input, rates.output) == (Decimal("0.59"), Decimal("0.79"))
    assert rates.cached is None
    assert rates.source == "list"
    cost = price_of("groq", "llama-3.3-70b-versatile", MILLION, AT)
    assert cost.cost_usd == Decimal("1.38")
    assert cost.cost_source == "list"
    assert cost.price_as_of == rates.as_of


def test_cached_tokens_are_cheaper_where_the_list_says_so() -> None:
    rates = rates_of("openai", "gpt-4o", AT)
    assert rates is not None
    assert rates.cached is not None
    assert rates.input is not None
    assert rates.cached < rates.input
    usage = Usage(tokens_in=1_000_000, tokens_out=0, tokens_cached=1_000_000)
    assert price_of("openai", "gpt-4o", usage, AT).cost_usd == rates.cached


def test_a_batch_is_cheaper_where_the_list_says_so() -> None:
    rates = rates_of("openai", "gpt-4o", AT)
    assert rates is not None
    assert rates.batch_input is not None
    assert rates.batch_output is not None
    batch = price_of("openai", "gpt-4o", MILLION, AT, terms=PriceTerms(batch=True))
    assert batch.cost_usd == rates.batch_input + rates.batch_output
    standard = price_of("openai", "gpt-4o", MILLION, AT)
    assert standard.cost_usd is not None
    assert batch.cost_usd < standard.cost_usd


def test_a_batch_without_a_listed_price_is_unknown() -> None:
    cost = price_of("groq", "gemma2-9b-it", MILLION, AT, terms=PriceTerms(batch=True))
    assert cost.cost_usd is None
    assert cost.cost_source is None


@pytest.mark.parametrize(("provider", "model"), [("groq", "no-such"), ("no-such", "gpt-4o")])
def test_what_the_list_lacks_is_unknown(provider: str, model: str) -> None:
    assert rates_of(provider, model, AT) is None
    assert price_of(provider, model, MILLION, AT).cost_usd is None


def test_missing_counts_are_unknown_not_free() -> None:
    assert price_of("openai", "gpt-4o", Usage(tokens_in=5), AT).cost_usd is None
    contradiction = Usage(tokens_in=5, tokens_out=1, tokens_cached=6)
    assert price_of("openai", "gpt-4o", contradiction, AT).cost_usd is None


def test_an_embedding_needs_no_answer_tokens() -> None:
    cost = price_of("openai", "text-embedding-3-small", Usage(tokens_in=1_000_000), AT)
    assert cost.cost_usd == Decimal("0.02")


def test_every_listed_model_of_a_provider() -> None:
    listed = models_of("anthropic", AT)
    assert len(listed) > 5
    assert all(model.id for model in listed)
    assert models_of("no-such", AT) == ()


def test_the_list_is_dated_and_never_in_the_future() -> None:
    assert (list_as_of(AT) or "") <= "2026-11-15"
    assert (list_as_of(AT) or "") > "2026-01-01"
    assert list_as_of(datetime(2001, 1, 1, tzinfo=UTC)) is None


def test_the_price_list_is_not_imported_until_it_is_asked() -> None:
    code = (
        "import sys; import lightgate.provider.target, lightgate.price.rates, lightgate.cli.main;"
        "print([m for m in ('genai_prices', 'pydantic', 'rich') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
