"""The counter file itself: its layout, its locks, its growth, and files that are not ours."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from typing import TYPE_CHECKING, Any

import pytest

from lightgate.gateway.spend import counter_file as module
from lightgate.gateway.spend.counter_file import (
    GROWTH,
    HEADER_WORDS,
    SLOT_WORDS,
    WORD,
    CounterFile,
    CounterFileFailed,
)

if TYPE_CHECKING:
    from pathlib import Path

HEADER = HEADER_WORDS * WORD
SLOT = SLOT_WORDS * WORD


def head(path: Path) -> tuple[int, ...]:
    return struct.unpack("<5q", path.read_bytes()[:40])


MAGIC = int.from_bytes(b"LGSPEND\0", "little")


def test_a_fresh_file_has_a_header_and_room_for_some_keys(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "spend"
    with CounterFile(path) as file:
        assert len(file.words) == HEADER_WORDS + GROWTH * SLOT_WORDS
        assert (file.workers, list(file.slots())) == (0, [])
        assert not any(file.words[5:])
    assert head(path) == (MAGIC, 2, SLOT_WORDS, 0, 0)
    assert path.stat().st_size == HEADER + GROWTH * SLOT
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.stat().st_blocks * 512 >= HEADER + GROWTH * SLOT  # real room, no hole
    with pytest.raises(ValueError, match="released"):
        file.words[0]


def test_keys_have_slots_one_behind_the_other_for_everybody(tmp_path: Path) -> None:
    path = tmp_path / "spend"
    with CounterFile(path) as one, CounterFile(path) as other:
        names = [f"key-{n}" for n in range(GROWTH)]
        for number, name in enumerate(names):
            file = one if number % 2 else other
            slot = file.place(name)
            assert slot.at == HEADER_WORDS + number * SLOT_WORDS
            assert file.place(name) is slot
            kind, whence, start, length, pid = struct.unpack("hhqqi", slot.lock)
            assert (kind, whence) == (fcntl.F_WRLCK, os.SEEK_SET)
            assert (start, length, pid) == (slot.at * WORD, SLOT, 0)
            assert struct.unpack("hhqqi", slot.unlock)[0] == fcntl.F_UNLCK
            assert struct.unpack("hhqqi", slot.unlock)[1:] == (whence, start, length, pid)
        assert [name for name, _ in one.slots()] == [name for name, _ in other.slots()] == names
        assert path.stat().st_size == HEADER + GROWTH * SLOT
        last = one.place("one more")
        assert last.at == HEADER_WORDS + GROWTH * SLOT_WORDS
        assert path.stat().st_size == HEADER + 2 * GROWTH * SLOT
        one.words[last.at + 100] = 77
        found = dict(other.slots())["one more"]
        assert found == last
        assert other.words[found.at + 100] == 77
        assert other.words[last.at : last.at + 1].tobytes() == b"one more"


def test_the_longest_id_and_one_that_is_too_long(tmp_path: Path) -> None:
    with CounterFile(tmp_path / "spend") as file:
        file.place("x" * 40)
        with pytest.raises(ValueError, match="at most 40 bytes"):
            file.place("x" * 41)
        assert [name for name, _ in file.slots()] == ["x" * 40]
        file.place("y")  # nothing is held after the error


def test_a_disk_that_gives_no_room_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "spend"

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with CounterFile(path) as file:
        for number in range(GROWTH):
            file.place(f"k{number}")
        with monkeypatch.context() as patched:
            patched.setattr(os, "posix_fallocate", full)
            with pytest.raises(CounterFileFailed) as caught:
                file.place("next")
        assert caught.value.message == (
            f"The counter file {path} cannot grow: No space left on device."
        )
        assert (caught.value.status, caught.value.label) == (503, "spend")
        assert file.place("next").at == HEADER_WORDS + GROWTH * SLOT_WORDS
    monkeypatch.setattr(os, "posix_fallocate", full)
    opened = set(os.listdir("/proc/self/fd"))
    with pytest.raises(CounterFileFailed, match="cannot be opened: No space left on device"):
        CounterFile(tmp_path / "other")
    assert set(os.listdir("/proc/self/fd")) <= opened


@pytest.mark.parametrize(
    "wrong",
    [
        struct.pack("<4q", MAGIC, 1, SLOT_WORDS, 0),
        struct.pack("<4q", MAGIC, 3, SLOT_WORDS, 0),
        struct.pack("<4q", MAGIC, 2, SLOT_WORDS + 1, 0),
        struct.pack("<4q", MAGIC + 1, 2, SLOT_WORDS, 0),
        struct.pack("<4q", MAGIC, 2, SLOT_WORDS, 1),  # a key, and no room for it
    ],
)
def test_a_file_of_another_version_is_moved_aside(tmp_path: Path, wrong: bytes) -> None:
    path = tmp_path / "spend"
    path.write_bytes(wrong.ljust(HEADER, b"\0"))
    with CounterFile(path) as file:
        file.place("k")
    assert head(path)[:4] == (MAGIC, 2, SLOT_WORDS, 1)
    assert (tmp_path / "spend.old").read_bytes()[: len(wrong)] == wrong


@pytest.mark.parametrize("begun", [b"", b"x" * (HEADER - 1), bytes(HEADER), bytes(HEADER + 5)])
def test_a_file_that_was_not_begun_is_begun(tmp_path: Path, begun: bytes) -> None:
    path = tmp_path / "spend"
    path.write_bytes(begun)
    with CounterFile(path) as file:
        assert file.place("k").at == HEADER_WORDS
    assert head(path)[:4] == (MAGIC, 2, SLOT_WORDS, 1)
    assert not (tmp_path / "spend.old").exists()


def test_a_file_with_all_its_slots_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "spend"
    with CounterFile(path) as file:
        file.place("k")
    os.truncate(path, HEADER + SLOT)  # exactly its one key
    with CounterFile(path) as file:
        assert [name for name, _ in file.slots()] == ["k"]
        assert len(file.words) == HEADER_WORDS + SLOT_WORDS
        assert file.place("next").at == HEADER_WORDS + SLOT_WORDS
    assert not (tmp_path / "spend.old").exists()
    os.truncate(path, HEADER + 2 * SLOT + 8)  # and a half one behind them
    with CounterFile(path) as file:
        assert len(file.words) == HEADER_WORDS + 2 * SLOT_WORDS


def test_a_worker_counts_in_one_place_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "spend"
    now = [100.0]
    naps: list[float] = []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        now[0] += 1.0

    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])  # type: ignore[attr-defined]
    monkeypatch.setattr(module.time, "sleep", nap)  # type: ignore[attr-defined]
    with CounterFile(path) as one, CounterFile(path) as other:
        one.take_worker(2)
        assert (one.workers, other.workers) == (3, 3)
        other.take_worker(0)
        assert other.workers == 3
        with pytest.raises(CounterFileFailed) as caught:
            other.take_worker(2)
        assert caught.value.message == f"Another process counts in {path} as worker 2."
        assert naps == [0.02] * 6  # more than five seconds
        other.take_worker(3)
        assert one.workers == 4
    with CounterFile(path) as later:
        later.take_worker(2)
        assert later.workers == 4


def test_a_lock_excludes_other_objects_of_the_same_process(tmp_path: Path) -> None:
    path = tmp_path / "spend"
    with CounterFile(path) as one, CounterFile(path) as other:
        slot, beside = one.place("a"), one.place("b")
        one.lock(slot)
        tried = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, slot.at * WORD, SLOT, 0)
        with pytest.raises(BlockingIOError):
            fcntl.fcntl(other._descriptor, fcntl.F_OFD_SETLK, tried)
        other.lock(beside)  # another key is free
        other.unlock(beside)
        one.unlock(slot)
        fcntl.fcntl(other._descriptor, fcntl.F_OFD_SETLK, tried)
        other.unlock(slot)


def test_without_locks_of_ranges_the_whole_file_is_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(module, "_OFD", None)
    monkeypatch.setattr(fcntl, "flock", lambda _, how: asked.append(how))
    with CounterFile(tmp_path / "spend") as file:
        file.take_worker(1)
        assert file.workers == 2
        assert file.borrow_worker(1) is False  # nobody can see whether it lives
    assert asked == [fcntl.LOCK_EX, fcntl.LOCK_UN] * 2


def test_a_system_that_promises_no_room_gives_a_file_of_the_same_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with CounterFile(tmp_path / "usual"):
        pass
    monkeypatch.delattr(os, "posix_fallocate")
    with CounterFile(tmp_path / "spend"):
        pass
    assert (tmp_path / "spend").stat().st_size == (tmp_path / "usual").stat().st_size


def test_a_file_that_is_replaced_while_its_lock_is_waited_for_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, real, moves = tmp_path / "spend", module._lock, [1, 2]

    def lock(descriptor: int, change: bytes) -> None:
        real(descriptor, change)
        if moves and struct.unpack("hhqqi", change)[0] == fcntl.F_WRLCK:
            if moves.pop() == 2:
                path.unlink()  # gone
            else:
                path.unlink()
                path.write_bytes(b"")  # another one

    monkeypatch.setattr(module, "_lock", lock)
    with CounterFile(path) as file:
        file.place("k")
    assert head(path)[:4] == (MAGIC, 2, SLOT_WORDS, 1)


def test_the_header_is_locked_while_it_is_read_or_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where what is done under the lock fails."""
    log: list[str] = []
    with CounterFile(tmp_path / "spend") as file:
        look, take = CounterFile._look, CounterFile._take

        def looked(self: CounterFile) -> None:
            log.append("look")
            look(self)

        def taken(self: CounterFile, name: str) -> None:
            log.append("take")
            take(self, name)

        monkeypatch.setattr(CounterFile, "lock", lambda _, slot: log.append(f"lock {slot.at}"))
        monkeypatch.setattr(CounterFile, "unlock", lambda _, slot: log.append(f"unlock {slot.at}"))
        monkeypatch.setattr(CounterFile, "_look", looked)
        monkeypatch.setattr(CounterFile, "_take", taken)
        file.place("a")
        assert log == ["lock 0", "look", "take", "look", "unlock 0"]
        log.clear()
        file.place("a")  # known
        assert log == []
        assert [name for name, _ in file.slots()] == ["a"]
        assert log == ["lock 0", "look", "unlock 0"]
        log.clear()
        file.take_worker(4)
        assert (log, file.workers) == (["lock 0", "unlock 0"], 5)
        log.clear()
        with pytest.raises(ValueError, match="at most 40 bytes"):
            file.place("x" * 41)
        assert log == ["lock 0", "look", "take", "unlock 0"]


