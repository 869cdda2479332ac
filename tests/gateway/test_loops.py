"""A target that leads back to the gateway: one refused attempt, however the plan looks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from gateway.security.conftest import chat_stream
from lightgate.cli.main import main
from lightgate.config.load import parse_config
from lightgate.errors import ConfigError
from lightgate.gateway.request.passed import MOST_HOPS
from lightgate.gateway.served.own_address import is_own
from lightgate.gateway.served.resolve import make_snapshot
from lightgate.gateway.served.served import Served

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.conftest import Rig, Start
    from gateway.security.conftest import Upstream

LOOP = """
[providers.back]
base_url = "http://127.0.0.1:{port}/v1"
api_key = "none"
[models.again]
targets = ["back/again"]
[models.thrice]
targets = ["back/thrice", "back/again", "back/other"]
policy = "ordered"
retries = 2
"""


async def looped(start: Start) -> Rig:
    """A gateway whose provider is the gateway itself."""
    rig = await start()
    config = parse_config(LOOP.replace("{port}", str(rig.port)))
    snapshot = make_snapshot(config, (), {})
    rig.state.move(Served(snapshot, {}))
    return rig


@pytest.mark.parametrize("stream", [True, False])
async def test_an_alias_that_points_at_the_gateway_makes_one_exchange(
    start: Start, stream: bool
) -> None:
    rig = await looped(start)
    answer = await rig.chat("again", stream=stream)
    assert answer.status == 508
    assert answer.json["error"]["code"] == "loop"
    assert "come back to the gateway" in answer.json["error"]["message"]
    assert answer.headers["x-should-retry"] == "false"
    [settled] = rig.settled()
    assert len(settled.attempts) == 1
    assert settled.attempts[0].status == 508


async def test_a_plan_of_many_loops_is_as_long_as_the_plan(start: Start) -> None:
    rig = await looped(start)
    answer = await rig.chat("thrice")
    assert answer.status == 508
    [settled] = rig.settled()
    assert len(settled.attempts) == 3  # the targets, each once: a second try changes nothing


async def test_a_loop_with_a_sound_target_behind_it_is_answered(
    start: Start, upstream: Upstream
) -> None:
    rig = await start()
    text = LOOP + (
        f'[providers.raw]\nbase_url = "http://127.0.0.1:{upstream.port}/v1"\napi_key = "none"\n'
        '[models.saved]\ntargets = ["back/again", "raw/m"]\npolicy = "ordered"\n'
    )
    rig.state.move(
        Served(make_snapshot(parse_config(text.replace("{port}", str(rig.port))), (), {}), {})
    )
    upstream.script = chat_stream()
    answer = await rig.chat("saved")
    assert answer.status == 200
    assert answer.headers["x-lightgate-target"] == "raw/m"


async def test_too_many_gateways_are_refused_and_a_few_are_passed_on(
    start: Start, upstream: Upstream
) -> None:
    rig = await start(
        f'[providers.raw]\nbase_url = "http://127.0.0.1:{upstream.port}/v1"\napi_key = "none"\n'
    )
    hops = ", ".join(f"gate{n}" for n in range(MOST_HOPS))
    answer = await rig.chat("raw/m", headers={"x-lightgate-hop": hops})
    assert answer.status == 200
    told = [value for name, value in upstream.heard[0].headers if name == b"x-lightgate-hop"]
    assert sorted(told) == sorted([hops.encode(), rig.state.served.instance.encode()])
    answer = await rig.chat("raw/m", headers={"x-lightgate-hop": f"{hops}, one-more"})
    assert answer.status == 508
    answer = await rig.chat("raw/m", headers={"x-lightgate-hop": "a b"})
    assert answer.status == 400
    assert "x-lightgate-hop" in answer.json["error"]["message"]
    assert len(upstream.heard) == 1


@pytest.mark.parametrize(
    ("url", "host", "port", "own"),
    [
        ("http://127.0.0.1:8080/v1", "127.0.0.1", 8080, True),
        ("http://localhost:8080/v1", "127.0.0.1", 8080, True),
        ("http://[::1]:8080/v1", "localhost", 8080, True),
        ("http://127.0.0.1:8080/v1", "0.0.0.0", 8080, True),
        ("http://localhost:8080/v1", "::", 8080, True),
        ("http://0.0.0.0:8080/v1", "127.0.0.1", 8080, True),
        ("https://gate.example/v1", "gate.example", 443, True),
        ("http://127.0.0.1:8082/v1", "127.0.0.1", 8080, False),
        ("http://127.0.0.2:8080/v1", "127.0.0.1", 8080, False),
        ("http://10.0.0.7:8080/v1", "127.0.0.1", 8080, False),
        ("http://api.example:8080/v1", "0.0.0.0", 8080, False),
        ("http://127.0.0.1:8080/v1", "127.0.0.1", 0, False),
    ],
)
def test_the_gateways_own_address_is_known(url: str, host: str, port: int, own: bool) -> None:
    assert is_own(url, host, port) is own


def test_a_configuration_that_names_its_own_address_is_refused() -> None:
    text = '[models.m]\ntargets = ["llamacpp/any"]\n'
    with pytest.raises(ConfigError, match=r"llamacpp is http://127\.0\.0\.1:8080/v1") as caught:
        make_snapshot(parse_config(text), (), {})
    assert "base_url under [providers.llamacpp]" in caught.value.hint
    assert "--port 8090" in caught.value.hint
    made = make_snapshot(parse_config(text + "[gateway]\nport = 8090\n"), (), {})
    assert "llamacpp" in made.providers


def test_config_check_says_so_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "lightgate.toml"
    file.write_text('[models.m]\ntargets = ["llamacpp/any"]\n', "utf-8")
    assert main(["config", "check", "--config", str(file), "--json"]) == 3
    [problem] = json.loads(capsys.readouterr().out)["problems"]
    assert "this gateway listens there itself" in problem


def test_a_key_for_a_server_at_the_gateways_address_does_not_stop_it() -> None:
    made = make_snapshot(parse_config(""), (), {"LLAMA_API_KEY": "k", "GROQ_API_KEY": "k"})
    assert set(made.providers) == {"groq"}
