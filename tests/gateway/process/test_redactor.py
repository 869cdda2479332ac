"""Secrets in log lines: known ones in every spelling, and what looks like one."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest

from lightgate.config.load import parse_config
from lightgate.gateway.process.logs import LONGEST_FIELD, SHORTEST, Redactor, secrets_of
from lightgate.gateway.shared.store import SHARED_ENV
from lightgate.ledger.locate import LEDGER_ENV

KEY = 'a"b/c d\\e\u00e9'


@pytest.mark.parametrize(
    "spelled",
    [
        KEY,
        quote(KEY, safe=""),
        quote(KEY),
        repr(KEY)[1:-1],
        json.dumps(KEY, ensure_ascii=False)[1:-1],
    ],
)
def test_a_known_secret_is_masked_in_every_spelling(spelled: str) -> None:
    assert Redactor([f" {KEY}\n"]).clean(f"<{spelled}>") == "<***>"
    assert Redactor().clean(f"<{spelled}>") == f"<{spelled}>"


def test_the_longest_secret_is_masked_first() -> None:
    assert Redactor(["abcd", "abcdef"]).clean("abcdef abcd abc") == "*** *** abc"
    assert SHORTEST == 4
    assert Redactor(["abc"]).clean("abc") == "abc"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        *((f"x {prefix}-abcd1234 y", "x *** y") for prefix in (
            "sk", "lg", "pk", "rk", "xai", "gsk", "hf", "r8", "nvapi", "fw", "csk", "pplx",
        )),
        ("sk-abcd123", "sk-abcd123"),
        ("AIza" + "x" * 16, "***"),
        ("AIza" + "x" * 15, "AIza" + "x" * 15),
        ("Bearer x.y", "***"),
        ("x-api-key: q", "***"),
        ('"api-key"="q"', '"***"'),
        ("x-goog-api-key=q", "***"),
        ("authorization: Basic q", "***"),
        ("https://user:pass@host/", "https://***@host/"),
        *((f"/x?{name}=q&a=b", f"/x?{name}=***&a=b") for name in (
            "key", "sig", "code", "token", "api_key", "access_token",
        )),
        ("/x?api-key=q&a=b", "/x?***"),
        ("/x?monkey=q", "/x?monkey=q"),
        ("ya29.abcdefgh", "***"),
        ("eyJabcdefgh.xyz", "***"),
        ("-----BEGIN RSA PRIVATE KEY-----abc\ndef-----END", "***-----END"),
    ],
)  # fmt: skip
def test_what_looks_like_a_secret_is_masked(text: str, shown: str) -> None:
    assert Redactor().clean(text) == shown


def test_fields_are_cleaned_inside_and_clipped() -> None:
    redactor = Redactor(["secret"])
    value = {"secret": ["a secret", ("secret",)], "n": 1, "t": True, "f": 0.5, "x": None}
    assert redactor.clean_value(value) == {
        "***": ["a ***", ["***"]], "n": 1, "t": True, "f": 0.5, "x": None,
    }  # fmt: skip
    assert redactor.clean_value({"secret"}) == ["***"]
    assert redactor.clean_value(ValueError("secret")) == "***"
    assert redactor.clean_value("x" * LONGEST_FIELD) == "x" * LONGEST_FIELD
    assert redactor.clean_value("x" * (LONGEST_FIELD + 1)) == "x" * LONGEST_FIELD + "\u2026"


def test_every_secret_of_a_configuration_and_an_environment() -> None:
    env = {
        "OPENAI_API_KEY": " k-openai ", "ANTHROPIC_API_KEY": "", "MINE": "k-mine",
        "HEADER": "k-header", "QUERY": "k-query", "OTHER": "k-other", "ALSO": "k-also",
        "LIGHTGATE_CONSOLE_SECRET": "k-console", "AWS_SECRET_ACCESS_KEY": "k-aws",
    }  # fmt: skip
    config = parse_config(
        '[providers.lab]\nbase_url = "http://127.0.0.1:9/v1"\napi_key = "env:MINE"\n'
        '[providers.lab.headers]\nx-a = "env:HEADER"\nx-b = "plain"\n'
        '[providers.lab.query]\nq = "env:QUERY"\n'
    )
    everywhere = {"k-openai", "k-console", "k-aws"}
    assert secrets_of(None, env) == everywhere
    assert secrets_of(None, env, ["ALSO", "MISSING"]) == everywhere | {"k-also"}
    assert secrets_of(config, env) == everywhere | {"k-mine", "k-header", "k-query"}


@pytest.mark.parametrize(
    ("text", "env", "found"),
    [
        ('[ledger]\nurl = "env:DB"', {"DB": "postgresql://me:p%40ss@h/x"}, {"p@ss"}),
        ('[ledger]\nurl = "env:DB"', {}, set()),
        ('[shared]\nurl = "env:AT"', {"AT": " redis://:word@h:1 "}, {"word"}),
        ('[shared]\nurl = "redis://:word@h:1"', {}, {"word"}),
        ("", {SHARED_ENV: "redis://:one@h", LEDGER_ENV: "postgresql://a:two@h/x"}, {"one", "two"}),
        ("", {SHARED_ENV: "redis://:one@[h", LEDGER_ENV: "sqlite"}, set()),
        ("", {SHARED_ENV: "redis://h:1"}, set()),
    ],
)
def test_passwords_of_databases_are_secrets(
    text: str, env: dict[str, str], found: set[str]
) -> None:
    assert secrets_of(parse_config(text), env) == found
    if not text:
        assert secrets_of(None, env) == found