@pytest.mark.parametrize("name", ["endsX", "X", "x" * 40, "X" * 40])
def test_a_key_is_found_again_by_its_whole_name(tmp_path: Path, name: str) -> None:
    with CounterFile(tmp_path / "spend") as file:
        slot = file.place(name)
        assert file._seen == 1  # it is not looked at again
    with CounterFile(tmp_path / "spend") as file:
        assert list(file.slots()) == [(name, slot)]
        assert file._seen == 1


@pytest.mark.parametrize("worker", [0, 5, 255])
def test_a_worker_has_a_byte_beyond_every_slot(worker: int) -> None:
    kind, whence, start, length, pid = struct.unpack("hhqqi", module._worker_byte(worker, 7))
    assert (kind, whence, start, length, pid) == (7, os.SEEK_SET, 2**60 + worker, 1, 0)


def test_a_file_that_cannot_be_begun_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[int] = []

    def fails(descriptor: int, _: Path) -> bool:
        begun.append(descriptor)
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(module, "_begun", fails)
    with pytest.raises(CounterFileFailed, match="cannot be opened: Input/output error"):
        CounterFile(tmp_path / "spend")
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(begun[0])


def test_a_file_whose_making_was_killed_is_made_to_its_end(tmp_path: Path) -> None:
    """The magic number is written last: all before it may stand there already."""
    path = tmp_path / "spend"
    with CounterFile(path) as file:
        file.place("a")
    data = bytearray(path.read_bytes())
    data[:8] = bytes(8)
    path.write_bytes(data)
    CounterFile(path).close()
    assert head(path)[0] == MAGIC
    assert [one.name for one in tmp_path.iterdir()] == ["spend"]


