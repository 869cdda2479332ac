"""Files that are written as a whole."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest

from full_disk import full_disk
from lightgate.whole_file import SPARE_BYTES, own_name, put, put_always

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


# Room that is set aside


def contents(folder: Path) -> dict[str, bytes]:
    return {one.name: one.read_bytes() for one in folder.iterdir()}


def test_a_full_disk_takes_what_there_is_room_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.json"
    put_always(path, b"zero")
    assert contents(tmp_path) == {"a.json": b"zero", "a.json.spare": bytes(SPARE_BYTES)}
    assert stat.S_IMODE((tmp_path / "a.json.spare").stat().st_mode) == 0o600
    full_disk(monkeypatch)
    (tmp_path / "a.json.old").write_bytes(b"of a process that was killed")
    for before, content in ((b"zero", b"one"), (b"one", b"two"), (b"two", b"six")):
        with path.open("rb") as reader:
            put_always(path, content)
            assert reader.read() == before
        assert contents(tmp_path) == {"a.json": content, "a.json.spare": before}
    monkeypatch.undo()
    put_always(path, b"room again")
    assert path.read_bytes() == b"room again"
    assert (tmp_path / "a.json.spare").stat().st_size == SPARE_BYTES


def test_a_full_disk_without_enough_room_aside_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.json"
    put(path, b"old")
    full_disk(monkeypatch)
    with pytest.raises(OSError, match="No space left"):  # nothing was set aside
        put_always(path, b"new")
    assert contents(tmp_path) == {"a.json": b"old"}
    (tmp_path / "a.json.spare").write_bytes(b"room")
    monkeypatch.setattr("lightgate.whole_file.os.pwrite", lambda *_: 2)  # it takes a part
    with pytest.raises(OSError, match="No space left"):
        put_always(path, b"new")
    assert contents(tmp_path) == {"a.json": b"old", "a.json.spare": b"room"}


def test_the_room_aside_grows_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    for size, blocks in ((1, 1), (SPARE_BYTES, 2), (2 * SPARE_BYTES, 3), (1, 3)):
        put_always(path, bytes(size))
        found = (tmp_path / "a.json.spare").stat()
        assert found.st_size == blocks * SPARE_BYTES
        assert found.st_blocks * 512 >= found.st_size  # no hole


def test_another_fault_than_a_full_disk_is_not_hidden(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    put_always(path, b"old")
    path.unlink()
    path.mkdir()
    with pytest.raises(IsADirectoryError):
        put_always(path, b"new")
