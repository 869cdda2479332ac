"""Every snippet of the quick start runs as it stands, against the demo of `lightgate up`."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from lightgate.config.load import parse_config
from lightgate.config.model import Config
from lightgate.gateway.process.demo import with_simulated
from lightgate.gateway.served.resolve import make_snapshot
from lightgate.gateway.served.snapshot import put_snapshot
from lightgate.sim.server.serve import SimOptions
from lightgate.sim.server.spawn import SimProcess
from lightgate.sim.world_file import load
from sdk.environment import ROOT, bare_env, run_in
from sdk.gate import worker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.sdk
GUIDES = ROOT / "docs" / "guides"
PAGE = (GUIDES / "quick-start-sdks.md").read_text("utf-8")
WORLD = "providers-2026"  # the demo's
HERE = "http://127.0.0.1:8080"  # the address on the page
ENVIRONMENTS = {
    "openai": "openai",
    "anthropic": "anthropic",
    "google-genai": "google",
    "LangChain": "langchain",
}
WORDS = re.compile(r"(?: [a-z]{3}){8}")


def snippet(section: str, language: str) -> str:
    text = PAGE.split(f"\n## {section}\n", 1)[1].split("\n## ", 1)[0]
    (found,) = re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)
    return str(found)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    data = tmp_path_factory.mktemp("demo")
    with SimProcess(SimOptions(world=WORLD)) as sim:
        config = with_simulated(Config(), sim.facts, load(WORLD))
        put_snapshot(data, make_snapshot(config, (), {}))
        with worker(data) as port:
            yield f"http://127.0.0.1:{port}"


@pytest.mark.parametrize("section", ENVIRONMENTS)
def test_a_snippet(section: str, demo: str, require: Callable[[str], None]) -> None:
    sdk = ENVIRONMENTS[section]
    require(sdk)
    code = snippet(section, "python")
    assert code.count(HERE) == 1
    done = run_in(sdk, "-c", code.replace(HERE, demo))
    assert done.returncode == 0, done.stderr
    assert WORDS.fullmatch(done.stdout.rstrip("\n"))
    assert WORDS.fullmatch(snippet(section, "text").rstrip("\n"))


def test_the_command(demo: str, missing: Callable[[str], None]) -> None:
    if shutil.which("curl") is None:
        missing("curl is missing")
    done = subprocess.run(
        ["sh", "-c", snippet("curl", "sh").replace(HERE, demo)],
        capture_output=True, timeout=60, check=True, env=bare_env(),
    )  # fmt: skip
    assert WORDS.fullmatch(json.loads(done.stdout)["choices"][0]["message"]["content"])


def test_the_models_that_the_page_names(demo: str) -> None:
    world = load(WORLD)
    assert f"`sim-anthropic/{list(world.providers['anthropic'].models)[-1]}`" in PAGE
    assert demo


def test_the_configuration_of_the_guide_to_failures_is_valid() -> None:
    (text,) = re.findall(
        r"```toml\n(.*?)```", (GUIDES / "failures.md").read_text("utf-8"), re.DOTALL
    )
    assert list(parse_config(text).models) == ["pair", "breaks", "gone"]