@pytest.mark.parametrize(("keys", "kept"), [(1, True), (2, False)])
def test_a_file_that_is_shorter_than_its_keys_is_moved_aside(
    tmp_path: Path, keys: int, kept: bool
) -> None:
    path = tmp_path / "spend"
    with CounterFile(path) as file:
        for number in range(keys):
            file.place(f"k{number}")
    os.truncate(path, HEADER + SLOT)
    with CounterFile(path) as file:
        assert [name for name, _ in file.slots()] == (["k0"] if kept else [])
    assert (tmp_path / "spend.old").exists() is not kept


def test_room_that_is_there_is_not_asked_for(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path / "spend", os.O_RDWR | os.O_CREAT, 0o600)
    for slots in (2, 2, 1):
        module._enlarge(descriptor, slots)
        assert os.fstat(descriptor).st_size == HEADER + 2 * SLOT
    os.close(descriptor)


def test_a_file_that_was_put_aside_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, looked = module._begun, list[int]()

    def once_not(descriptor: int, path: Path) -> bool | None:
        looked.append(os.dup(descriptor))
        return begun(descriptor, path) if len(looked) > 1 else None

    closed, close = list[tuple[int, int]](), os.close

    def counted(descriptor: int) -> None:
        seen = os.fstat(descriptor)
        closed.append((seen.st_dev, seen.st_ino))
        close(descriptor)

    monkeypatch.setattr(module, "_begun", once_not)
    with monkeypatch.context() as patched:
        patched.setattr(os, "close", counted)
        file = CounterFile(tmp_path / "spend")
    first = os.fstat(looked[0])
    assert closed == [(first.st_dev, first.st_ino)]
    file.close()
    for descriptor in looked:
        os.close(descriptor)


