"""Every command line of README.md and of the pages is one that the program takes; README's are run.

What takes minutes (the self test, a whole benchmark of nginx) is only read, not run, here.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import signal
import socket
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pytest
from click.testing import CliRunner

from lightgate.bench.rehearse import rehearse
from lightgate.cli.main import cli
from lightgate.sim.server.serve import SimOptions
from lightgate.sim.server.spawn import SimProcess
from sdk.environment import python_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^(?:\$ )?(lightgate [a-z].*)$", re.MULTILINE)
INLINE = re.compile(r"`(lightgate [a-z][^`]*)`")
APP = """
from openai import OpenAI

answer = OpenAI().chat.completions.create(
    model="gpt-4o", max_tokens=8, messages=[{"role": "user", "content": "Say something."}]
)
print(answer.choices[0].message.content)
"""


def in_blocks(text: str) -> list[str]:
    """The command lines of a page's blocks."""
    found = []
    for kind, block in FENCE.findall(text):
        if kind in {"", "sh", "console", "bash"}:
            found += COMMAND.findall(re.sub(r"\\\n\s*", " ", block))
    return found


def words_of(line: str) -> list[str]:
    """The words of a command line, up to what the shell takes for itself."""
    found = shlex.split(line, comments=True)[1:]
    ends = [at for at, word in enumerate(found) if word in {"&", "|", ">", "&&", ";"}]
    return found[: ends[0]] if ends else found


def command_of(words: list[str]) -> tuple[click.Command, list[str]]:
    """The command that the first words name, and the other words."""
    command: click.Command = cli
    context = click.Context(cli)
    while isinstance(command, click.Group) and words:
        found = command.get_command(context, words[0])
        if found is None:
            raise click.UsageError(f"There is no {words[0]!r}.")
        command, words = found, words[1:]
    return command, words


def listed(find: Callable[[str], list[str]]) -> list[Any]:
    found = {(page.name, line): page for page in PAGES for line in find(page.read_text("utf-8"))}
    return [pytest.param(line, id=f"{name}: {line}"[:90]) for name, line in found]


LINES = listed(in_blocks)
SAID = listed(lambda text: INLINE.findall(FENCE.sub("", text)))


@pytest.mark.parametrize("line", LINES)
def test_every_command_line_is_one_that_is_taken(line: str) -> None:
    command, words = command_of(words_of(line.replace("TOOL", "vllm").replace("[OPTIONS] ", "")))
    required = ["--every", "6h"] if command.name == "add" and "--every" not in words else []
    if words and not isinstance(command, click.Group):
        command.make_context(command.name, [*required, *words])


@pytest.mark.parametrize("line", SAID)
def test_every_option_in_a_sentence_exists(line: str) -> None:
    command, words = command_of(words_of(line))
    known = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
    given = words[: words.index("--")] if "--" in words else words
    assert {word for word in given if word.startswith("--")} <= known | {"--help"}


def test_the_lines_are_found() -> None:
    assert len(LINES) > 60
    assert len(SAID) > 30
    command, words = command_of(["bench", "--no-such-flag"])
    with pytest.raises(click.UsageError):
        command.make_context("bench", words)


# README, as a reader would try it


def block_under(heading: str, at: int = 0) -> list[str]:
    """The lines of a block under a heading of README."""
    section = README.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    _, text = FENCE.findall(section)[at]
    return [line for line in text.splitlines() if line]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


def program(path: Path, command: str) -> None:
    """Write a program that is another one."""
    path.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    path.chmod(0o755)


@pytest.fixture
def shell(tmp_path: Path) -> dict[str, str]:
    """The environment of a shell that has the command and nothing of the developer's."""
    (tmp_path / "bin").mkdir()
    program(tmp_path / "bin" / "lightgate", f"{shlex.quote(sys.executable)} -m lightgate")
    own = {"PYTHONPATH": os.environ["PYTHONPATH"]} if "PYTHONPATH" in os.environ else {}
    return own | {  # a worktree tests its own sources
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path),
    }


