"""The record of a run's jobs at providers: a file of JSON lines that only grows.

A job is written down before it is submitted and after, so that a process that dies in between knows
that it must look for the job, and does not pay for a second one. Nothing is held to be gone because
a provider says so once, and results that were not collected are found again by any later process.

    planned ──► submitting ──► submitted ──► over ──► collected
       └──────────────┴─────────────┴──────────┴────► dropped (its lines go another way)

A job that is left is still watched for; what it has done in vain is counted.
"""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING, Final, Self

import msgspec

from lightgate.batch.journal import check_version, whole_lines

if TYPE_CHECKING:
    from pathlib import Path

    from lightgate.provider.secret import Secret

SUFFIX: Final = ".jobs"
VERSION: Final = 1
_encode: Final = msgspec.json.Encoder().encode


class PlannedJob(msgspec.Struct, array_like=True, frozen=True, tag="p", gc=False):
    """A job of these lines is about to be made; `key` is the fingerprint of the API key."""

    tag: str
    target: str
    endpoint: str
    key: str
    numbers: tuple[int, ...]
    version: int = VERSION


class SubmittingJob(msgspec.Struct, array_like=True, frozen=True, tag="s", gc=False):
    """The job is submitted now; `file` are the provider's id of its lines."""

    tag: str
    file: str
    wall_s: float


class SubmittedJob(msgspec.Struct, array_like=True, frozen=True, tag="j", gc=False):
    """The job is known to the provider.

    Where nothing in a job says whose it is, `ids` are all that may be it, and `sure` is False: it
    may be another's, and is not cancelled.
    """

    tag: str
    ids: tuple[str, ...]
    sure: bool = True


class OverJob(msgspec.Struct, array_like=True, frozen=True, tag="o", gc=False):
    """The job is over; `until_s` is when its results are deleted, None where nobody says."""

    tag: str
    id: str
    state: str
    wall_s: float
    until_s: float | None = None


class LeftJob(msgspec.Struct, array_like=True, frozen=True, tag="l", gc=False):
    """The job was cancelled and did not end in time; its lines go another way meanwhile."""

    tag: str


class CollectedJob(msgspec.Struct, array_like=True, frozen=True, tag="c", gc=False):
    """All results of the job have been taken; `doubles` are lines that had an answer already."""

    tag: str
    answered: int
    doubles: int = 0


class DroppedJob(msgspec.Struct, array_like=True, frozen=True, tag="d", gc=False):
    """Nothing will come of the job; its lines go another way."""

    tag: str
    reason: str


_Entry = PlannedJob | SubmittingJob | SubmittedJob | OverJob | LeftJob | CollectedJob | DroppedJob
_decode: Final = msgspec.json.Decoder(_Entry).decode


class JobFacts(msgspec.Struct, kw_only=True):
    """A job as its records tell it."""

    planned: PlannedJob
    submitting: SubmittingJob | None = None
    ids: tuple[str, ...] = ()
    sure: bool = True
    over: OverJob | None = None
    left: bool = False
    collected: bool = False
    dropped: str = ""

    @property
    def live(self) -> bool:
        """Whether the job may still bring results."""
        return not self.collected and not self.dropped


class JobLog:
    """The records of one run's jobs; use it as a context manager."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.jobs: dict[str, JobFacts] = {}
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            self._read()
        except BaseException:
            os.close(self._file)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._file)

    def write(self, entry: _Entry) -> None:
        """Write an entry down, so that it is there after a crash, and count it."""
        os.write(self._file, _encode(entry) + b"\n")
        os.fsync(self._file)
        self._count(entry)

    @property
    def live(self) -> list[JobFacts]:
        """The jobs that may still bring results, in the order in which they were planned."""
        return [job for job in self.jobs.values() if job.live]

    def _read(self) -> None:
        """Read what earlier processes wrote; a torn line at the end was never written."""
        whole = 0
        for entry, end in whole_lines(self.path, _decode):
            whole = end
            if isinstance(entry, PlannedJob):
                check_version(self.path, entry.version, VERSION)
            self._count(entry)
        os.ftruncate(self._file, whole)

    def _count(self, entry: _Entry) -> None:
        if isinstance(entry, PlannedJob):
            self.jobs[entry.tag] = JobFacts(planned=entry)
            return
        job = self.jobs[entry.tag]
        if isinstance(entry, SubmittingJob):
            job.submitting = entry
        elif isinstance(entry, SubmittedJob):
            job.ids, job.sure = entry.ids, entry.sure
        elif isinstance(entry, OverJob):
            job.over = entry
        elif isinstance(entry, LeftJob):
            job.left = True
        elif isinstance(entry, CollectedJob):
            job.collected = True
        else:
            job.dropped = entry.reason


def fingerprint(key: Secret | None) -> str:
    """Eight hexadecimal digits by which a key is known again; the key cannot be found from them."""
    if key is None:
        return ""
    made = hashlib.blake2b(key.reveal().encode(), digest_size=4, person=b"lightgate-job")
    return made.hexdigest()
