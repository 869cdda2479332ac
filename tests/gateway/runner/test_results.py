"""The results of a batch: how lines are counted, written once, and read again after a crash."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from lightgate.batch.lines import LineError, LineResult
from lightgate.gateway.runner.results import CANCELLED, EXPIRED, LineTally, ResultFiles

if TYPE_CHECKING:
    from pathlib import Path


def test_lines_are_counted_by_their_end() -> None:
    tally = LineTally()
    for ok, code in (
        (True, ""), (True, EXPIRED), (False, EXPIRED), (False, CANCELLED), (False, CANCELLED),
        (False, "other"), (False, ""), (False, "x"),
    ):  # fmt: skip
        tally.count(ok=ok, code=code)
    assert tally.changes() == {
        "completed": 2, "failed": 3, "cancelled": 2, "expired": 1, "usage": {},
    }  # fmt: skip
    assert (EXPIRED, CANCELLED) == ("batch_expired", "batch_cancelled")


def test_tokens_are_added_in_the_words_of_every_dialect() -> None:
    tally = LineTally()
    said: tuple[Any, ...] = (
        {"prompt_tokens": 3, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 1}},
        {"input_tokens": 10, "output_tokens": 20, "output_tokens_details": {"reasoning_tokens": 5},
         "input_tokens_details": {"cached_tokens": 4}},
        {"completion_tokens_details": {"reasoning_tokens": 7}, "cache_read_input_tokens": 100},
        {"prompt_tokens": 0, "completion_tokens": -1, "prompt_tokens_details": None},
        {"prompt_tokens": True, "completion_tokens": "9", "input_tokens": 1000},
        None, [], "text",
    )  # fmt: skip
    for usage in said:
        tally.add_usage(usage)
    assert tally.usage == {"input": 13, "output": 22, "cached": 105, "reasoning": 12}
    copied = tally.changes()["usage"]
    tally.add_usage({"input_tokens": 1})
    assert copied["input"] == 13


class Folder:
    """The files of a store, and one batch."""

    def __init__(self, folder: Path, kind: str = "openai") -> None:
        self._folder = folder
        self._kind = kind

    def path(self, file_id: str) -> Path:
        return self._folder / file_id

    def files(self) -> ResultFiles:
        job: Any = SimpleNamespace(
            id="batch_abc", kind=self._kind, output_file="out",
            error_file="err" if self._kind == "openai" else "",
        )  # fmt: skip
        store: Any = self
        return ResultFiles(store, job)


def line(number: int, status: int = 200, code: str = "", **body: Any) -> LineResult:
    error = LineError(code=code, message="why") if code else None
    text = json.dumps(body).encode()
    return LineResult(
        id=f"batch_req_abc_{number}", custom_id=f"c{number}", status=status, body=text,
        request_id="r", error=error,
    )  # fmt: skip


USAGE = {"input_tokens": 3, "output_tokens": 2}


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
def test_what_was_written_is_counted_the_same_after_a_crash(tmp_path: Path, kind: str) -> None:
    folder = Folder(tmp_path, kind)
    files = folder.files()
    rows = [line(1, usage=USAGE), line(2, 400), line(3, 0, EXPIRED), line(4, 0, CANCELLED),
            line(5, usage=USAGE)]  # fmt: skip
    for number, row in enumerate(rows, 1):
        name: int | str = number if kind == "openai" else f"c{number}"
        files.write(name, row)
        files.write(name, row)  # a second time says nothing
    files.close()
    whole = (tmp_path / "out").read_bytes()
    (tmp_path / "out").write_bytes(whole + b'{"id":"half')
    again = folder.files()
    again.recover()
    assert again.tally.changes() == files.tally.changes()
    assert again.tally.changes() == {
        "completed": 2, "failed": 1, "cancelled": 1, "expired": 1,
        "usage": {"input": 6, "output": 4},
    }  # fmt: skip
    names = set(range(1, 6)) if kind == "openai" else {f"c{n}" for n in range(1, 6)}
    assert again.done == files.done == names
    assert (tmp_path / "out").read_bytes() == whole
    again.write(3 if kind == "openai" else "c3", line(3))
    assert (tmp_path / "out").read_bytes() == whole


def test_errors_have_a_file_of_their_own_at_openai_alone(tmp_path: Path) -> None:
    for kind, files_made in (("openai", {"out", "err"}), ("anthropic", {"out"})):
        folder = tmp_path / kind
        folder.mkdir()
        files = Folder(folder, kind).files()
        assert files.sizes() == {}
        files.write(1, line(1))
        files.write(2, line(2, 500))
        sizes = files.sizes()
        assert set(sizes) == {path.name for path in folder.iterdir()} == files_made
        assert sizes["out"] == (folder / "out").stat().st_size > 0
        assert (folder / "out").stat().st_mode & 0o777 == 0o600
        files.close()


def test_the_name_of_a_line_and_the_id_of_its_result(tmp_path: Path) -> None:
    one: Any = SimpleNamespace(number=7, custom_id="c7")
    assert Folder(tmp_path).files().name_of(one) == 7
    assert Folder(tmp_path, "anthropic").files().name_of(one) == "c7"
    assert Folder(tmp_path).files().result_id(7) == "batch_req_abc_7"


def test_an_answer_without_usage_is_an_answer(tmp_path: Path) -> None:
    files = Folder(tmp_path).files()
    for number, body in enumerate((b"[1]", b"null", b'{"usage":7}'), 1):
        row = LineResult(
            id=f"batch_req_abc_{number}", custom_id="c", status=200, body=body, request_id="r"
        )
        files.write(None, row)
    files.close()
    assert files.tally.completed == 3
    assert (files.tally.usage, files.done) == ({}, set())
    again = Folder(tmp_path).files()
    again.recover()
    assert (again.tally.completed, again.done) == (3, {1, 2, 3})