@asynccontextmanager
async def serving(
    line: str, env: dict[str, str], folder: Path, ready: bytes
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a line that serves, in a shell; it is told to stop at the end."""
    process = await asyncio.create_subprocess_shell(
        f"exec {line}", cwd=folder, env=env,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        said = b""
        while ready not in said:
            line_read = await process.stdout.readline()
            assert line_read, said.decode()
            said += line_read
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGINT)
        await process.communicate()


async def run(line: str, env: dict[str, str], folder: Path) -> str:
    process = await asyncio.create_subprocess_shell(
        line, cwd=folder, env=env,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await process.communicate()
    assert process.returncode == 0, f"{line}: {err.decode()}"
    return out.decode()


async def test_with_your_own_key(
    shell: dict[str, str], tmp_path: Path, missing: Callable[[str], None]
) -> None:
    """The three lines, with the openai SDK as the program and a simulator as OpenAI."""
    if not python_of("openai").exists():
        missing("There is no .venv-sdk-openai: `make test` makes it.")
    key, up, app = block_under("With your own key")
    assert key.startswith("export OPENAI_API_KEY=")
    shell["OPENAI_API_KEY"] = key.partition("=")[2]
    (tmp_path / "your_app.py").write_text(APP)
    program(tmp_path / "bin" / "python", shlex.quote(str(python_of("openai"))))
    gateway, console = free_port(), free_port()
    with SimProcess(SimOptions(world="providers-2026")) as sim:
        env = shell | {"OPENAI_BASE_URL": sim.facts.providers["openai"]}
        line = f"{up} --port {gateway} --console-port {console} --log text"
        async with serving(line, env, tmp_path, b"Ctrl-C"):
            # The shell of the program reads its base URL from the line alone.
            said = await run(app.replace("8080", str(gateway)), shell, tmp_path)
    assert len(said.split()) == 8  # words of the simulated model


async def test_the_answer_of_the_demo_has_the_headers_that_are_shown(
    shell: dict[str, str], tmp_path: Path
) -> None:
    curl, *shown = block_under("Who it is for")
    report, *_ = block_under("Who it is for", 1)
    names = {line.partition(":")[0] for line in shown if line.startswith("x-lightgate-")}
    gateway, console = free_port(), free_port()
    line = f"lightgate up --port {gateway} --console-port {console} --log text"
    async with serving(line, shell, tmp_path, b"Ctrl-C"):
        said = await run(curl.removeprefix("$ ").replace("8080", str(gateway)), shell, tmp_path)
        assert said.startswith("HTTP/1.1 200 OK")
        assert names - {one.partition(":")[0] for one in said.splitlines()} == set()
        assert "Speed by target" in await run(report.removeprefix("$ "), shell, tmp_path)


async def test_a_simulated_provider_is_examined_and_benched(
    shell: dict[str, str], tmp_path: Path
) -> None:
    sim, *rest = [line.removeprefix("$ ") for line in block_under("Who it is for", 2)]
    port = str(free_port())
    async with serving(sim.replace("9000", port).rstrip("& "), shell, tmp_path, b"Ctrl-C"):
        lines = [line.replace("9000", port) for line in rest]
        lines[1] += " --duration 4s"  # in the place of the half minutes of --quick
        shown = [await run(line, shell, tmp_path) for line in lines]
    assert shown[0].splitlines()[1].split()[:2] == ["groq", "ok"]
    assert "c=8, by TTFT p50" in shown[1]
    assert (tmp_path / "runs" / "first" / "report.html").exists()


def named_rehearsal(world: str) -> tuple[str, list[str]]:
    """The row of the README that names a rehearsal of this world, and the words of the command."""
    row = next(
        line for line in README.splitlines() if f"`lightgate rehearse --world {world}" in line
    )
    (command,) = INLINE.findall(row)
    return row, words_of(command)


def rehearsed(words: list[str]) -> dict[str, Any]:
    """What the command prints, by policy."""
    done = CliRunner().invoke(cli, [*words, "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.stderr
    return {one["policy"]: one for one in json.loads(done.stdout)["policies"]}


@pytest.fixture
def fewer(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Leaves out policies that the command plays beside the chosen one, all but one."""

    def only(name: str) -> None:
        monkeypatch.setattr(rehearse, "EDGES", (name,))

    return only


@pytest.mark.parametrize("world", ["T4", "queue"])
def test_a_rehearsed_policy_does_not_depend_on_those_beside_it(
    world: str, fewer: Callable[[str], None]
) -> None:
    """The tests below need two policies of ten, and play no other."""
    _, words = named_rehearsal(world)
    whole = rehearsed([*words, "--requests", "100"])
    for name in (rehearse.FIXED, rehearse.ORACLE):
        fewer(name)
        few = rehearsed([*words, "--requests", "100"])
        assert few.keys() == {name, "chat, hedge auto"}
        beside = {"x_oracle", "x_oracle_end"}
        for policy, row in few.items():
            assert {k: v for k, v in row.items() if k not in beside} == {
                k: v for k, v in whole[policy].items() if k not in beside
            }


def test_the_rehearsed_weather_is_that_of_the_command(fewer: Callable[[str], None]) -> None:
    fewer(rehearse.FIXED)
    row, words = named_rehearsal("T4")
    rows = rehearsed(words)
    fixed, ours = rows["fixed-best"], rows["chat, hedge auto"]
    shares = [f"{100 * one['over_1s']['mean']:.1f} %" for one in (fixed, ours)]
    assert f"**{' down to '.join(shares)}**" in row
    tails = [f"{one['ttft_p99_s']['mean']:.1f}" for one in (fixed, ours)]
    assert f"p99 from {' to '.join(tails)} s" in row
    spent = [f"{100 * ours[bill]['mean']:.0f}" for bill in ("spend_honoured", "spend_mixed")]
    assert f"for {' to '.join(spent)} % more money" in row


def test_the_rehearsed_queue_is_that_of_the_command(fewer: Callable[[str], None]) -> None:
    fewer(rehearse.ORACLE)
    row, words = named_rehearsal("queue")
    rows = rehearsed(words)
    ours, knows = rows["chat, hedge auto"]["ttft_p95_s"], rows["oracle"]["ttft_p95_s"]
    assert f"**{ours['mean']:.2f} s** beside {knows['mean']:.2f} s" in row


def test_the_picture_is_there_and_of_a_page() -> None:
    first = re.search(r"!\[[^\]]+\]\(([^)]+)\)", README)
    assert first is not None
    assert (ROOT / first[1]).read_bytes().startswith(b"\x89PNG")
