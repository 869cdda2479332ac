"""The result files of one batch: written line by line, read again after a crash.

A line of results is appended in one write, as soon as it is known. What a killed process left is
whole lines and perhaps the beginning of one, which is cut off: then the file says which lines of
the batch have their answer.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lightgate.batch.lines import LineResult, anthropic_line, openai_line

if TYPE_CHECKING:
    from lightgate.batch.lines import BadLine, BatchLine
    from lightgate.gateway.batches.records import BatchJob
    from lightgate.gateway.batches.store import BatchStore

EXPIRED: Final = "batch_expired"
CANCELLED: Final = "batch_cancelled"
_USAGE: Final = (  # what is counted, and where the dialects say it
    ("input", ("prompt_tokens", "input_tokens")),
    ("output", ("completion_tokens", "output_tokens")),
)
_DETAILS: Final = (
    ("cached", ("prompt_tokens_details", "input_tokens_details"), "cached_tokens"),
    ("reasoning", ("completion_tokens_details", "output_tokens_details"), "reasoning_tokens"),
)


class _Body(msgspec.Struct):
    usage: Any = None


class _Response(msgspec.Struct):
    status_code: int = 0
    body: Any = None


class _Error(msgspec.Struct):
    code: str = ""


class _Result(msgspec.Struct):
    type: str = ""
    message: _Body | None = None


class _Kept(msgspec.Struct):
    """A line of results, of either dialect, as far as it is counted."""

    id: str = ""
    custom_id: str | None = None
    response: _Response | None = None
    error: _Error | None = None
    result: _Result | None = None


_kept: Final = msgspec.json.Decoder(_Kept)
_body: Final = msgspec.json.Decoder(_Body)


class LineTally:
    """How many lines ended in which way, and the tokens of the answers."""

    def __init__(self) -> None:
        self.completed = self.failed = self.cancelled = self.expired = 0
        self.usage: dict[str, int] = {}

    def count(self, *, ok: bool, code: str = "") -> None:
        """Count a line."""
        if ok:
            self.completed += 1
        elif code == EXPIRED:
            self.expired += 1
        elif code == CANCELLED:
            self.cancelled += 1
        else:
            self.failed += 1

    def add_usage(self, usage: Any) -> None:
        """Add the usage that an answer says, if it says one."""
        if not isinstance(usage, dict):
            return
        for name, words in _USAGE:
            self._add(name, next((usage[word] for word in words if word in usage), None))
        for name, groups, word in _DETAILS:
            for group in groups:
                inner = usage.get(group)
                if isinstance(inner, dict):
                    self._add(name, inner.get(word))
        self._add("cached", usage.get("cache_read_input_tokens"))

    def _add(self, name: str, value: Any) -> None:
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            self.usage[name] = self.usage.get(name, 0) + value

    def changes(self) -> dict[str, Any]:
        """The fields of a batch that it says."""
        return {
            "completed": self.completed,
            "failed": self.failed,
            "cancelled": self.cancelled,
            "expired": self.expired,
            "usage": dict(self.usage),
        }


class ResultFiles:
    """The files of one batch; Anthropic's has one, OpenAI's a second one for errors."""

    def __init__(self, store: BatchStore, job: BatchJob) -> None:
        self._store = store
        self._job = job
        self._openai = job.kind == "openai"
        self._descriptors: dict[str, int] = {}
        self.tally = LineTally()
        self.done: set[int | str] = set()  # of lines that have their result

    def name_of(self, line: BatchLine | BadLine) -> int | str | None:
        """What tells a line from the others of its batch, also in the result files."""
        return line.number if self._openai else line.custom_id

    def result_id(self, number: int) -> str:
        """The id of a line's result; also the id of its request."""
        return f"batch_req_{self._job.id.partition('_')[2]}_{number}"

    def recover(self) -> None:
        """Read what an earlier process has written, and cut off a line that it did not finish."""
        for file_id in (self._job.output_file, self._job.error_file):
            if file_id and self._store.path(file_id).exists():
                self._read(file_id)

    def _read(self, file_id: str) -> None:
        whole = 0
        with self._store.path(file_id).open("rb+") as file:
            for raw in file:
                if not raw.endswith(b"\n"):
                    break
                whole += len(raw)
                self._count(raw)
            file.truncate(whole)

    def _count(self, raw: bytes) -> None:
        kept = _kept.decode(raw)
        usage = None
        if self._openai:
            self.done.add(int(kept.id.rpartition("_")[2]))
            code = "" if kept.error is None else kept.error.code
            ok = kept.response is not None and 200 <= kept.response.status_code < 300
            if ok and kept.response is not None and isinstance(kept.response.body, dict):
                usage = kept.response.body.get("usage")
        else:
            self.done.add(kept.custom_id or "")
            result = kept.result or _Result()
            ok = result.type == "succeeded"
            code = {"expired": EXPIRED, "canceled": CANCELLED}.get(result.type, "")
            usage = None if result.message is None else result.message.usage
        self.tally.count(ok=ok, code=code)
        if ok:
            self.tally.add_usage(usage)

    def write(self, name: int | str | None, result: LineResult) -> None:
        """Append the result of a line, once; OSError where the disk does not take it.

        What a full disk took of a line is cut off again.
        """
        if name in self.done:
            return
        if self._openai:
            file_id = self._job.output_file if result.ok else self._job.error_file
            self._append(file_id, openai_line(result))
        else:
            self._append(self._job.output_file, anthropic_line(result))
        if name is not None:
            self.done.add(name)
        self.tally.count(ok=result.ok, code="" if result.error is None else result.error.code)
        if result.ok:
            # An answer may be of a kind that says no usage.
            with contextlib.suppress(msgspec.DecodeError, msgspec.ValidationError):
                self.tally.add_usage(_body.decode(result.body).usage)

    def _append(self, file_id: str, line: bytes) -> None:
        descriptor = self._descriptors.get(file_id, -1)
        if descriptor < 0:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            path = self._store.path(file_id)
            descriptor = self._descriptors[file_id] = os.open(path, flags, 0o600)
        before = os.fstat(descriptor).st_size
        left = memoryview(line)
        try:
            while left:
                left = left[os.write(descriptor, left) :]
        except OSError:
            os.ftruncate(descriptor, before)
            raise

    def sizes(self) -> dict[str, int]:
        """The bytes of each file that there is, once they are safe on the disk."""
        found = {}
        for file_id in (self._job.output_file, self._job.error_file):
            if file_id and self._store.path(file_id).exists():
                with self._store.path(file_id).open("rb") as file:
                    os.fsync(file.fileno())
                    found[file_id] = os.fstat(file.fileno()).st_size
        return found

    def close(self) -> None:
        """Close the files."""
        for descriptor in self._descriptors.values():
            os.close(descriptor)
        self._descriptors.clear()
