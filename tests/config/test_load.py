from __future__ import annotations

import json
import os
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from lightgate.config.load import config_schema, find_config, load_config, parse_config, user_folder
from lightgate.config.toml_text import key_path
from lightgate.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

# The example of the public contract, whole.
CONTRACT = """
[gateway]
host = "127.0.0.1"
port = 8080
workers = 1
data = "./lightgate-data"

[gateway.breaker]
streak = 3
open = "5s"
max_open = "300s"

[ledger]
url = "sqlite"
[shared]
url = ""

[providers.groq]
api_key = "env:GROQ_API_KEY"
[providers.lab]
base_url = "http://127.0.0.1:9001/v1"
dialect = "openai"
api_key = "env:LAB_KEY"
hourly_cost = 2.69
abort_stops_billing = true

[models.fast-llama]
targets = ["groq/llama-3.3-70b-versatile", "lab/s1"]
policy = "fastest"
hedge = "auto"
race = 1
ttft_timeout = "auto"
timeout = "120s"
idle_timeout = "60s"
retries = 0
max_tokens = 1024
slo = { ttft_p95 = "500ms", speed_p50 = 80 }
cache = { mode = "exact", ttl = "1h" }

[models.smart]
policy = "cascade"
tiers = [ { upto = "simple", targets = ["groq/a"] }, { upto = "medium", targets = ["openai/b"] },
  { targets = ["anthropic/c"] } ]
verify = ["json_schema", "not_refused", "not_truncated"]

[prices."lab/s1"]
input = 0.1
output = 0.40
"""

DURATION_RULE = 'a duration is a number and a unit in quotes, such as "800ms", "5s" or "1h"'
POLICIES = (
    "chat, fastest, cheapest, balanced, ordered, weighted, voice, coding, agent, batch, cascade"
)


def found_in(text: str) -> tuple[str, ...]:
    """The problems of a text, none if it is valid; an error without a problem is a defect."""
    try:
        parse_config(text)
    except ConfigError as error:
        return error.problems or ("no place",)
    return ()


def problems(text: str) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        parse_config(text)
    assert caught.value.exit_code == 3
    return caught.value.problems


def test_the_contract_is_valid() -> None:
    config = parse_config(CONTRACT)
    assert config.gateway.breaker.open == 5 * 10**9
    assert config.providers["lab"].hourly_cost == Decimal("2.69")
    fast = config.models["fast-llama"]
    assert fast.ttft_timeout is None
    assert fast.slo is not None
    assert fast.slo.ttft_p95 == 500_000_000
    assert fast.slo.speed_p50 == 80
    assert fast.slo.ttft_p99 is None
    assert [tier.upto for tier in config.models["smart"].tiers] == ["simple", "medium", None]
    assert config.prices["lab/s1"].output == Decimal("0.40")


def test_an_empty_file_has_the_defaults_of_the_contract() -> None:
    config = parse_config("")
    assert (config.gateway.host, config.gateway.port) == ("127.0.0.1", 8080)
    assert config.gateway.breaker.streak == 3
    assert config.ledger.url == "sqlite"
    assert config.shared.url == ""
    assert config.gateway.drain == 30 * 10**9
    assert config.gateway.keep_alive == 15 * 10**9
    assert config.gateway.max_body_bytes == 32 * 2**20
    assert config.ledger.retention == 30 * 86_400 * 10**9


def test_weights_are_shares_of_the_targets() -> None:
    text = '[models.m]\ntargets = ["a/x", "b/y"]\npolicy = "weighted"\n'
    assert parse_config(text).models["m"].weights == ()
    assert parse_config(text + "weights = [3, 0.5]").models["m"].weights == (3, 0.5)
    assert parse_config(text + "weights = [1, 0]").models["m"].weights == (1, 0)


def test_a_configuration_is_immutable() -> None:
    config = parse_config("")
    with pytest.raises(ValidationError):
        config.gateway.port = 1


