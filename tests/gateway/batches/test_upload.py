"""Uploads: forms in pieces of any size, the disk behind them, and bytes without a key."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightgate.errors import UsageError
from lightgate.gateway.batches.form_stream import (
    MOST_FIELDS,
    MOST_HEAD,
    MOST_VALUE,
    FormStream,
)
from lightgate.gateway.batches.upload import HELD_BYTES, Upload
from lightgate.gateway.request.refusal import Refusing

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MARK = b"boundary42"


def form(content: bytes, *, name: str = "a.jsonl", purpose: bytes = b"batch") -> bytes:
    return (
        b'--%b\r\ncontent-disposition: form-data; name="purpose"\r\n\r\n%b\r\n'
        b'--%b\r\ncontent-disposition: form-data; name="file"; filename="%b"\r\n'
        b"content-type: application/octet-stream\r\n\r\n%b\r\n--%b--\r\n"
    ) % (MARK, purpose, MARK, name.encode(), content, MARK)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as made:
        yield made


@given(
    content=st.binary(max_size=200).map(lambda raw: raw.replace(MARK, b"")),
    cuts=st.lists(st.integers(0, 500), max_size=12),
)
def test_a_form_is_the_same_however_it_is_cut(content: bytes, cuts: list[int]) -> None:
    content += b"\r\n--bound"  # nearly its end
    taken: list[bytes] = []
    stream = FormStream(MARK, taken.append)
    raw = form(content)
    places = sorted({0, len(raw), *(cut for cut in cuts if cut < len(raw))})
    for start, end in pairwise(places):
        stream.feed(raw[start:end])
    assert b"".join(taken) == content
    assert stream.complete
    assert stream.fields == {"purpose": "batch"}
    assert stream.filename == "a.jsonl"


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"hello" * 9 + form(b""), "does not begin"),
        (form(b"")[:-4] + b"xx", "inside one of its fields"),
        (form(b"", purpose=b"x" * (MOST_VALUE + 1)), "too long"),
        (form(b"", purpose=b"\xff"), "not UTF-8"),
        (form(b"").replace(b'name="purpose"', b'name="file"'), "given twice"),
        (b"--" + MARK + b"\r\n" + b"x: " + b"y" * MOST_HEAD, "header that is too long"),
        (form(b"").replace(b"form-data; name", b"attachment; name"), "no clear name"),
    ],
)
def test_a_form_that_is_wrong_is_told_why(raw: bytes, reason: str) -> None:
    stream = FormStream(MARK, lambda _: None)
    with pytest.raises(UsageError, match=reason):
        stream.feed(raw)


def test_a_file_is_passed_on_but_for_what_may_begin_its_end() -> None:
    taken: list[bytes] = []
    stream = FormStream(MARK, taken.append)
    start, kept = form(b"").partition(b"stream\r\n\r\n")[0], len(MARK) + 3
    stream.feed(start + b"stream\r\n\r\n" + b"x" * kept)
    assert taken == []  # one byte more cannot all be of a boundary
    for size in range(1, 4):
        stream.feed(b"x")
        assert taken == [b"x"] * size
    stream.feed(b"\r\n--" + MARK + b"--" + b"what follows the end")
    assert b"".join(taken) == b"x" * (kept + 3)
    stream.feed(b"and more")
    assert stream.complete
    assert stream._buffer == b""  # nothing behind it is kept


@pytest.mark.parametrize(
    ("named", "shown"),
    [("a\\b.jsonl", "b.jsonl"), ("c:/x/y.jsonl", "y.jsonl"), ("dir\\", "file.jsonl")],
)
def test_a_name_is_shown_without_its_folders(named: str, shown: str) -> None:
    stream = FormStream(MARK, lambda _: None)
    stream.feed(form(b"", name=named))
    assert stream.filename == shown
    stream = FormStream(MARK, lambda _: None)
    stream.feed(form(b"", name="?.jsonl").replace(b"?", b"\xff"))
    assert stream.filename == "\ufffd.jsonl"


def test_a_part_without_a_head_is_wrong_at_once() -> None:
    stream = FormStream(MARK, lambda _: None)
    with pytest.raises(UsageError):
        stream.feed(b"--" + MARK + b"\r\n\r\n\r\n")


def part(name: str, value: bytes = b"") -> bytes:
    head = b'--%b\r\ncontent-disposition: form-data; name="%b"' % (MARK, name.encode())
    return b"%b\r\n\r\n%b\r\n" % (head, value)


def test_a_field_may_be_as_long_as_its_limit_and_so_may_its_head() -> None:
    stream = FormStream(MARK, lambda _: None)
    stream.feed(form(b"", purpose=b"x" * MOST_VALUE))
    assert stream.fields == {"purpose": "x" * MOST_VALUE}
    stream = FormStream(MARK, lambda _: None)
    stream.feed(b"--" + MARK + b"\r\n" + b"x" * MOST_HEAD)
    with pytest.raises(UsageError, match="header that is too long"):
        stream.feed(b"x")


def test_a_form_has_so_many_fields() -> None:
    stream = FormStream(MARK, lambda _: None)
    stream.feed(b"".join(part(f"f{number}", b"v") for number in range(MOST_FIELDS)))
    stream.feed(b"--" + MARK + b"--")
    assert stream.complete
    assert stream.fields == {f"f{number}": "v" for number in range(MOST_FIELDS)}
    stream = FormStream(MARK, lambda _: None)
    with pytest.raises(UsageError, match="too many fields"):
        stream.feed(b"".join(part(f"f{number}") for number in range(MOST_FIELDS + 1)))


def test_a_file_without_a_name_has_the_usual_one_and_fields_are_apart() -> None:
    taken: list[bytes] = []
    stream = FormStream(MARK, taken.append)
    stream.feed(part("a", b"1") + part("file", b"content") + part("b", b"2"))
    with pytest.raises(UsageError, match="given twice"):
        stream.feed(part("a"))
    assert (stream.fields, stream.filename) == ({"a": "1", "b": "2"}, "file.jsonl")
    assert b"".join(taken) == b"content"


@pytest.mark.parametrize(
    ("given_name", "shown"),
    [("../../etc/passwd", "passwd"), ("c:\\x\\y.jsonl", "y.jsonl"), ("", "file.jsonl"),
     ("a\x07b", "ab"), ("n" * 400, "n" * 255)],
)  # fmt: skip
def test_a_name_is_only_shown(given_name: str, shown: str) -> None:
    stream = FormStream(MARK, lambda _: None)
    stream.feed(form(b"", name=given_name))
    assert stream.filename == shown


async def test_a_file_is_on_the_disk_as_it_came(tmp_path: Path, pool: ThreadPoolExecutor) -> None:
    content = os.urandom(3 * HELD_BYTES)
    upload = Upload(MARK, len(content), pool)
    stopped: list[str] = []
    upload.attach(lambda: stopped.append("pause"), lambda: stopped.append("resume"))
    upload.begin(tmp_path / "files" / "file-1.part", lambda: stopped.append("over"))
    raw = form(content)
    for start in range(0, len(raw), 65536):
        upload.write(raw[start : start + 65536])
    assert stopped[0] == "pause"  # faster than the disk, and not into memory
    digest = await upload.complete()
    assert stopped[-1] == "resume"
    assert digest == hashlib.sha256(content).hexdigest()
    assert (tmp_path / "files" / "file-1.part").read_bytes() == content
    assert (tmp_path / "files" / "file-1.part").stat().st_mode & 0o777 == 0o600
    assert upload.file_id == "file-1"
    upload.drop()
    upload.drop()
    assert stopped.count("over") == 1
    assert not (tmp_path / "files" / "file-1.part").exists()


async def test_nothing_is_written_before_its_caller_is_known(
    tmp_path: Path, pool: ThreadPoolExecutor
) -> None:
    upload = Upload(MARK, 10**9, pool)
    upload.write(form(b"x" * (2 * HELD_BYTES)))
    await asyncio.sleep(0)
    assert not upload.begun
    upload.drop()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("raw", "status", "code"),
    [
        (form(b"x" * 101), 413, "file_too_large"),
        (form(b"x")[:-8], 400, "usage"),
        (form(b"x").replace(b'name="file"', b'name="other"'), 400, "usage"),
    ],
)
async def test_what_is_wrong_is_said_at_the_end(
    tmp_path: Path, pool: ThreadPoolExecutor, raw: bytes, status: int, code: str
) -> None:
    upload = Upload(MARK, 100, pool)
    upload.begin(tmp_path / "f.part", lambda: None)
    assert upload.write(raw) == len(raw) == upload.tell()
    with pytest.raises(Refusing) as refusing:
        await upload.complete()
    assert (refusing.value.refusal.status, refusing.value.refusal.code) == (status, code)
    assert os.listdir(tmp_path) == []


async def test_a_full_disk_keeps_nothing(
    tmp_path: Path, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int, data: memoryview) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    upload = Upload(MARK, 10**9, pool)
    upload.begin(tmp_path / "f.part", lambda: None)
    monkeypatch.setattr("lightgate.gateway.batches.upload.os.write", full)
    upload.write(form(b"x" * HELD_BYTES))
    with pytest.raises(Refusing) as refusing:
        await upload.complete()
    monkeypatch.undo()
    assert (refusing.value.refusal.status, refusing.value.refusal.code) == (507, "disk_full")
    assert "full" in refusing.value.refusal.message
    assert os.listdir(tmp_path) == []


async def test_a_form_with_a_defect_is_refused_and_the_rest_of_it_is_not_looked_at(
    tmp_path: Path, pool: ThreadPoolExecutor
) -> None:
    upload = Upload(MARK, 100, pool)
    upload.begin(tmp_path / "f.part", lambda: None)
    upload.write(b"rubbish\r\n" * 100_000)
    upload.write(form(b"x"))
    with pytest.raises(Refusing) as refusing:
        await upload.complete()
    assert refusing.value.refusal.status == 400
    assert os.listdir(tmp_path) == []


async def test_a_disk_that_does_not_keep_what_it_took(
    tmp_path: Path, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    upload = Upload(MARK, 100, pool)
    upload.begin(tmp_path / "f.part", lambda: None)
    upload.write(form(b"x"))
    with monkeypatch.context() as patched:
        patched.setattr("lightgate.gateway.batches.upload.os.fsync", broken)
        with pytest.raises(Refusing) as refusing:
            await upload.complete()
    told = refusing.value.refusal
    said = "The disk did not take it: Input/output error. Nothing was kept."
    assert (told.status, told.code, told.message) == (507, "disk_full", said)
    assert os.listdir(tmp_path) == []


async def test_an_empty_file_is_a_file(tmp_path: Path, pool: ThreadPoolExecutor) -> None:
    upload = Upload(MARK, 100, pool)
    upload.begin(tmp_path / "f.part", lambda: None)
    upload.write(form(b""))
    assert await upload.complete() == hashlib.sha256(b"").hexdigest()
    assert (tmp_path / "f.part").read_bytes() == b""
    upload.drop()


async def test_a_client_is_stopped_above_what_is_held_for_it(pool: ThreadPoolExecutor) -> None:
    for size, stops in ((HELD_BYTES, 0), (HELD_BYTES + 1, 1)):
        upload = Upload(MARK, 10**9, pool)
        stopped: Counter[str] = Counter()
        upload.attach(partial(stopped.update, ["pause"]), partial(stopped.update, ["resume"]))
        upload.write(form(b"x" * size))
        assert (upload.size, stopped["pause"], stopped["resume"]) == (size, stops, 0)
        upload.drop()
