"""Coding agents as they come from npm: where each is, and how it is told of a gateway.

Nothing is set but the address, a key, and the switches that keep an agent off the network.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[3]
NODE = ROOT / ".venv-node" / "bin" / "node"
PACKAGES = ROOT / ".node-agents" / "node_modules"
READY = (NODE, ROOT / ".node-agents" / "stamp")  # there once all is installed
TASK = "Write a greeting into the file note.txt."


class Told(NamedTuple):
    """What an agent is started with: words behind its program, variables, files in its home."""

    words: tuple[str, ...]
    variables: dict[str, str]
    files: dict[str, str]


class Agent(NamedTuple):
    """One agent: its package, the program in it, and how it is told of a gateway and a key.

    `older` is a model that it speaks to in another way than to its own choice.
    """

    title: str
    package: str
    program: str
    told: Callable[[str, str], Told]
    older: str

    @property
    def version(self) -> str:
        """The version that is pinned."""
        lock = json.loads((ROOT / "requirements/npm-agents/package-lock.json").read_text("utf-8"))
        version: str = lock["packages"][f"node_modules/{self.package}"]["version"]
        return version

    @property
    def path(self) -> Path:
        """The program, which Node runs."""
        return PACKAGES / self.package / self.program


def claude_code(url: str, key: str) -> Told:
    variables = {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": key,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
    }
    return Told(("-p", TASK, "--permission-mode", "acceptEdits"), variables, {})


def codex(url: str, key: str) -> Told:
    config = f"""\
model_provider = "lightgate"
check_for_update_on_startup = false
[model_providers.lightgate]
name = "Lightgate"
base_url = "{url}/v1"
env_key = "LIGHTGATE_API_KEY"
wire_api = "responses"
[analytics]
enabled = false
[features]
plugins = false
"""
    # Its own sandbox needs rights that a container may not have; the task is harmless.
    words = ("exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", TASK)
    return Told(words, {"LIGHTGATE_API_KEY": key}, {".codex/config.toml": config})


def gemini_cli(url: str, key: str) -> Told:
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
    }
    variables = {
        "GOOGLE_GEMINI_BASE_URL": url,
        "GEMINI_API_KEY": key,
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
        "GEMINI_CLI_NO_RELAUNCH": "true",
    }
    return Told(("--yolo", "-p", TASK), variables, {".gemini/settings.json": json.dumps(settings)})


AGENTS = {
    "claude-code": Agent(
        "Claude Code",
        "@anthropic-ai/claude-code",
        "cli-wrapper.cjs",
        claude_code,
        "claude-sonnet-4-5",
    ),
    "codex": Agent("Codex", "@openai/codex", "bin/codex.js", codex, "gpt-5.2-codex"),
    "gemini-cli": Agent(
        "gemini-cli",
        "@google/gemini-cli",
        "bundle/gemini.js",
        gemini_cli,
        "gemini-2.5-pro",
    ),
}