def test_every_problem_at_once_with_its_place() -> None:
    found = problems(
        '[gateway]\nprt = 8080\nworkers = "3"\n\n[gateway.breaker]\nopen = "5 s"\n'
        '[models.fast]\ntargets = ["x"]\npolicy = "fastst"\n'
    )
    assert found == (
        "lightgate.toml:2: gateway.prt: unknown key; did you mean 'port'?",
        "lightgate.toml:3: gateway.workers: should be a whole number",
        f"lightgate.toml:6: gateway.breaker.open: {DURATION_RULE}",
        "lightgate.toml:8: models.fast.targets[0]: a target is provider/model",
        f"lightgate.toml:9: models.fast.policy: one of {POLICIES}; did you mean 'fastest'?",
    )


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ("[gatway]\nport = 1", ":1: gatway:", "did you mean 'gateway'"),
        ("[gateway]\nport = 70000", ":2: gateway.port:", "less than or equal to 65535"),
        ("[gateway]\nport = true", ":2: gateway.port:", "a whole number"),
        ("[gateway]\nport = 80.5", ":2: gateway.port:", "a whole number"),
        ('[gateway.breaker]\nopen = "9s"\nmax_open = "1s"', ":1: gateway.breaker:", "longer than"),
        ('[ledger]\nurl = "mysql://h"', ":2: ledger.url:", "postgresql"),
        ('[shared]\nurl = "http://h"', ":2: shared.url:", "redis"),
        ("[providers.x]\nhourly_cost = -1", ":2: providers.x.hourly_cost:", "greater than"),
        ("[providers.x]\nhourly_cost = inf", ":2: providers.x.hourly_cost:", "finite"),
        ('[providers.x]\nhourly_cost = "1"', ":2: providers.x.hourly_cost:", "without quotes"),
        ('[providers.x]\nabort_stops_billing = "yes"', ":2:", "true or false"),
        ('[providers.x]\nbase_url = "h/v1"', ":2: providers.x.base_url:", "http://"),
        ('[providers."a/b"]\napi_key = "none"', ':1: providers."a/b":', "a name has"),
        ('[models.m]\ntargets = ["a/b"]\nhedge = "p50"', ":3: models.m.hedge:", "p75"),
        ('[models.m]\ntargets = ["a/b"]\nrace = 0', ":3: models.m.race:", "greater than"),
        ('[models.m]\ntargets = ["a/b", "a/b"]', ":1: models.m:", "named twice"),
        ("[models.m]\nrace = 1", ":1: models.m:", "needs targets"),
        ('[models.m]\npolicy = "cascade"', ":1: models.m:", "needs tiers"),
        ('[models.m]\ntargets = ["a/b"]\nweights = [1]', ":1: models.m:", 'policy "weighted"'),
        (
            '[models.m]\ntargets = ["a/b"]\npolicy = "weighted"\nweights = [3, 1]',
            ":1: models.m:",
            "one number for each target",
        ),
        (
            '[models.m]\ntargets = ["a/b"]\npolicy = "weighted"\nweights = [-1]',
            ":4: models.m.weights[0]:",
            "greater than or equal to 0",
        ),
        (
            '[models.m]\ntargets = ["a/b"]\npolicy = "weighted"\nweights = [0]',
            ":1: models.m:",
            "a number above 0",
        ),
        ("[gateway]\nmax_body_bytes = 0", ":2: gateway.max_body_bytes:", "greater than"),
        ('[gateway]\ndrain = "soon"', ":2: gateway.drain:", "a number and a unit"),
        ('[models.m]\ntiers = [{targets=["a/b"]}]', ":1: models.m:", "belong to"),
        (
            '[models.m]\npolicy = "cascade"\ntiers = [{targets=["a/b"]},{targets=["a/b"]}]',
            ":1: models.m:",
            "upto",
        ),
        ('[models.m]\npolicy = "cascade"\ntiers = [{targets=[]}]', ":3:", "at least 1"),
        (
            (
                '[models.m]\npolicy = "cascade"\ntiers = [{upto="medium",targets=["a/b"]},'
                '{upto="simple",targets=["a/c"]},{targets=["a/d"]}]'
            ),
            ":1: models.m:",
            "harder requests than the one before",
        ),
        (
            '[models.m]\npolicy = "cascade"\ntiers = [{targets=["a/b","a/b"]}]',
            ":3:",
            "a target is named twice",
        ),
        (
            '[models.m]\npolicy = "cascade"\nverify = ["not_rude"]\ntiers = [{targets=["a/b"]}]',
            ":3:",
            "no check of that name; there are json_schema, not_refused, not_truncated, tool_arg",
        ),
        (
            '[models.m]\npolicy = "cascade"\nverify = ["logprobs>2"]\ntiers = [{targets=["a/b"]}]',
            ":3:",
            "no check of that name",
        ),
        ('[models.m]\ntargets = ["a/b"]\nverify = ["logprobs"]', ":1: models.m:", "belongs to"),
        ('[prices."a/b"]\ninput = 1', ':1: prices."a/b".output:', "needed"),
        ("[prices.ab]\ninput = 1\noutput = 1", ":1: prices.ab:", "provider/model"),
        ("gateway = 3", ":1: gateway:", "should be a table: [gateway] with its keys below"),
        ('[models]\na = "openai/gpt-4o"', ":2: models.a:", "should be a table: [models.a]"),
        ('[models.a]\ntargets = "a/b"', ":2: models.a.targets:", 'a list, such as ["a", "b"]'),
        ("[models.a]\ntargets = [1]", ":2: models.a.targets[0]:", "should be text in quotes"),
        ('[gateway]\nauto = "maybe"', ":2: gateway.auto:", "should be true or false"),
    ],
)
def test_one_problem(text: str, place: str, said: str) -> None:
    (problem,) = problems(text)
    assert place in problem
    assert said in problem


def test_a_key_in_the_file_is_refused_and_not_repeated() -> None:
    (problem,) = problems('[providers.groq]\napi_key = "gsk_live_123"')
    assert "gsk_live" not in problem
    assert "env:NAME" in problem


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a = 1\nb = \n", ":2:5: "),
        ("[gateway\n", ":1:9: "),
        ('a = "x', ":1"),
        ("a=1\na=2", ":2: "),
        ("a=1\na=2\n", ":2:4: "),
    ],
)
def test_bad_toml_has_line_and_column(text: str, place: str) -> None:
    (problem,) = problems(text)
    assert problem.startswith(f"lightgate.toml{place}")


