"""`.env`: a small grammar, the environment above it, and what it may not do."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightgate.config.dotenv import add_env_file, parse_env
from lightgate.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("A=1", "1"),
        ("export A=1", "1"),
        (" A = 1 ", "1"),
        ("A=", ""),
        ("A=sk-a#b", "sk-a#b"),
        ("A=sk-a # the key", "sk-a"),
        ("A=#", ""),
        ("A='x y' # c", "x y"),
        ("A='a\\n$B'", "a\\n$B"),
        ('A="a\\n\\"b\\" \\$C"', 'a\n"b" $C'),
        ("A=$HOME", "$HOME"),
        ("A=a=b", "a=b"),
        ('A="one\ntwo"', "one\ntwo"),
        ("A='one\ntwo' # c", "one\ntwo"),
        ("\ufeffA=1\r\n", "1"),
        ("A=1\nA=2", "2"),
    ],
)
def test_values(line: str, value: str) -> None:
    assert parse_env(line) == {"A": value}


def test_blank_lines_and_comments_are_nothing() -> None:
    assert parse_env("\n  # A=1\n\t\nB=2\n") == {"B": "2"}


@pytest.mark.parametrize(
    "line", ["FOO", "1A=2", "A B=1", "a.b=1", 'A="x', "A='x", 'A="x" y', "=1", "export A"]
)
def test_a_malformed_line_is_an_error_with_its_number_and_without_its_text(line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_env(f"OK=1\n{line}sk-CANARY")
    assert caught.value.problems[0].startswith(".env:2: ")
    assert "CANARY" not in str(caught.value.problems)


def test_every_malformed_line_is_named_at_once() -> None:
    with pytest.raises(ConfigError, match="2 problems") as caught:
        parse_env("x\nA=1\ny")
    assert [problem[:7] for problem in caught.value.problems] == [".env:1:", ".env:3:"]


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        found = parse_env(text)
    except ConfigError:
        return
    assert all(name.isidentifier() and "\0" not in value for name, value in found.items())


def written(folder: Path, text: str | bytes, mode: int = 0o600) -> Path:
    path = folder / ".env"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    path.chmod(mode)
    return path


def test_the_environment_stands_above_the_file(tmp_path: Path) -> None:
    written(tmp_path, "A=file\nB=file\nC=file")
    env = {"A": "outside", "B": ""}
    assert add_env_file(env, tmp_path) == []
    assert env == {"A": "outside", "B": "", "C": "file"}


def test_a_file_that_others_can_read_is_read_with_a_warning(tmp_path: Path) -> None:
    written(tmp_path, "A=1", mode=0o644)
    env: dict[str, str] = {}
    assert add_env_file(env, tmp_path) == [
        ".env can be read by other users of this machine: chmod 600 .env"
    ]
    assert env == {"A": "1"}


def test_variables_that_change_how_programs_run_are_ignored(tmp_path: Path) -> None:
    written(tmp_path, "PATH=/evil\nLD_PRELOAD=x\nPYTHONPATH=y\nDYLD_INSERT_LIBRARIES=z\nA=1")
    env: dict[str, str] = {}
    (remark,) = add_env_file(env, tmp_path)
    assert "DYLD_INSERT_LIBRARIES, LD_PRELOAD, PATH, PYTHONPATH cannot be set there" in remark
    assert env == {"A": "1"}


def test_no_file_a_folder_and_a_pipe_are_nothing(tmp_path: Path) -> None:
    assert add_env_file({}, tmp_path) == []
    (tmp_path / ".env").mkdir()
    assert add_env_file({}, tmp_path) == []
    (tmp_path / ".env").rmdir()
    os.mkfifo(tmp_path / ".env")
    assert add_env_file({}, tmp_path) == []


def test_a_file_of_another_user_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = written(tmp_path, "A=1").stat().st_uid
    if owner == 0:
        os.chown(tmp_path / ".env", 12345, -1)
    else:
        monkeypatch.setattr("os.getuid", lambda: owner + 1)
    env: dict[str, str] = {}
    assert add_env_file(env, tmp_path) == [".env is not read: it belongs to another user."]
    assert env == {}


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    written(tmp_path, b"A=\xff")
    with pytest.raises(ConfigError, match="not UTF-8"):
        add_env_file({}, tmp_path)
    written(tmp_path, b"#" * (1024 * 1024 + 1))
    with pytest.raises(ConfigError, match="larger than"):
        add_env_file({}, tmp_path)
