"""Providers of the user's own: auth, headers, query, kinds, quirks, and rows under another name."""

from __future__ import annotations

import msgspec
import pytest

from lightgate.config.load import parse_config
from lightgate.dialect.request import Message, Request
from lightgate.errors import ConfigError, CredentialsError, UsageError
from lightgate.provider.catalogue import catalogue, provider_named
from lightgate.provider.prepare import prepare
from lightgate.provider.target import key_variable, resolve

BASE = '[providers.corp]\nbase_url = "https://llm.corp.example/v1"\n'
ENV = {"CORP_KEY": "corp-secret-1", "TEAM": "Basic dGVhbQ==", "SIG": "s/g+1"}
ASK = Request(model="m", messages=(Message(role="user", content="Hi"),), max_tokens=5)


def payload(text: str, spec: str = "corp/m", env: dict[str, str] = ENV) -> bytes:
    target = resolve(spec, env=env, config=parse_config(text))
    return prepare(target, msgspec.structs.replace(ASK, model=target.model)).payload


@pytest.mark.parametrize(
    ("auth", "wanted"),
    [
        ("bearer", b"\r\nauthorization: Bearer corp-secret-1\r\n"),
        ("header:X-Corp-Key", b"\r\nx-corp-key: corp-secret-1\r\n"),
        ("Ocp-Apim-Subscription-Key", b"\r\nocp-apim-subscription-key: corp-secret-1\r\n"),
        ("header:authorization", b"\r\nauthorization: corp-secret-1\r\n"),
        ("query:api_key", b"POST /v1/chat/completions?api_key=corp-secret-1 HTTP/1.1\r\n"),
    ],
)
def test_the_key_travels_as_the_table_says(auth: str, wanted: bytes) -> None:
    text = f'{BASE}api_key = "env:CORP_KEY"\nauth = "{auth}"\n'
    sent = payload(text)
    assert wanted in sent
    assert sent.count(b"corp-secret-1") == 1


def test_no_auth_sends_no_key() -> None:
    assert b"corp-secret" not in payload(f'{BASE}api_key = "env:CORP_KEY"\nauth = "none"\n')


def test_headers_and_query_stand_in_every_request() -> None:
    text = (
        f'{BASE}api_key = "none"\nheaders = {{ X-Team = "search", X-Auth = "env:TEAM" }}\n'
        'query = { api-version = "2024-10-21", sig = "env:SIG" }\n'
    )
    sent = payload(text)
    assert sent.startswith(
        b"POST /v1/chat/completions?api-version=2024-10-21&sig=s%2Fg%2B1 HTTP/1.1\r\n"
    )
    assert b"\r\nX-Team: search\r\n" in sent
    assert b"\r\nX-Auth: Basic dGVhbQ==\r\n" in sent


def test_a_query_follows_one_that_is_there() -> None:
    text = f'{BASE}dialect = "gemini"\napi_key = "env:CORP_KEY"\nauth = "query:key"\n'
    line = payload(text).partition(b" HTTP")[0]
    assert line == b"POST /v1/models/m:streamGenerateContent?alt=sse&key=corp-secret-1"


def test_a_header_of_the_table_replaces_the_rows() -> None:
    text = '[providers.anthropic]\nheaders = { Anthropic-Version = "2030-01-01" }\n'
    sent = payload(text, "anthropic/m", {"ANTHROPIC_API_KEY": "k"})
    assert sent.lower().count(b"anthropic-version") == 1
    assert b"2030-01-01" in sent


def test_quirks_of_the_table_shape_the_request() -> None:
    text = f"{BASE}[providers.corp.quirks]\nmax_tokens_field = 'max_completion_tokens'\n"
    sent = payload(f"{text}stream_usage = false\n", env={})
    assert b'"max_completion_tokens":5' in sent
    assert b"stream_options" not in sent


def test_a_quirk_can_be_taken_away() -> None:
    text = '[providers.mistral.quirks]\nseed_field = "none"\nstream_usage = true\n'
    found = provider_named("mistral", parse_config(text)).quirks
    assert found.seed_field is None
    assert found.stream_usage
    assert catalogue()["mistral"].quirks.seed_field == "random_seed"


def test_kinds_say_which_endpoints_there_are() -> None:
    config = parse_config(f'{BASE}kinds = ["responses"]\n')
    assert provider_named("corp", config).kinds == ("responses",)
    sent = payload(f'{BASE}kinds = ["responses"]\n', env={})
    assert sent.startswith(b"POST /v1/responses HTTP/1.1\r\n")


def test_the_model_may_stand_in_the_path() -> None:
    text = (
        '[providers.az]\nbase_url = "https://r.openai.azure.com/openai/deployments/{model}"\n'
        'auth = "api-key"\napi_key = "env:CORP_KEY"\nquery = { api-version = "2024-10-21" }\n'
    )
    sent = payload(text, "az/my gpt/4".replace(" ", "-"))
    wanted = b"POST /openai/deployments/my-gpt%2F4/chat/completions?api-version=2024-10-21 HTTP/1.1"
    assert sent.startswith(wanted)
    with pytest.raises(UsageError, match="cannot be a model"):
        payload(text, "az/..")


@pytest.mark.parametrize("url", ["https://{model}.example/v1", "https://{model}/v1"])
def test_the_model_never_stands_in_the_host(url: str) -> None:
    with pytest.raises(ConfigError):
        parse_config(f'[providers.x]\nbase_url = "{url}"\n')


# A row under another name


