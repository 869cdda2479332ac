"""The Dockerfile: another project's linter takes it, and what it says holds in the tree."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from deploy.dockerfile import FILE, exec_form, instructions, last
from lightgate.cli.up import command as up

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
IGNORED = FILE.with_name("Dockerfile.dockerignore")


def test_hadolint_takes_it(tool: Callable[..., str]) -> None:
    assert tool("hadolint", "--failure-threshold", "style", str(FILE)) == ""


def test_hadolint_would_say_something(tool: Callable[..., str], tmp_path: Path) -> None:
    worse = tmp_path / "Dockerfile"
    worse.write_text("FROM python\nRUN cd /src\nUSER root\n")
    said = tool("hadolint", str(worse), fails=True)
    assert {"DL3006", "DL3003", "DL3002"} <= set(re.findall(r"DL\d+", said))


def test_two_stages_of_one_base_and_nothing_but_the_environment_goes_over() -> None:
    bases = [rest for word, rest in instructions() if word == "FROM"]
    assert bases == ["${PYTHON_IMAGE} AS build", "${PYTHON_IMAGE}"]
    second = instructions()[[word for word, _ in instructions()].index("FROM", 2) :]
    copied = [rest for word, rest in second if word == "COPY"]
    assert copied == ["--from=build /opt/lightgate /opt/lightgate"]
    assert "slim" in next(rest for word, rest in instructions() if word == "ARG")


def test_it_is_not_root_and_installs_only_what_is_locked() -> None:
    assert last("USER") == "10001:10001"
    assert last("VOLUME") == last("WORKDIR") == "/var/lib/lightgate"
    installs = re.findall(r"pip install ([^&]+)", "\n".join(rest for _, rest in instructions()))
    assert len(installs) == 3
    for one in installs:
        assert one.startswith(("--require-hashes -r ", "--no-deps /dist/"))


def test_no_secret_is_built_in() -> None:
    for word, rest in instructions():
        if word in {"ARG", "ENV"}:
            assert not re.search(r"key|secret|password|token", rest, re.IGNORECASE), rest


def test_its_command_is_one_of_ours() -> None:
    assert exec_form("ENTRYPOINT") == ["lightgate"]
    given = exec_form("CMD")
    known = {name for option in up.params for name in option.opts}
    assert given[0] == up.name
    assert {word for word in given if word.startswith("--")} <= known
    assert "/health/ready" in " ".join(exec_form("HEALTHCHECK"))


def test_what_is_copied_is_not_ignored_and_is_there() -> None:
    lines = IGNORED.read_text().splitlines()
    let_in = {line[1:] for line in lines if line.startswith("!")}
    assert "*" in lines
    first = [rest.split() for word, rest in instructions() if word == "COPY" and "--" not in rest]
    sources = {one for words in first for one in words[:-1]}
    assert sources == let_in
    for one in sources:
        assert (ROOT / one).exists(), one
