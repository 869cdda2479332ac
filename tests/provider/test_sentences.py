"""Sentences about a wrong or a missing setting of a provider, to the last word."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from lightgate.config.load import parse_config
from lightgate.config.notation import MODEL_PLACE
from lightgate.errors import ConfigError, CredentialsError, UsageError
from lightgate.provider.batch.registry import job_api
from lightgate.provider.catalogue import (
    did_you_mean,
    own_provider,
    provider_named,
    read_catalogue,
    references,
    table_problems,
)
from lightgate.provider.target import base_url_of, resolve, sdk_base_url, url_alone


def problems(name: str, table: str) -> list[tuple[str, str]]:
    """What is wrong with a table, each place as a path."""
    head, _, rest = table.partition("[")
    more = f"[providers.{name}.{rest}" if rest else ""
    config = parse_config(f"[providers.{name}]\n{head}\n{more}")
    found = table_problems(name, config.providers[name])
    return [(".".join(place), said) for place, said in found]


@pytest.mark.parametrize(
    ("name", "table", "place", "said"),
    [
        ("groq", 'like = "openai"', "like",
         "'groq' is in the catalogue itself; take another name for it"),
        ("lab", 'like = "gorq"', "like",
         "'gorq' is not a provider of the catalogue. Did you mean groq?"),
        ("lab", 'like = "qqqqqq"', "like", "'qqqqqq' is not a provider of the catalogue"),
        ("lab", 'base_url = "http://x"\n[quirks]\nqqqqqq = true', "quirks.qqqqqq",
         "there is no such quirk"),
        ("lab", 'base_url = "http://x"\n[quirks]\nstream_usag = true', "quirks.stream_usag",
         "there is no such quirk. Did you mean stream_usage?"),
        ("lab", 'base_url = "http://x"\n[quirks]\nstream_usage = "x"', "quirks.stream_usage",
         "expected bool, got str"),
        ("lab", 'base_url = "http://x"\n[variables]\nQQQQ = "x"', "variables.QQQQ",
         "nothing is read from it"),
        ("lab", 'like = "openai"\nauth = "sigv4"\n[variables]\nAWS_REGIO = "x"',
         "variables.AWS_REGIO", "nothing is read from it. Did you mean AWS_REGION?"),
        ("lab", 'base_url = "http://x"\n[headers]\nAuthorization = "env:X"', "headers",
         'the key travels in authorization; auth = "none" leaves that header to you'),
        ("lab", 'base_url = "http://x"\ndialect = "anthropic"\n[headers]\nX-Api-Key = "env:X"',
         "headers", 'the key travels in x-api-key; auth = "none" leaves that header to you'),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_table_is_said_at_its_place(
    name: str, table: str, place: str, said: str
) -> None:
    assert problems(name, table) == [(place, said)]


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("lab", 'like = "groq"'),
        ("lab", 'base_url = "http://x"\n[quirks]\nstream_usage = true'),
        ("lab", 'base_url = "http://x"\napi_key = "none"\n[headers]\nAuthorization = "env:X"'),
        ("lab", 'like = "openai"\nauth = "sigv4"\n[variables]\nAWS_REGION = "x"'),
        ("groq", '[headers]\nx-api-key = "env:X"'),
    ],
)
def test_a_table_that_can_be_laid_over_has_no_problem(name: str, table: str) -> None:
    assert problems(name, table) == []


def test_the_first_problem_of_a_table_is_an_error_that_names_its_place() -> None:
    config = parse_config('[providers.lab]\nlike = "gorq"')
    with pytest.raises(ConfigError) as caught:
        provider_named("lab", config)
    assert caught.value.message.startswith("[providers.lab] like: 'gorq' is not a provider")
    config = parse_config('[providers.lab]\nbase_url = "http://x"\n[providers.lab.quirks]\nx = 1')
    with pytest.raises(ConfigError) as caught:
        provider_named("lab", config)
    assert caught.value.message == "[providers.lab] quirks.x: there is no such quirk."


def test_at_most_two_near_names_are_guessed_and_none_that_is_far() -> None:
    known = ["alpha", "alphb", "alphc", "omega"]
    assert did_you_mean("ALPHA", known) == "Did you mean alpha or alphc?"
    assert did_you_mean("omeg", known) == "Did you mean omega?"
    assert did_you_mean("zzz", known) == ""


def test_a_row_with_unknown_quirks_names_all_of_them() -> None:
    row = '[x]\ntitle = "X"\nbase_url = "https://x"\nquirks = { b = 1, a = 2 }'
    with pytest.raises(ValueError, match=r"^\[x\.quirks\] has unknown keys: a, b$"):
        read_catalogue(row)


def test_headers_of_a_table_stand_over_those_of_its_dialect_whatever_their_case() -> None:
    config = parse_config(
        '[providers.lab]\nbase_url = "http://x"\ndialect = "anthropic"\nauth = "none"\n'
        '[providers.lab.headers]\nAnthropic-Version = "new"\nx-more = "env:MORE"\n'
        '[providers.lab.query]\nv = "1"\n'
    )
    found = provider_named("lab", config)
    assert found.headers == (("Anthropic-Version", "new"), ("x-more", "env:MORE"))
    assert found.query == (("v", "1"),)
    assert found.auth == "none"
    assert references(found) == ("MORE",)
    added = parse_config(
        '[providers.lab]\nbase_url = "http://x"\ndialect = "anthropic"\n'
        '[providers.lab.headers]\nx-more = "1"\n'
    )
    assert provider_named("lab", added).headers == (
        ("anthropic-version", "2023-06-01"),
        ("x-more", "1"),
    )


def test_a_provider_that_is_like_another_has_a_title_and_no_names_of_the_others() -> None:
    config = parse_config('[providers.lab]\nlike = "openai"')
    found, plain = provider_named("lab", config), provider_named("openai")
    assert (found.name, found.title) == ("lab", f"{plain.title} (lab)")
    assert (found.makes, found.base_url_env) == ("", "")
    assert found.base_url == plain.base_url


def test_a_key_that_is_missing_is_named_with_the_others_that_are_read() -> None:
    with pytest.raises(CredentialsError) as caught:
        resolve("groq/m", env={})
    assert caught.value.message == "No API key for Groq: GROQ_API_KEY is not set."
    assert caught.value.hint == "export GROQ_API_KEY=..."
    with pytest.raises(CredentialsError) as caught:
        resolve("gemini/m", env={})
    assert caught.value.hint == "export GEMINI_API_KEY=... (also read: GOOGLE_API_KEY)"


def test_a_base_url_ends_without_its_slashes_and_keeps_its_letters() -> None:
    row = provider_named("anthropic")
    for url, found in (
        ("https://proxy/X", "https://proxy/X/v1"),
        ("https://proxy/v1//", "https://proxy/v1"),
        (" https://proxy/v1 ", "https://proxy/v1"),
    ):
        assert sdk_base_url(row, {"ANTHROPIC_BASE_URL": url}) == found
    with pytest.raises(ConfigError) as caught:
        sdk_base_url(row, {"ANTHROPIC_BASE_URL": "ftp://x"})
    assert caught.value.hint == f"Correct it, or unset it to call {row.base_url}."


def test_a_provider_without_a_base_url_says_where_to_put_one() -> None:
    with pytest.raises(ConfigError) as caught:
        base_url_of(own_provider("qqqqqq", ""), None, {})
    assert caught.value.message == (
        "[providers.qqqqqq] needs a base_url, because 'qqqqqq' is not in the catalogue."
    )
    assert caught.value.hint == 'Add base_url = "https://..." under [providers.qqqqqq].'
    with pytest.raises(ConfigError) as caught:
        base_url_of(own_provider("gorq", ""), None, {})
    assert caught.value.hint == "Did you mean groq?"


def test_a_base_url_that_its_variables_make_wrong_names_them() -> None:
    row = own_provider("lab", "https://h/{A}").__class__(
        name="lab", title="Lab", base_url="{A}://h/v1",
        variables=(SimpleNamespace(name="A", also=(), means="a scheme"),),  # type: ignore[arg-type]
    )  # fmt: skip
    with pytest.raises(ConfigError, match="The base URL of Lab is wrong: ") as caught:
        base_url_of(row, None, {"A": "ftp"})
    assert caught.value.hint == "Check A."


@pytest.mark.parametrize("url", ["HTTP://h/v1#m", "https://h/v1#m"])
def test_a_url_alone_is_a_base_url_and_a_model(url: str) -> None:
    found = url_alone(url)
    assert found is not None
    assert found[1] == "m"
    assert url_alone("groq/m") is None
    assert url_alone("https://h/v1") == ("https://h/v1", "")
    with pytest.raises(UsageError, match="The URL of a target is wrong"):
        url_alone("http://h:0/v1#m")


def test_a_provider_without_a_batch_api_says_what_to_do() -> None:
    target = SimpleNamespace(provider=own_provider("lab", "http://x"))
    with pytest.raises(UsageError, match="lab has no batch API that is known here") as caught:
        job_api(cast("Any", target), cast("Any", None))
    assert "--via parallel" in caught.value.hint


def test_an_own_provider_has_the_endpoints_and_the_headers_of_openais_likes() -> None:
    row = own_provider("lab", "http://x/v1")
    assert (row.name, row.title, row.base_url) == ("lab", "lab", "http://x/v1")
    assert row.kinds == ("chat", "completion", "embedding")
    assert row.passes == ("openai-beta", "idempotency-key", "traceparent", "tracestate")


def test_a_model_in_a_base_url_stays_one_part_of_the_path() -> None:
    config = parse_config(
        f'[providers.lab]\nbase_url = "http://h/{MODEL_PLACE}/v1"\napi_key = "none"'
    )
    found = resolve("lab/a/b?c", env={}, config=config)
    assert found.base_url == "http://h/a%2Fb%3Fc/v1"
    for model in (".", ".."):
        with pytest.raises(UsageError, match="cannot be a model"):
            resolve(f"lab/{model}", env={}, config=config)
