"""A job at a provider's batch API, in no provider's words: lines, states, results, and the API.

A job runs until it is completed, failed or expired. One that is cancelled is cancelling for a
while; what was done until its end is kept, and it may complete all the same.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol

import msgspec

from lightgate.errors import (
    AttemptError,
    DeadlineMissed,
    HttpRefused,
    NoDescriptor,
    Unreachable,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

MOST_PAGES: Final = 10  # of a list in which a job is looked for
SKEW_S: Final = 300.0  # by which a provider's clock may differ from ours


class JobState(StrEnum):
    """The state of a job; results may be there in all but the first two."""

    RUNNING = "running"
    CANCELLING = "cancelling"
    COMPLETED = "completed"
    FAILED = "failed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"

    @property
    def over(self) -> bool:
        """Whether the job will not change any more."""
        return self not in {JobState.RUNNING, JobState.CANCELLING}


class JobLine(NamedTuple):
    """One request of a job; `body` is a JSON object in the provider's own dialect."""

    id: str
    body: bytes


class JobStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A job as its provider describes it.

    `word` is the provider's own for the state. `tag` is what the submission wrote into it, "" where
    the API has no place for one; `file` is its input. `results` are the places of its results.
    `error` says why all of it failed. `made_s` is a wall-clock time, None where it is not said.
    """

    id: str
    state: JobState
    word: str
    tag: str = ""
    file: str = ""
    made_s: float | None = None
    total: int | None = None
    done: int | None = None
    results: tuple[str, ...] = ()
    error: str = ""


class JobResult(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What became of one line of a job.

    `body` is the provider's answer, or its error document; empty where the line was never run.
    """

    id: str
    end: Literal["answer", "error", "expired", "cancelled"]
    status: int = 0
    body: bytes = b""
    request_id: str = ""
    message: str = ""


class JobAsked(NamedTuple):
    """What a submission knows about its job: enough to find it again.

    `file` is the provider's id of the uploaded lines, "" where they travel with the submission;
    `size` is their number. `since_s` is the wall-clock time before which the job cannot have been
    made.
    """

    tag: str
    endpoint: str
    size: int
    file: str = ""
    since_s: float = 0.0


class JobApi(Protocol):
    """The batch API of one target. Every method raises AttemptError; none of them tries again."""

    async def upload(self, asked: JobAsked, lines: Sequence[JobLine]) -> str:
        """Send the lines as a file; its id, or "" where they travel with the submission."""
        ...

    async def submit(self, asked: JobAsked, lines: Sequence[JobLine]) -> JobStatus:
        """Make the job; after an error that is not `surely_not_made`, look for it with `find`."""
        ...

    async def find(self, asked: JobAsked) -> list[JobStatus]:
        """The jobs that may be the one that was asked for; several only where nothing tells."""
        ...

    async def poll(self, id: str) -> JobStatus:  # noqa: A002 - the name of the field
        """Return the state of a job now."""
        ...

    async def cancel(self, id: str) -> None:  # noqa: A002 - the name of the field
        """Ask for the end of a job; what has been done is kept."""
        ...

    def results(self, status: JobStatus) -> AsyncGenerator[JobResult, None]:
        """Read the results of a job that is over, in no order, a few at a time."""
        ...


def surely_not_made(error: AttemptError) -> bool:
    """Whether a submission that ended so made no job: it was refused, or never sent.

    An error of the server, a timeout or a broken connection proves nothing.
    """
    if isinstance(error, HttpRefused):
        return error.code < 500 and error.code not in {408, 409}
    if isinstance(error, DeadlineMissed):
        return error.phase == "connect"
    return isinstance(error, Unreachable | NoDescriptor)