def test_a_file_that_lost_one_byte_is_not_whole(tmp_path: Path) -> None:
    with CounterFile(tmp_path / "spend") as file:
        assert file.whole
        os.truncate(file.path, file.path.stat().st_size - 1)
        assert not file.whole


def test_a_file_that_has_grown_is_whole_in_its_new_size_only(tmp_path: Path) -> None:
    with CounterFile(tmp_path / "spend") as file:
        for number in range(GROWTH + 1):
            file.place(f"key {number}")
        assert file.whole
        os.truncate(file.path, HEADER + GROWTH * SLOT)  # as large as it was at first
        assert not file.whole


def test_a_file_that_is_given_up_leaves_an_empty_one_that_tells_since_when(tmp_path: Path) -> None:
    path = tmp_path / "spend"
    (tmp_path / "spend.new").mkdir()  # what another process writes there is not in the way
    with CounterFile(path) as file:
        file.take_worker(3)
        file.place("key")
        file.give_up(77)
        assert (file.words[0], file.whole, file.in_place) == (0, False, False)
    words = struct.unpack(f"<{HEADER_WORDS}q", path.read_bytes())
    assert words == (MAGIC, 2, SLOT_WORDS, 0, 0, 0, 77, *[0] * (HEADER_WORDS - 7))