def test_two_keys_of_one_provider() -> None:
    text = '[providers.openai-2]\nlike = "openai"\napi_key = "env:SECOND"\n'
    config, env = parse_config(text), {"OPENAI_API_KEY": "first", "SECOND": "second"}
    one = resolve("openai/gpt-4o", env=env, config=config)
    two = resolve("openai-2/gpt-4o", env=env, config=config)
    assert one.headers() == (("authorization", "Bearer first"),)
    assert two.headers() == (("authorization", "Bearer second"),)
    assert two.provider.name == "openai-2"
    for same in ("quirks", "kinds", "price_provider", "abort", "dialect", "base_url"):
        assert getattr(two.provider, same) == getattr(one.provider, same), same
    assert key_variable(two.provider, config, env) == ("SECOND", True)


def test_a_row_under_another_name_in_another_region() -> None:
    text = (
        '[providers.bedrock-eu]\nlike = "bedrock-claude"\n[providers.bedrock-eu.variables]\n'
        'AWS_REGION = "eu-west-1"\n'
    )
    env = {"AWS_BEARER_TOKEN_BEDROCK": "k", "AWS_REGION": "us-east-1"}
    target = resolve("bedrock-eu/m", env=env, config=parse_config(text))
    assert target.base_url == "https://bedrock-runtime.eu-west-1.amazonaws.com/anthropic/v1"


# What is wrong is said


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('auth = "two words"', "name of a header"),
        ('auth = "cookie:x"', "auth is"),
        ('auth = "query:a b"', "auth is"),
        ('auth = "content-length"', "writes this header itself"),
        ('headers = { Host = "evil" }', "writes this header itself"),
        ('headers = { x-lightgate-hop = "1" }', "writes this header itself"),
        ('headers = { "a b" = "1" }', "the name of a header"),
        ('headers = { X-A = "a\\r\\nb: c" }', "printable line"),
        ('headers = { X-A = "" }', "printable line"),
        ('headers = { X-Api-Key = "canary" }', "is a secret"),
        ('headers = { Authorization = "Bearer canary" }', "is a secret"),
        ('headers = { Cookie = "canary" }', "is a secret"),
        ('headers = { X-Accesstoken = "canary" }', "is a secret"),
        ('headers = { X-A = "env:not a name" }', "environment variable"),
        ('headers = { X-A = "1", x-a = "2" }', "twice"),
        ('query = { key = "canary" }', "is a secret"),
        ('query = { "a&b" = "1" }', "the name of a query parameter"),
        ("headers = { X-A = 1 }", "text in quotes"),
    ],
)
def test_a_wrong_value_is_refused_with_its_place(line: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(f"{BASE}{line}\n")
    (problem,) = caught.value.problems
    assert "lightgate.toml:3: providers.corp." in problem
    assert said in problem
    assert "canary" not in problem


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('like = "opnai"', "'opnai' is not a provider of the catalogue. Did you mean openai?"),
        ('kinds = ["chat", "songs"]', "'songs' is none of chat"),
        ("quirks = { max_token_field = 'x' }", "no such quirk. Did you mean max_tokens_field"),
        ("quirks = { stream_usage = 'no' }", "quirks.stream_usage: expected bool, got str"),
        ("quirks = { system_role = 'boss' }", "quirks.system_role: invalid enum value 'boss'"),
        ("variables = { AWS_REGION = 'x' }", "variables.AWS_REGION: nothing is read from it"),
        (
            "auth = 'sigv4'\nvariables = { AWS_PROFIL = 'x' }",
            "nothing is read from it. Did you mean AWS_PROFILE?",
        ),
        ('headers = { Authorization = "env:TEAM" }', "the key travels in authorization"),
        ('auth = "x-k"\nheaders = { X-K = "env:TEAM" }', "the key travels in x-k"),
    ],
)
def test_a_table_that_cannot_be_honoured_is_refused_by_every_verb(line: str, said: str) -> None:
    config = parse_config(f"{BASE}{line}\n")
    with pytest.raises(ConfigError) as caught:
        resolve("corp/m", env=ENV, config=config)
    assert said in caught.value.message
    assert "[providers.corp]" in caught.value.message


def test_a_name_of_the_catalogue_is_like_nothing_else() -> None:
    config = parse_config('[providers.groq]\nlike = "openai"\n')
    with pytest.raises(ConfigError, match="in the catalogue itself"):
        provider_named("groq", config)


def test_a_header_of_ones_own_where_no_key_travels() -> None:
    text = f'{BASE}api_key = "none"\nheaders = {{ Authorization = "env:TEAM" }}\n'
    assert b"\r\nAuthorization: Basic dGVhbQ==\r\n" in payload(text)


def test_a_missing_variable_is_named() -> None:
    text = f'{BASE}api_key = "none"\nheaders = {{ X-A = "env:NOT_THERE" }}\n'
    with pytest.raises(CredentialsError, match="NOT_THERE"):
        payload(text)


def test_no_value_from_the_environment_is_shown() -> None:
    text = (
        f'{BASE}api_key = "env:CORP_KEY"\nauth = "query:key"\nheaders = {{ X-A = "env:TEAM" }}\n'
        'query = { sig = "env:SIG" }\n'
    )
    target = resolve("corp/m", env=ENV, config=parse_config(text))
    prepared = prepare(target, ASK)
    for shown in (repr(target), repr(prepared), str(target.provider)):
        assert not any(secret in shown for secret in ENV.values())
    said = "no: corp-secret-1, Basic dGVhbQ==, s/g+1, s%2Fg%2B1, corp-secr\N{HORIZONTAL ELLIPSIS}"
    assert prepared.without_key(said) == "no: ***, ***, ***, ***, ***"
