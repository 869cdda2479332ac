"""Files that are written as a whole."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest

from full_disk import full_disk
from lightgate.whole_file import own_name, put

if TYPE_CHECKING:
    from pathlib import Path


def test_a_file_is_replaced_and_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    for content in (b"one", b"two"):
        put(path, content, sync=True)
        assert path.read_bytes() == content
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [one.name for one in tmp_path.iterdir()] == ["a.json"]


def test_a_reader_keeps_what_it_has_opened(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    put(path, b"old")
    with path.open("rb") as reader:
        put(path, b"new and longer")
        assert reader.read() == b"old"


def test_a_full_disk_leaves_the_old_one_and_no_part_of_the_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.json"
    put(path, b"old")
    full_disk(monkeypatch)
    with pytest.raises(OSError, match="No space left"):
        put(path, b"new")
    monkeypatch.undo()
    assert [(one.name, one.read_bytes()) for one in tmp_path.iterdir()] == [("a.json", b"old")]


def test_what_a_kill_left_is_written_over(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    (tmp_path / "a.json.new").write_bytes(b"half of someth")
    put(path, b"new")
    assert [(one.name, one.read_bytes()) for one in tmp_path.iterdir()] == [("a.json", b"new")]


def test_each_of_many_writers_has_its_own_name(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    (tmp_path / "a.json.new").write_bytes(b"of another process")
    put(path, b"new", unborn=own_name(path), mode=0o644)
    assert own_name(path) == f"a.json.{os.getpid()}.new"
    assert {one.name for one in tmp_path.iterdir()} == {"a.json", "a.json.new"}
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
