"""`lightgate up` from an empty folder with a key alone, and applications that nobody changed.

The applications are the official SDKs with their provider's own model names. What they read from
the environment is the gateway's address; the simulator stands in for the provider.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from lightgate.sim.server.serve import SimOptions
from lightgate.sim.server.spawn import SimProcess
from sdk.environment import bare_env, python_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.sdk
WORLD = """
name = "keys"
title = "Providers under the names of their models"
source = "the tests of the SDKs"

[providers.openai]
key = "sk-right"
[providers.openai.models.gpt-4o]
exact = { ttft_ms = 2, gap_ms = 0 }
shape = { tokens = 8 }
[providers.openai.models."ft:gpt-4o:acme::x1"]
exact = { ttft_ms = 2, gap_ms = 0 }
shape = { tokens = 8 }
[providers.claude]
dialect = "anthropic"
[providers.claude.models."claude-sonnet-4-5-20250929"]
exact = { ttft_ms = 2, gap_ms = 0 }
shape = { tokens = 8 }
[providers.gem]
dialect = "gemini"
[providers.gem.models."gemini-2.5-flash"]
exact = { ttft_ms = 2, gap_ms = 0 }
shape = { tokens = 8 }
"""
OPENAI = """
import json, openai
client = openai.OpenAI()
said = [{"role": "user", "content": "Say something."}]
found = {}
for model in ("gpt-4o", "ft:gpt-4o:acme::x1"):
    answer = client.chat.completions.create(model=model, messages=said)
    found[model] = answer.choices[0].message.content
found["listed"] = [model.id for model in client.models.list()]
one = client.models.retrieve("gpt-4o")
found["one"] = [one.id, one.owned_by, one.context_window, one.pricing["output"]]
for model in ("gpt-4oo", "claude-sonnet-4-5"):
    try:
        client.chat.completions.create(model=model, messages=said)
    except openai.NotFoundError as error:
        found[model] = error.body
print(json.dumps(found))
"""
ANTHROPIC = """
import json, anthropic
client = anthropic.Anthropic()
said = [{"role": "user", "content": "Say something."}]
answer = client.messages.create(model="claude-sonnet-4-5-20250929", messages=said, max_tokens=8)
one = client.models.retrieve("claude-sonnet-4-5-20250929")
found = {
    "said": answer.content[0].text,
    "listed": [model.id for model in client.models.list()],
    "one": [one.id, one.display_name, one.type],
}
try:
    client.messages.create(model="claude-sonnet-4-6", messages=said, max_tokens=8)
except anthropic.NotFoundError as error:
    found["unknown"] = error.body
print(json.dumps(found))
"""
GOOGLE = """
import json
from google import genai
client = genai.Client()
answer = client.models.generate_content(model="gemini-2.5-flash", contents="Say something.")
one = client.models.get(model="gemini-2.5-flash")
found = {
    "said": answer.text,
    "listed": [model.name for model in client.models.list(config={"query_base": True})],
    "one": [one.name, one.display_name],
}
try:
    client.models.generate_content(model="gemini-9-flash", contents="x")
except genai.errors.ClientError as error:
    found["unknown"] = [error.code, error.status, error.message]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def sim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimProcess]:
    world = tmp_path_factory.mktemp("world") / "keys.toml"
    world.write_text(WORLD, "utf-8")
    with SimProcess(SimOptions(world=str(world))) as process:
        yield process


@contextmanager
def up(folder: Path, *words: str, **env: str) -> Iterator[dict[str, str]]:
    """`lightgate up` in a folder, with nothing but these variables; what it says at its start."""
    process = subprocess.Popen(
        [sys.executable, "-m", "lightgate", "up", "--port", "0", "--console-port", "0", "--log",
         "text", *words],
        stderr=subprocess.PIPE, text=True, cwd=folder, env=bare_env() | {"HOME": str(folder)} | env,
    )  # fmt: skip
    said: dict[str, str] = {}
    try:
        assert process.stderr is not None
        for line in process.stderr:
            word, _, rest = line.strip().partition(" ")
            said[word] = rest.strip()
            if word == "Ctrl-C":
                break
        assert "Gateway" in said, said
        said["url"] = said["Gateway"].split()[0]
        yield said
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


@contextmanager
def up_with_lists(folder: Path, model: str, **env: str) -> Iterator[dict[str, str]]:
    """`lightgate up` that names this model at its start, from a provider's list.

    It waits three seconds for the list. A busy machine may take longer: the list is kept when it
    has come, and the next start has it at once.
    """
    with up(folder, **env) as said:
        if f"such as {model};" in said["Models"]:
            yield said
            return
        kept = folder / "lightgate-data" / "models.json"
        until = time.monotonic() + 100
        while not (kept.exists() and f'"{model}"' in kept.read_text("utf-8")):
            assert time.monotonic() < until
            time.sleep(0.05)
    with up(folder, **env) as said:
        yield said


