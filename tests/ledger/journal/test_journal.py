from __future__ import annotations

import contextlib
import errno
import math
import os
import random
import struct
import subprocess
import sys
import tempfile
import textwrap
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.notes import T0, reserved, settled
from lightgate.ledger.journal.journal import (
    GROW_BYTES,
    SPARE_BYTES,
    Frames,
    Journal,
    JournalFailed,
    _Mapped,
    _swapped,
    alive,
    journals,
    life_of,
    read_frames,
)
from lightgate.ledger.journal.notes import VERSION, Announced, Note, Opened, Settled

NOTES: list[Note] = [reserved("x-1"), settled("x-1"), Announced("x-2", T0), settled("x-2")]


def written(folder: Path) -> bytes:
    journal = Journal(folder, 3, now=lambda: T0)
    for note in NOTES:
        journal.write(note)
    journal.close()
    return journal.path.read_bytes()


with tempfile.TemporaryDirectory() as name:
    DATA = written(Path(name))
OPENED = Opened(VERSION, 3, os.getpid(), T0)


def read(path: Path, data: bytes) -> tuple[list[Note], Frames]:
    path.write_bytes(data)
    frames = Frames(path)
    return [note for note, _ in frames], frames


def test_what_a_killed_life_has_left_half_made_is_removed(tmp_path: Path) -> None:
    left = [tmp_path / "3-0left.new", tmp_path / "3-0left.000001.new"]
    others = [tmp_path / "31-0other.new", tmp_path / "1-0other.new"]
    for path in (*left, *others):
        path.touch()
    with contextlib.closing(Journal(tmp_path, 3, now=lambda: T0)):
        assert [path for path in (*left, *others) if path.exists()] == others


def test_what_was_written_is_read(tmp_path: Path) -> None:
    notes, frames = read(tmp_path / "j", DATA)
    assert notes == [OPENED, *NOTES]
    assert (frames.offset, frames.torn, frames.damaged) == (len(DATA), False, False)


def test_reading_goes_on_from_any_offset(tmp_path: Path) -> None:
    path = tmp_path / "j"
    path.write_bytes(DATA)
    places = [offset for _, offset in read_frames(path)]
    for at, offset in enumerate(places):
        assert [note for note, _ in read_frames(path, offset)] == NOTES[at:]


def test_frames_larger_than_a_read(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 0)
    large = settled("x-1", tags="t" * 3_000_000)
    for note in (NOTES[0], large, NOTES[1]):
        journal.write(note)
    journal.close()
    assert [note for note, _ in read_frames(journal.path)][1:] == [NOTES[0], large, NOTES[1]]


