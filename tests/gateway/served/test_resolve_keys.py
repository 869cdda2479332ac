"""Targets of a configuration whose keys are missing: named, not left to the first request."""

from __future__ import annotations

import pytest

from lightgate.config.load import parse_config
from lightgate.errors import ConfigError, CredentialsError, LightgateError
from lightgate.gateway.served.resolve import make_snapshot
from lightgate.gateway.served.served import Served

OPENAI = '[models.m]\ntargets = ["openai/gpt-4o"]\n'
OWN = (
    '[providers.lab]\nbase_url = "http://h/v1"\napi_key = "env:LAB_KEY"\n'
    '[models.m]\ntargets = ["lab/m"]\n'
)


@pytest.mark.parametrize(("text", "variable"), [(OPENAI, "OPENAI_API_KEY"), (OWN, "LAB_KEY")])
def test_a_model_whose_provider_has_no_key(text: str, variable: str) -> None:
    config = parse_config(text)
    with pytest.raises(LightgateError) as caught:
        make_snapshot(config, (), {})
    told = f"{caught.value.message} {caught.value.hint} {getattr(caught.value, 'problems', '')}"
    assert isinstance(caught.value, ConfigError | CredentialsError)
    assert variable in told
    made = make_snapshot(config, (), {variable: "sk-x"})
    assert [alias.name for alias in made.aliases] == ["m"]


def test_what_a_provider_says_is_told_without_the_key_that_it_repeats() -> None:
    env = {"LAB_KEY": "sk-of-the-lab"}
    target = Served(make_snapshot(parse_config(OWN), (), env), env).targets["lab/m"]
    assert target.without_key("sk-of-the-lab may not do this") == "*** may not do this"
    assert target.without_key("no such model") == "no such model"