@pytest.mark.parametrize("hedge", ["off", "auto", "p75", "p99", "800ms"])
def test_hedges(hedge: str) -> None:
    config = parse_config(f'[models.m]\ntargets = ["a/b"]\nhedge = "{hedge}"')
    assert config.models["m"].hedge == hedge


@given(st.text(max_size=80))
@settings(max_examples=150, derandomize=True)
def test_any_text_is_a_configuration_or_a_list_of_problems(text: str) -> None:
    for problem in found_in(text):
        assert problem.startswith("lightgate.toml:")


KEYS = st.sampled_from(["host", "port", "open", "targets", "slo", "tiers", "x", "a/b", "ö"])


@given(
    st.sampled_from(["gateway", "gateway.breaker", "providers.a", "models.a", 'prices."a/b"']),
    st.dictionaries(KEYS, st.lists(st.integers(), max_size=2) | st.integers() | st.booleans()),
)
@settings(max_examples=150, derandomize=True)
def test_any_values_are_accepted_or_placed(table: str, values: dict[str, object]) -> None:
    lines = [
        f"{json.dumps(key, ensure_ascii=False)} = {json.dumps(v)}" for key, v in values.items()
    ]
    problems_found = found_in("\n".join([f"[{table}]", *lines]))
    numbers = [int(problem.split(":")[1]) for problem in problems_found]
    assert numbers == sorted(numbers)
    assert all(1 <= number <= len(lines) + 1 for number in numbers)


def test_search_order(tmp_path: Path) -> None:
    here, home, system = tmp_path / "here", tmp_path / "home", tmp_path / "etc" / "lightgate.toml"
    env = {"HOME": str(home), "XDG_CONFIG_HOME": str(home / ".config")}
    user = user_folder(env) / "lightgate.toml"
    named, flag = tmp_path / "named.toml", tmp_path / "flag.toml"
    for path in (here / "lightgate.toml", user, system, named, flag):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    named_env = {**env, "LIGHTGATE_CONFIG": str(named)}
    assert find_config(flag, env=named_env, cwd=here, system=system) == flag
    assert find_config(None, env=named_env, cwd=here, system=system) == named
    assert find_config(None, env=env, cwd=here, system=system) == here / "lightgate.toml"
    (here / "lightgate.toml").unlink()
    assert find_config(None, env=env, cwd=here, system=system) == user
    user.unlink()
    assert find_config(None, env=env, cwd=here, system=system) == system
    system.unlink()
    assert find_config(None, env=env, cwd=here, system=system) is None


def test_a_named_file_must_exist(tmp_path: Path) -> None:
    gone = tmp_path / "gone.toml"
    for explicit, env in ((gone, {}), (None, {"LIGHTGATE_CONFIG": str(gone)})):
        with pytest.raises(ConfigError, match=r"gone\.toml"):
            find_config(explicit, env=env, cwd=tmp_path)


def test_an_unreadable_file_is_one_sentence(tmp_path: Path) -> None:
    bad = tmp_path / "bad.toml"
    bad.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="UTF-8"):
        load_config(bad)
    os.mkfifo(tmp_path / "pipe.toml")  # a running gateway would wait for it, and reload no more
    with pytest.raises(ConfigError, match="it is a pipe"):
        load_config(tmp_path / "pipe.toml")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(tmp_path)


def test_key_paths_are_written_as_in_the_file() -> None:
    assert key_path(("models", "a b", "tiers", 1, "upto")) == 'models."a b".tiers[1].upto'
    assert key_path(()) == "(the file)"


def test_the_schema_has_every_table() -> None:
    schema = config_schema()
    assert set(schema["properties"]) == {
        "gateway", "ledger", "shared", "providers", "models", "prices", "priors",
    }  # fmt: skip
    assert schema["additionalProperties"] is False
    assert schema["$defs"]["BreakerTable"]["properties"]["open"]["type"] == "string"
    json.dumps(schema)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ('[priors."lab/s1"]\nttft_p95 = "1s"\nspeed = 5', "ttft_p95 needs a ttft"),
        ('[priors."lab/s1"]\nttft = "2s"\nttft_p95 = "1s"', "ttft_p95 needs a ttft"),
        ('[priors."lab/s1"]', "a prior needs ttft or speed"),
        ('[priors."lab/s1"]\nttft = "0s"', "longer than nothing"),
        ('[priors."lab/"]\nspeed = 5', "a target is provider/model"),
        ('[priors."la b"]\nspeed = 5', "a name has letters"),
        ("[priors.lab]\nspeed = 0", "priors.lab.speed"),
    ],
)
def test_a_prior_says_something_possible(table: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(table)
    assert said in " ".join(caught.value.problems)


def test_a_prior_is_of_a_target_or_of_a_provider() -> None:
    config = parse_config('[priors.lab]\nspeed = 90\n[priors."lab/s1"]\nttft = "180ms"\n')
    assert config.priors["lab"].speed == 90
    assert config.priors["lab/s1"].ttft == 180_000_000
