from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import pytest
from click.testing import CliRunner

from lightgate.cli.bench import command
from lightgate.cli.bench_file import defaults, file_option
from lightgate.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

FILE = """
targets = ["groq/llama-3.3-70b-versatile", "mine=http://127.0.0.1:8000/v1#m"]
concurrency = [1, 8, 32]
requests = 200
prompt-tokens = "normal:512,128"
fail-if = ["ttft_p95>500ms", "error_rate>1%"]
body = { top_p = 0.9 }
stream = false
aa = false
temperature = 0.7
"""


@click.command()
@click.argument("targets", nargs=-1)
@click.option("--concurrency", default="1,8,32")
@click.option("--requests", type=int)
@click.option("--fail-if", "limits", multiple=True)
@click.option("--aa/--no-aa", default=True)
@file_option
def small(**given: Any) -> None:
    click.echo(repr(sorted(given.items() - {("file", given["file"])})))


def said(path: Path, *arguments: str) -> str:
    done = CliRunner().invoke(small, ["--file", str(path), *arguments], catch_exceptions=False)
    return done.output


def test_a_file_gives_options_their_defaults(tmp_path: Path) -> None:
    path = tmp_path / "bench.toml"
    path.write_text(FILE)
    found = defaults(command, path)
    assert found["targets"] == ("groq/llama-3.3-70b-versatile", "mine=http://127.0.0.1:8000/v1#m")
    assert found["concurrency"] == "1,8,32"
    assert found["requests"] == "200"
    assert found["limits"] == ("ttft_p95>500ms", "error_rate>1%")
    assert found["body"] == '{"top_p":0.9}'
    assert (found["stream"], found["aa"]) == (False, False)


def test_the_command_line_goes_before_the_file(tmp_path: Path) -> None:
    path = tmp_path / "bench.toml"
    path.write_text('targets = ["a/b"]\nrequests = 200\nconcurrency = "4"\naa = false\n')
    assert "('requests', 200)" in said(path)
    assert "('targets', ('a/b',))" in said(path)
    assert "('aa', False)" in said(path)
    more = said(path, "c/d", "--requests", "7", "--aa")
    assert "('requests', 7)" in more
    assert "('targets', ('c/d',))" in more
    assert "('concurrency', '4')" in more
    assert "('aa', True)" in more


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("concurency = 3", "no option 'concurency'"),
        ("yes = true", "no option 'yes'"),
        ("aa = 3", "true or false"),
        ("requests = true", "not true or false"),
        ("requests = ", "no TOML"),
    ],
)
def test_what_cannot_be_meant_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bench.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        defaults(command, path)
    with pytest.raises(ConfigError, match="cannot be read"):
        defaults(command, tmp_path / "none.toml")