def application(sdk: str, code: str, **env: str) -> dict[str, Any]:
    done = subprocess.run(
        [python_of(sdk), "-c", code],
        capture_output=True, text=True, timeout=110, check=False, env=bare_env() | env,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_one_key_and_an_unchanged_application(
    sim: SimProcess, tmp_path: Path, require: Callable[[str], None], missing: Callable[[str], None]
) -> None:
    require("openai")
    address = sim.facts.providers["openai"]
    keyed = {"OPENAI_API_KEY": "sk-right", "OPENAI_BASE_URL": address}
    with up_with_lists(tmp_path, "gpt-4o", **keyed) as said:
        assert said["Providers"] == "openai"
        assert said["Models"].startswith("by their own names, such as gpt-4o;")
        found = application("openai", OPENAI, OPENAI_API_KEY="any", OPENAI_BASE_URL=said["url"])
        for model in ("gpt-4o", "ft:gpt-4o:acme::x1"):
            assert re.fullmatch("( [a-z]{3}){8}", found[model])
        assert found["listed"][:2] == ["gpt-4o", "ft:gpt-4o:acme::x1"]
        assert {f"openai/{name}" for name in found["listed"][:2]} <= set(found["listed"])
        assert found["one"] == ["gpt-4o", "openai", 128000, 10]
        assert found["gpt-4oo"]["code"] == "model_not_found"
        assert "Did you mean 'gpt-4o'?" in found["gpt-4oo"]["message"]
        assert "Set ANTHROPIC_API_KEY" in found["claude-sonnet-4-5"]["message"]
        if shutil.which("curl") is None:
            missing("curl is missing")
        done = subprocess.run(
            ["sh", "-c", said["Try"]], capture_output=True, text=True, timeout=60, check=True,
            env=bare_env(),
        )  # fmt: skip
        assert '"content":" ' in done.stdout
        assert done.stdout.rstrip().endswith("data: [DONE]")
    kept = (tmp_path / "lightgate-data" / "models.json").read_text()
    assert "ft:gpt-4o:acme::x1" in kept
    assert "sk-right" not in kept


def test_every_dialect_asks_by_the_models_own_names(
    sim: SimProcess, tmp_path: Path, require: Callable[[str], None]
) -> None:
    require("anthropic")
    require("google")
    facts = sim.facts.providers
    (tmp_path / ".env").write_text(
        f"ANTHROPIC_API_KEY=x\nANTHROPIC_BASE_URL={facts['claude'].removesuffix('/v1')}\n"
        f"GEMINI_API_KEY=x\nGOOGLE_GEMINI_BASE_URL={facts['gem'].removesuffix('/v1beta')}\n"
    )
    with up(tmp_path) as said:
        assert said["Providers"] == "anthropic, gemini"
        url = said["url"].removesuffix("/v1")
        claude = application(
            "anthropic", ANTHROPIC, ANTHROPIC_API_KEY="any", ANTHROPIC_BASE_URL=url
        )
        assert claude["said"]
        name = "claude-sonnet-4-5-20250929"
        assert {name, "claude-sonnet-4-5", f"anthropic/{name}"} <= set(claude["listed"])
        assert claude["one"] == [name, name, "model"]
        assert claude["unknown"]["error"]["type"] == "not_found_error"
        assert "claude-sonnet-4-5" in claude["unknown"]["error"]["message"]
        gem = application("google", GOOGLE, GEMINI_API_KEY="any", GOOGLE_GEMINI_BASE_URL=url)
        assert gem["said"]
        assert "models/gemini-2.5-flash" in gem["listed"]
        assert gem["one"] == ["models/gemini-2.5-flash", "gemini-2.5-flash"]
        assert gem["unknown"][:2] == [404, "NOT_FOUND"]
        assert "gemini-2.5-flash" in gem["unknown"][2]


def test_a_key_that_the_provider_refuses_is_said_with_what_to_do(
    sim: SimProcess, tmp_path: Path, require: Callable[[str], None]
) -> None:
    require("openai")
    code = """
import json, openai
client = openai.OpenAI(max_retries=0)
said = [{"role": "user", "content": "x"}]
found = {}
for model in ("gpt-4o", "gpt-4oo", "zzz"):
    try:
        client.chat.completions.create(model=model, messages=said)
    except openai.APIStatusError as error:
        found[model] = [error.status_code, error.body["message"]]
print(json.dumps(found))
"""
    address = sim.facts.providers["openai"]
    with up(tmp_path, OPENAI_API_KEY="sk-wrong", OPENAI_BASE_URL=address) as said:
        found = application("openai", code, OPENAI_API_KEY="any", OPENAI_BASE_URL=said["url"])
        status, message = found["gpt-4o"]
        assert status == 502
        assert "OPENAI_API_KEY" in message
        assert "sk-wrong" not in json.dumps(found)
        assert found["zzz"][0] == 404
        assert "could not be fetched (it refused the key with 401)" in found["zzz"][1]


def test_a_provider_whose_models_are_not_known_is_named(tmp_path: Path) -> None:
    with up(tmp_path, NEBIUS_API_KEY="k", HTTPS_PROXY="http://127.0.0.1:1") as said:
        assert said["Models"] == "as nebius/MODEL: which ones there are is not known"
        assert '"model":"nebius/MODEL"' in said["Try"]
    with up(tmp_path, "--no-demo") as said:
        assert said["Providers"].startswith("none: no provider key")
        assert said["Try"].startswith("set a provider's key")


def test_the_variable_that_points_at_the_gateway_itself_is_ignored(
    tmp_path: Path,
) -> None:
    env = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "http://localhost:{port}/v1"}
    with up(tmp_path, "--data", "d1") as said:
        port = re.findall(r":(\d+)/v1", said["url"])[0]
    env["OPENAI_BASE_URL"] = env["OPENAI_BASE_URL"].format(port=port)
    with up(tmp_path, "--data", "d2", "--port", port, **env) as said:
        assert said["Ignored"].startswith("OPENAI_BASE_URL: it points at this gateway itself")
