"""Headers and parameters that a file has sent with every request: none of them is a secret."""

from __future__ import annotations

import pytest

from lightgate.config.load import parse_config
from lightgate.errors import ConfigError

SECRETS = (
    "Authorization", "X-Auth", "x-code", "cookie", "lab-credential", "Credentials", "x_passwd",
    "password", "my-secret", "sig", "X-Signature", "api-key", "X-Lab-APIKey", "key", "token",
    "access.token", "refreshtoken", "code2", "key-of-2", "KEY",
)  # fmt: skip
HARMLESS = (
    "x-lab",
    "http-referer",
    "keyboard",
    "tokens",
    "monkeys",
    "x-authors",
    "codes",
    "signal",
)


def lab(table: str, **values: str) -> str:
    """The text of a file with one provider, and what is sent to it."""
    rows = "".join(f'"{name}" = "{value}"\n' for name, value in values.items())
    return f'[providers.lab]\nbase_url = "http://127.0.0.1:9/v1"\n[providers.lab.{table}]\n{rows}'


@pytest.mark.parametrize("table", ["headers", "query"])
@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_is_refused_and_not_repeated(table: str, name: str) -> None:
    with pytest.raises(ConfigError) as wrong:
        parse_config(lab(table, plain="x", **{name: "hush-hush"}))
    said = " ".join(wrong.value.problems)
    assert f'the value of {name} is a secret; write "env:NAME"' in said
    assert "hush" not in f"{wrong.value.message}{said}"


@pytest.mark.parametrize("table", ["headers", "query"])
@pytest.mark.parametrize("name", SECRETS)
def test_the_name_of_a_variable_may_stand_in_the_place_of_a_secret(table: str, name: str) -> None:
    config = parse_config(lab(table, **{name: "env:LAB_SECRET"}))
    assert getattr(config.providers["lab"], table) == {name: "env:LAB_SECRET"}


@pytest.mark.parametrize("name", HARMLESS)
def test_a_name_that_only_sounds_like_a_secret_is_taken(name: str) -> None:
    config = parse_config(lab("headers", **{name: "as it is", "x-other": "too"}))
    assert config.providers["lab"].headers == {name: "as it is", "x-other": "too"}


def test_a_name_may_stand_there_once_in_whatever_letters() -> None:
    with pytest.raises(ConfigError) as wrong:
        parse_config(lab("headers", **{"X-Lab": "a", "x-lab": "b"}))
    assert "a name stands here twice" in " ".join(wrong.value.problems)
