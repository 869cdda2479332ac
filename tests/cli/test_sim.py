from __future__ import annotations

import http.client
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner

from lightgate.cli.sim import command
from lightgate.errors import Exit
from lightgate.sim.world_file import shipped

if TYPE_CHECKING:
    from collections.abc import Iterator


class Running:
    """`lightgate sim` as a user starts it."""

    def __init__(self, *words: str) -> None:
        env = {**os.environ, "NO_COLOR": "1"}
        self.child = subprocess.Popen(
            [sys.executable, "-m", "lightgate", "sim", "--port", "0", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=env,
        )

    def line(self) -> str:
        assert self.child.stdout is not None
        return self.child.stdout.readline()

    def stop(self, how: signal.Signals) -> tuple[int, str]:
        self.child.send_signal(how)
        _, err = self.child.communicate(timeout=100)
        return self.child.returncode, err


def fetch(url: str, body: str | None = None) -> tuple[int, bytes]:
    """GET, or POST with a body."""
    parts = urlsplit(url)
    line = http.client.HTTPConnection(parts.netloc)
    line.request("GET" if body is None else "POST", f"{parts.path}?{parts.query}", body)
    answer = line.getresponse()
    data = answer.read()
    line.close()
    return answer.status, data


@pytest.fixture
def start() -> Iterator[type[Running]]:
    made: list[Running] = []

    class Kept(Running):
        def __init__(self, *words: str) -> None:
            super().__init__(*words)
            made.append(self)

    yield Kept
    for running in made:
        if running.child.poll() is None:
            running.child.kill()
        running.child.communicate()


@pytest.mark.parametrize(("how", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_json_is_one_line_of_facts(start: type[Running], how: signal.Signals, code: int) -> None:
    running = start("--world", "selftest", "--seed", "5", "--ports", "--json")
    facts = json.loads(running.line())
    assert (facts["world"], facts["seed"]) == ("selftest", 5)
    status, body = fetch(f"{facts['providers']['lab']}/models")
    assert status == 200
    assert json.loads(body)["data"][0]["id"] == "s1"
    ended, err = running.stop(how)
    assert ended == code
    assert "Traceback" not in err


@pytest.mark.parametrize("world", ["providers-2026", "production-2024", "tables-2025"])
def test_the_table_shows_base_urls_and_a_line_to_paste(start: type[Running], world: str) -> None:
    running = start("--world", world)
    text = ""
    while "Try: " not in text:
        line = running.line()
        assert line
        text += line
    assert re.search(r"http://127\.0\.0\.1:\d+/groq/v1\b", text)
    words = shlex.split(text.rsplit("Try: ", 1)[1])
    assert words[0] == "curl"
    body = words[words.index("-d") + 1]
    status, answer = fetch(words[2], body)
    assert status == 200
    assert answer.startswith(b"data: ")
    assert running.stop(signal.SIGTERM)[0] == 0


def test_the_worlds_are_listed() -> None:
    plain = CliRunner().invoke(command, ["--worlds"])
    assert all(name in plain.output for name in shipped())
    as_json = CliRunner().invoke(command, ["--worlds", "--json"])
    assert [row["name"] for row in json.loads(as_json.output)] == list(shipped())


def test_help_has_an_example() -> None:
    shown = CliRunner().invoke(command, ["--help"]).output
    assert "Example: lightgate sim" in shown


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("--world", "atlantis"), 2, "no world 'atlantis'"),
        (("--port", "99999"), 2, "99999"),
        (("--host", "203.0.113.1"), 2, "cannot listen"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(words: tuple[str, ...], code: int, says: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "lightgate", "sim", "--port", "0", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_a_port_that_another_program_has_is_a_failure_like_that_of_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = subprocess.run(
            [sys.executable, "-m", "lightgate", "sim", "--port", port], capture_output=True,
            text=True, check=False, timeout=100,
        )  # fmt: skip
    assert done.returncode == Exit.FAILURE
    assert f"Port {port} on 127.0.0.1 is in use by another program." in done.stderr
