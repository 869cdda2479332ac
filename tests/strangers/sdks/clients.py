"""The SDKs and frameworks: which environment each lives in, and how its driver is run."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from strangers.agents.agents import NODE

if TYPE_CHECKING:
    from strangers.fence import Fence
    from strangers.lab import StrangersLab

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
LIMIT_S = 250


class Client(NamedTuple):
    """One client: its title in the table, its driver, the environment that it is installed in."""

    title: str
    driver: str
    home: str

    @property
    def ready(self) -> bool:
        """Whether the environment is installed, and Node where it is needed."""
        return (ROOT / self.home / "stamp").exists() and (self.home != NPM or NODE.exists())


PYTHON_3, PYTHON_2, NPM = ".venv-clients-openai3", ".venv-clients-openai2", ".node-sdks"
CLIENTS = {
    "openai": Client("openai (Python)", "drive_openai.py", PYTHON_3),
    "anthropic": Client("anthropic (Python)", "drive_anthropic.py", PYTHON_3),
    "google-genai": Client("google-genai (Python)", "drive_google.py", PYTHON_3),
    "openai-node": Client("openai (Node)", "drive_openai.mjs", NPM),
    "anthropic-node": Client("@anthropic-ai/sdk (Node)", "drive_anthropic.mjs", NPM),
    "vercel": Client("Vercel AI SDK", "drive_vercel.mjs", NPM),
    "langchain": Client("LangChain", "drive_langchain.py", PYTHON_3),
    "langchain-google": Client("LangChain", "drive_langchain_google.py", PYTHON_2),
    "llama-index": Client("LlamaIndex", "drive_llama_index.py", PYTHON_2),
    "pydantic-ai": Client("pydantic-ai", "drive_pydantic_ai.py", PYTHON_3),
    "instructor": Client("instructor", "drive_instructor.py", PYTHON_2),
    "openai-agents": Client("openai-agents", "drive_agents.py", PYTHON_3),
    "llm": Client("llm", "drive_llm.py", PYTHON_3),
    "litellm": Client("litellm", "drive_litellm.py", PYTHON_2),
}


# What the types of the makers' present SDKs do not have, and what is right all the same.
PASSED_ON = {
    # Claude Code, Codex and Anthropic's tool runners in their own dialect: parts of betas.
    "/messages: context_management is not a field",
    "/messages: thread is not a field",
    "/responses: client_metadata is not a field",
    (
        "/responses: input.list[union[EasyInputMessagePar.*.EasyInputMessageParam.content.str:"
        " Input should be a valid string"
    ),  # an item with additional tools
    # LlamaIndex in Anthropic's own dialect: null.
    "/messages: tool_choice.ToolChoiceAutoParam: Input should be a valid dictionary",
    # The SDK has dropped them; models of older generations take them, others are not told.
    "/messages: temperature is not a field",
    "/messages: top_p is not a field",
}


class Driven(NamedTuple):
    """What came of a client: the versions, and by form, feature and gateway what was wrong."""

    versions: dict[str, str]
    seen: dict[str, dict[str, dict[str, str | None]]]


def run_driver(client: Client, lab: StrangersLab, fence: Fence, at: Path) -> Driven:
    """Use a client in all its ways, in a folder and with a home of its own."""
    home = at / "home"
    home.mkdir(parents=True)
    facts = json.dumps({"urls": lab.urls, "key": lab.key})
    program = ROOT / client.home / "bin" / "python"
    driver = HERE / client.driver
    if client.home == NPM:
        program = NODE
        (at / "node_modules").symlink_to(ROOT / NPM / "node_modules")
        for name in ("drive.mjs", client.driver):
            shutil.copy(HERE / name, at)
        driver = at / client.driver
    done = subprocess.run(
        [program, driver, facts], cwd=at, capture_output=True, text=True, timeout=LIMIT_S,
        check=False, env={"PATH": "/usr/bin:/bin", "HOME": str(home), **fence.environment()},
    )  # fmt: skip
    if done.returncode:
        raise AssertionError(f"{client.driver} ended with {done.returncode}: {done.stderr[-3000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return Driven(found["versions"], found["seen"])


def judged(heard: list[tuple[str, Any]]) -> list[str]:
    """What the makers' own SDKs have against requests that reached simulated providers."""
    done = subprocess.run(
        [ROOT / PYTHON_3 / "bin" / "python", HERE / "judge.py"], input=json.dumps(heard),
        capture_output=True, text=True, timeout=LIMIT_S, check=True,
    )  # fmt: skip
    found: list[str] = json.loads(done.stdout)
    return found