@given(st.integers(0, len(DATA) - 1))
@settings(max_examples=300)
def test_any_truncation_gives_a_prefix(length: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        notes, frames = read(Path(folder) / "j", DATA[:length])
    assert notes == [OPENED, *NOTES][: len(notes)]
    assert frames.torn == (frames.offset < length)
    assert not frames.damaged


@given(st.integers(0, len(DATA) * 8 - 1))
@settings(max_examples=500)
def test_any_flipped_bit_ends_the_file_there(bit: int) -> None:
    changed = bytearray(DATA)
    changed[bit // 8] ^= 1 << bit % 8
    with tempfile.TemporaryDirectory() as folder:
        notes, frames = read(Path(folder) / "j", bytes(changed))
    assert notes == [OPENED, *NOTES][: len(notes)]
    assert len(notes) < len(NOTES) + 1
    assert frames.offset <= bit // 8
    assert frames.torn or frames.damaged


@given(st.binary(max_size=200))
def test_anything_else_is_no_note(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        notes, frames = read(Path(folder) / "j", data)
    assert notes == []
    assert frames.torn or frames.damaged or not data.strip(b"\0")


def test_room_that_was_never_written_to_is_no_note(tmp_path: Path) -> None:
    notes, frames = read(tmp_path / "j", DATA + bytes(4096))
    assert notes == [OPENED, *NOTES]
    assert (frames.offset, frames.torn, frames.damaged) == (len(DATA), False, False)


def test_a_note_without_its_head_is_torn(tmp_path: Path) -> None:
    """Killed between the copy of the note and the store of its head."""
    notes, frames = read(tmp_path / "j", DATA + bytes(8) + b"half of a note" + bytes(4096))
    assert notes == [OPENED, *NOTES]
    assert (frames.offset, frames.torn, frames.damaged) == (len(DATA), True, False)


def test_a_killed_writer_leaves_whole_notes_and_zeros(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 0)
    for note in NOTES:
        journal.write(note)
    data = journal.path.read_bytes()  # as a killed process leaves it
    journal.close()
    assert len(data) > len(journal.path.read_bytes())
    notes, frames = read(tmp_path / "j", data)
    assert notes[1:] == NOTES
    assert (frames.torn, frames.damaged) == (False, False)


def test_the_writer_holds_its_file_while_it_lives(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 0)
    assert alive(journal.path)
    journal.close()
    assert not alive(journal.path)
    assert alive(tmp_path / "never")  # its writer may be about to write it anew
    with pytest.raises(JournalFailed, match="is closed"):
        journal.write(NOTES[0])
    journal.close()


def test_rotation_keeps_the_life_and_the_lock(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 7, rotate_bytes=1200)
    for _ in range(4):
        for note in NOTES:
            journal.write(note)
    paths = journals(tmp_path)
    assert len(paths) > 2
    assert {life_of(path) for path in paths} == {journal.life}
    assert [alive(path) for path in paths] == [False] * (len(paths) - 1) + [True]
    notes = [note for path in paths for note, _ in read_frames(path)]
    assert [note for note in notes if not isinstance(note, Opened)] == NOTES * 4
    journal.close()
    assert not any(tmp_path.glob("*.new"))


def test_a_folder_that_cannot_be_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalFailed, match="No journal can be made"):
        Journal(tmp_path / "file" / "journal", 0)


def run(script: str, *arguments: str) -> str:
    made = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *arguments],
        capture_output=True, text=True, check=True, timeout=100,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    return made.stdout


FULL = """
    import resource, sys
    from pathlib import Path
    from ledger.notes import settled
    from lightgate.ledger.journal.journal import Journal, JournalFailed

    folder = Path(sys.argv[1])
    journal = Journal(folder, 0)
    limit = journal.path.stat().st_size + 2500  # blocks are taken ahead
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    kept = failed = 0
    for at in range(60):
        try:
            journal.write(settled(f"x-{at}", tags="t" * 40_000))
            kept += 1
        except JournalFailed as error:
            failed += 1
            assert "disk is full" in error.message or "cannot be written" in error.message
    assert failed
    assert journal.short and not journal.regain()
    assert kept > 40  # two megabytes had been taken ahead
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert journal.regain() and not journal.short
    journal.write(settled("after"))
    print(kept)
"""


def test_a_full_disk_loses_only_what_it_refused(tmp_path: Path) -> None:
    kept = int(run(FULL, str(tmp_path)))
    (path,) = tmp_path.glob("*.lgj")
    frames = Frames(path)
    ids = [note.exchange.id for note, _ in frames if isinstance(note, Settled)]
    assert ids == [*(f"x-{at}" for at in range(kept)), "after"]
    assert (frames.torn, frames.damaged) == (False, False)


FULL_FROM_THE_START = """
    import resource, sys
    from pathlib import Path
    from ledger.notes import settled
    from lightgate.ledger.journal.journal import Journal, JournalFailed

    endless = resource.RLIM_INFINITY
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, endless))
    journal = Journal(Path(sys.argv[1]), 0)
    assert journal.short and not journal.regain()
    try:
        journal.write(settled("refused"))
    except JournalFailed as failure:
        print(failure.message)
    resource.setrlimit(resource.RLIMIT_FSIZE, (endless, endless))
    assert journal.regain()
    journal.write(settled("after"))
    journal.close()
    assert not journal.regain()
"""


def test_a_journal_that_begins_on_a_full_disk_is_made_when_there_is_room(tmp_path: Path) -> None:
    assert run(FULL_FROM_THE_START, str(tmp_path)) == "The disk is full.\n"
    (path,) = tmp_path.iterdir()
    notes = [note for note, _ in read_frames(path) if isinstance(note, Settled)]
    assert [note.exchange.id for note in notes] == ["after"]


def test_a_full_disk_puts_a_rotation_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(tmp_path, 0, rotate_bytes=1000)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", full)
        for at in range(20):
            journal.write(settled(f"x-{at}"))
    journal.write(settled("x-20"))
    journal.close()
    paths = journals(tmp_path)
    notes = [note for path in paths for note, _ in read_frames(path) if isinstance(note, Settled)]
    assert [note.exchange.id for note in notes] == [f"x-{at}" for at in range(21)]
    assert len(paths) == 2


def test_random_appends_after_random_cuts(tmp_path: Path) -> None:
    """A reader that stopped at a torn tail finds the rest once it is there."""
    draw = random.Random(4)  # noqa: S311 - the same cuts every time
    path = tmp_path / "j"
    found: list[Note] = []
    offset = length = 0
    while length < len(DATA):
        length = min(len(DATA), length + draw.randrange(1, 200))
        path.write_bytes(DATA[:length])
        for note, place in read_frames(path, offset):
            found.append(note)
            offset = place
    assert found == [OPENED, *NOTES]


def test_a_journal_makes_its_folder_with_all_above_it(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    first = Journal(folder, 1)
    second = Journal(folder, 2)  # which is there by now
    assert first.path.stat().st_mode & 0o777 == 0o600
    assert [path.suffix for path in folder.iterdir()] == [".lgj"] * 2
    assert [alive(first.path), alive(second.path), alive(tmp_path / "none")] == [True, True, True]
    first.close()
    second.close()
    assert not alive(first.path)
    assert (first.size, second.size) == (0, 0)
    with pytest.raises(JournalFailed, match="The journal is closed"):
        first.write(NOTES[0])
    assert not first.regain()
    assert JournalFailed.of("x", OSError(errno.EACCES, "No")).full is False
    for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        failure = JournalFailed.of("It failed", OSError(number, "Full"))
        assert (failure.full, failure.message, failure.status) == (True, "It failed: Full.", 503)


@pytest.mark.parametrize("length", [*range(18), 1023, 1024, 1025])
def test_frames_are_padded_to_whole_words(tmp_path: Path, length: int) -> None:
    descriptor = os.open(tmp_path / "j", os.O_RDWR | os.O_CREAT)
    file = _Mapped(descriptor)
    payload = bytes(range(1, 256)) * 5
    file.append(payload[:length])
    file.append(b"second")
    padded = 8 * math.ceil((8 + length) / 8)
    assert file.size == padded + 16
    assert (tmp_path / "j").stat().st_size >= file.size + SPARE_BYTES
    assert not file.short
    file.close()
    data = (tmp_path / "j").read_bytes()
    assert len(data) == padded + 16
    size, crc = struct.unpack("<II", data[:8])
    assert (size, crc) == (length, zlib.crc32(payload[:length], length))
    assert data[8 : 8 + length] == payload[:length]
    assert data[8 + length : padded] == bytes(padded - 8 - length)
    with pytest.raises(OSError, match="the file is closed"):
        file.append(b"x")


@pytest.mark.parametrize("room", [0, 8, 64, GROW_BYTES, SPARE_BYTES // 2, SPARE_BYTES])
def test_a_file_is_short_where_less_than_half_of_the_spare_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    """The disk gives so many bytes and no more."""
    file = _Mapped(os.open(tmp_path / "j", os.O_RDWR | os.O_CREAT))
    real, left = os.pwrite, room

    def given(descriptor: int, data: bytes, offset: int) -> int:
        nonlocal left
        if not left:
            raise OSError(errno.ENOSPC, "full")
        taken = min(left, len(data))
        left -= taken
        return real(descriptor, data[:taken], offset)

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", given)
        if room < 16:
            with pytest.raises(OSError, match="No space left"):
                file.append(b"12345678")
            assert file.size == 0
        else:
            file.append(b"12345678")
            assert file.short is (room - 16 < SPARE_BYTES // 2)
            assert file.tight  # a whole spare and more was asked for
            while file.size + 16 <= room // 8 * 8 and file.size < 1000:
                file.append(b"12345678")
    file.grow(file.size)
    assert not file.short
    assert not file.tight
    file.append(b"after")
    file.close()


def test_the_files_of_a_folder_life_by_life(tmp_path: Path) -> None:
    names = ["0-b.lgj", "0-b.000001.lgj", "0-b.000010.lgj", "0-b.000002.lgj", "0-a.lgj", "1-a.lgj"]
    for name in (*names, "0-a.new", "other"):
        (tmp_path / name).write_bytes(b"")
    assert [path.name for path in journals(tmp_path)] == [
        "0-a.lgj", "0-b.lgj", "0-b.000001.lgj", "0-b.000002.lgj", "0-b.000010.lgj", "1-a.lgj",
    ]  # fmt: skip
    assert [path.name for path in journals(tmp_path, "0-a")] == ["0-a.lgj"]
    assert life_of(tmp_path / "0-b.000001.lgj") == "0-b"
    assert journals(tmp_path / "none") == []


def test_parts_are_numbered_from_the_second_file_on(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 7, rotate_bytes=100)
    seen = []
    for at in range(4):
        journal.write(settled(f"x-{at}"))
        seen.append(journal.path.name.removeprefix(journal.life))
    assert seen == [".lgj", ".000001.lgj", ".000002.lgj", ".000003.lgj"]
    assert journal.life.startswith("7-")
    journal.close()
    assert [path.name for path in journals(tmp_path)] == [f"{journal.life}{part}" for part in seen]


def test_a_rotation_that_fails_for_another_reason_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path, 0, rotate_bytes=10)

    def refused(*_: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    before = journal.path
    with monkeypatch.context() as patched:
        patched.setattr(os, "open", refused)
        with pytest.raises(JournalFailed, match="Too many open files"):
            journal.write(NOTES[0])
    assert journal.path == before
    journal.write(NOTES[0])
    assert journal.path != before
    journal.close()


def test_a_file_is_full_at_exactly_its_limit(tmp_path: Path) -> None:
    first = Journal(tmp_path / "a", 0, now=lambda: T0)
    size = first.size
    first.close()
    for limit, rotated in ((size, True), (size + 1, False)):
        journal = Journal(tmp_path / str(limit), 0, now=lambda: T0, rotate_bytes=limit)
        assert journal.size == size
        before = journal.path
        journal.write(NOTES[0])
        assert (journal.path != before) is rotated
        journal.close()


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, MemoryError])
def test_an_interrupted_making_of_a_file_leaves_nothing_and_is_passed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interruption: type[BaseException]
) -> None:
    def broken(*_: object) -> None:
        raise interruption

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", broken)
        with pytest.raises(interruption):
            Journal(tmp_path, 0)
    assert list(tmp_path.iterdir()) == []
    refused = OSError(errno.EACCES, "Permission denied")

    def forbidden(*_: object) -> None:
        raise refused

    monkeypatch.setattr(Path, "rename", forbidden)
    with pytest.raises(JournalFailed, match=r"No journal can be made in .*: Permission denied"):
        Journal(tmp_path, 0)
    assert list(tmp_path.iterdir()) == []


def test_room_is_taken_from_the_first_byte_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[tuple[int, int]] = []
    real = os.pwrite

    def noted(descriptor: int, data: bytes, offset: int) -> int:
        assert not any(data)
        taken.append((offset, len(data)))
        return real(descriptor, data, offset)

    monkeypatch.setattr(os, "pwrite", noted)
    file = _Mapped(os.open(tmp_path / "j", os.O_RDWR | os.O_CREAT))
    file.append(b"x")
    assert taken[0] == (0, GROW_BYTES)
    assert [offset for offset, _ in taken] == [GROW_BYTES * n for n in range(len(taken))]
    assert sum(size for _, size in taken) == SPARE_BYTES + GROW_BYTES
    count = len(taken)
    file.append(b"y" * (GROW_BYTES - 16 - 8))  # up to the spare, to the byte
    assert (file.size, len(taken)) == (GROW_BYTES, count)
    file.append(b"z")
    assert len(taken) == count + 1
    file.close()


def test_a_head_has_the_same_bytes_on_a_machine_that_stores_the_highest_first() -> None:
    word = 0x0102_0304_0506_0708
    assert _swapped(word).to_bytes(8, "big") == word.to_bytes(8, "little")


def test_a_journal_says_at_once_how_its_disk_is(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 1)
    assert (journal.short, journal.tight) == (False, False)
    file = journal._file
    assert file is not None
    file.tight = True
    assert journal.tight
    file.tight = False
    journal.close()
    assert journal.tight  # there is no file


def test_an_unfinished_file_that_another_has_removed_is_no_trouble(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(Path, "glob", lambda _self, _pattern: iter([tmp_path / "1-gone.new"]))
        journal = Journal(tmp_path, 1)
    assert journal.path.exists()
    journal.close()


@pytest.mark.parametrize("vanishes", [False, True])
def test_a_file_that_cannot_be_begun_is_closed_and_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vanishes: bool
) -> None:
    closed: list[int] = []
    close = os.close

    def fails(path: Path, _: Path) -> None:
        if vanishes:
            path.unlink()
        raise OSError(errno.EIO, "Input/output error")

    def counted(descriptor: int) -> None:
        closed.append(descriptor)
        close(descriptor)

    opened: list[int] = []
    open_ = os.open

    def noted(*given: Any) -> int:
        opened.append(open_(*given))
        return opened[-1]

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", fails)
        patched.setattr(os, "open", noted)
        patched.setattr(os, "close", counted)
        with pytest.raises(JournalFailed, match=r"No journal can be made in .*: Input/output"):
            Journal(tmp_path, 1)
    assert len(opened) == 1
    assert closed == opened
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_gives_a_little_is_taken_at_its_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has a page left: a frame that fits is written, the spare behind it is not there."""
    pwrite, left = os.pwrite, [4096]

    def scarce(descriptor: int, data: bytes, at: int) -> int:
        if len(data) > left[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        left[0] -= len(data)
        return pwrite(descriptor, data, at)

    monkeypatch.setattr(os, "pwrite", scarce)
    path = tmp_path / "file"
    file = _Mapped(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    file.append(b"x" * 50)
    assert (file.size, file._room, file.tight, file.short) == (64, 64, True, True)
    file.append(b"y" * 4016)
    assert (file.size, left[0]) == (64 + 4024, 4096 - 64 - 4024)
    with pytest.raises(OSError, match="No space left") as caught:
        file.append(b"z")
    assert caught.value.errno == errno.ENOSPC
    assert file.size == 64 + 4024
    file.close()
    assert path.stat().st_size == 64 + 4024


def test_a_file_grows_ahead_of_its_notes_and_not_with_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grown: list[int] = []
    grow = _Mapped.grow

    def counted(file: _Mapped, end: int) -> None:
        grown.append(end)
        grow(file, end)

    monkeypatch.setattr(_Mapped, "grow", counted)
    file = _Mapped(os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT, 0o600))
    for _ in range(GROW_BYTES // 1024):
        file.append(bytes(1024 - 8))
    # Room for the spare and a block: a note that ends behind the block takes the next one.
    assert grown == [1024]
    assert (file.size, file._room) == (GROW_BYTES, GROW_BYTES + SPARE_BYTES)
    file.append(b"")
    assert grown == [1024, GROW_BYTES + 8]
    assert file._room == 2 * GROW_BYTES + SPARE_BYTES
    file.close()


@pytest.mark.parametrize(("end", "short"), [(0, False), (1, True)])
def test_a_journal_is_short_where_less_than_half_of_its_spare_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: int, short: bool
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    file = _Mapped(os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT, 0o600))
    monkeypatch.setattr(os, "pwrite", full)
    file._room = SPARE_BYTES
    file.grow(SPARE_BYTES // 2 + end)
    assert (file.tight, file.short, file._ahead) == (True, short, 0)
    file.close()


def framed(payload: bytes) -> bytes:
    """A frame as a journal has it, whatever its payload."""
    head = struct.pack("<II", len(payload), zlib.crc32(payload, len(payload)))
    return head + payload + bytes(-len(payload) % 8)


@pytest.mark.parametrize("payload", [b"", b"\xc1", b"\x01", b"x" * 100])
def test_a_whole_frame_that_is_no_note_is_damage(tmp_path: Path, payload: bytes) -> None:
    """An empty one is eight zeros, which have not been written yet."""
    path = tmp_path / "file"
    path.write_bytes(DATA + framed(payload))
    frames = Frames(path)
    assert (frames.torn, frames.damaged) == (False, False)  # nothing has been looked at
    assert [note for note, _ in frames] == [OPENED, *NOTES]
    assert (frames.torn, frames.damaged) == (False, payload != b"")
    assert frames.offset == len(DATA)


@pytest.mark.parametrize(
    ("head", "damaged"),
    [((0, 5), True), ((0, 0), False), ((3, 0), True)],
)
def test_a_head_that_is_half_zeros_is_damage(
    tmp_path: Path, head: tuple[int, int], damaged: bool
) -> None:
    path = tmp_path / "file"
    path.write_bytes(DATA + struct.pack("<II", *head) + bytes(8))
    frames = Frames(path)
    assert len(list(frames)) == 1 + len(NOTES)
    assert (frames.torn, frames.damaged) == (False, damaged)


def test_a_note_larger_than_what_is_read_at_once(tmp_path: Path) -> None:
    journal, large = Journal(tmp_path, 1, now=lambda: T0), Announced("x" * 2_500_000, T0)
    for note in (NOTES[0], large, NOTES[1]):
        journal.write(note)
    journal.close()
    assert [note for note, _ in read_frames(journal.path)][1:] == [NOTES[0], large, NOTES[1]]


def test_whoever_asks_for_a_life_leaves_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, closed = Journal(tmp_path, 1), list[int]()
    close = os.close

    def counted(descriptor: int) -> None:
        closed.append(descriptor)
        close(descriptor)

    with monkeypatch.context() as patched:
        patched.setattr(os, "close", counted)
        assert alive(journal.path)
        assert len(closed) == 1
    journal.close()
    with monkeypatch.context() as patched:
        patched.setattr(os, "close", counted)
        assert not alive(journal.path)
        assert alive(tmp_path / "nothing")  # its writer may write it anew
    assert len(closed) == 2


def test_an_empty_file_has_no_notes_and_no_damage(tmp_path: Path) -> None:
    notes, frames = read(tmp_path / "file", b"")
    assert (notes, frames.torn, frames.damaged, frames.offset) == ([], False, False, 0)


def test_a_failure_of_the_journal_says_whether_there_is_no_room(tmp_path: Path) -> None:
    closed = JournalFailed("The journal is closed.")
    assert (closed.status, closed.label, closed.full) == (503, "journal", False)
    for code, full in ((errno.ENOSPC, True), (errno.EDQUOT, True), (errno.EIO, False)):
        failed = JournalFailed.of("What", OSError(code, "Why"))
        assert (failed.message, failed.full) == ("What: Why.", full)
    journal = Journal(tmp_path, 1)
    journal.close()
    with pytest.raises(JournalFailed, match="closed") as caught:
        journal.write(NOTES[0])
    assert not caught.value.full


def test_a_note_is_returned_as_it_was_packed(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 0)
    assert journal.write(settled("x-1")) == msgspec.msgpack.encode(settled("x-1"))
    journal.close()
