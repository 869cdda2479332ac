"""Jobs of a simulated batch API: a job's state is worked out from the clock when it is asked for.

Nothing runs in the background. A job draws the time that it takes when it is made, each of its
lines has an instant within that time, and an answer is made when the results are first read.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import msgspec

from lightgate.sim.weather import NS, Dice

if TYPE_CHECKING:
    from collections.abc import Callable

    from lightgate.clock.source import Clock
    from lightgate.sim.world import WorldBatch

Phase = Literal["running", "cancelling", "completed", "expired", "cancelled", "failed"]
Fate = Literal["answer", "error", "expired", "cancelled"]
_P90: Final = 1.2815515655446004  # of the normal distribution
_MOST_FILES: Final = 1000
_MOST_JOBS: Final = 1000  # the oldest are forgotten first


class SimJobLine(NamedTuple):
    """One request of a job: its id, and its body in the words of the endpoint."""

    id: str
    body: bytes


class SimLineEnd(NamedTuple):
    """What became of a line; `usage` are tokens in and out, of an answer."""

    id: str
    fate: Fate
    status: int = 0
    body: bytes = b""
    usage: tuple[int, int] = (0, 0)


class SimJob(msgspec.Struct, kw_only=True):
    """One job; instants are nanoseconds of the clock, `wall_s` seconds since 1970.

    `facts` are fields that the API says again, such as the endpoint and the metadata.
    """

    id: str
    number: int
    lines: tuple[SimJobLine, ...]
    facts: dict[str, object]
    made_ns: int
    wall_s: int
    due: list[tuple[int | None, bool]]  # of each line: its instant, and whether it fails
    errors: list[dict[str, object]] = []  # of the whole job, which has then failed
    cancelled_ns: int | None = None
    ends: dict[str, SimLineEnd] = {}  # lines that have been answered
    files: dict[str, str] = {}  # of results: kind to id


class SimJobState(NamedTuple):
    """A job at one instant; `ended_ns` is when it came to its last phase."""

    phase: Phase
    done: int  # lines that finished
    ended_ns: int | None = None


class SimFile(NamedTuple):
    """A file that a client has sent, or the results of a job."""

    id: str
    name: str
    purpose: str
    wall_s: int
    body: bytes = b""
    job: str = ""  # whose results it holds
    kind: str = ""  # "output" or "error"


class SimJobs:
    """The jobs and files of one provider."""

    def __init__(
        self,
        spec: WorldBatch,
        clock: Clock,
        answer: Callable[[SimJob, SimJobLine], SimLineEnd],
        *,
        seed: int,
        name: str,
    ) -> None:
        self.spec = spec
        self.clock = clock
        self.files: dict[str, SimFile] = {}
        self.jobs: dict[str, SimJob] = {}
        self._answer = answer
        self._seed = seed
        self._name = name
        self._numbers = 0
        self.made = 0  # jobs
        self.asked = 0  # submissions

    def new_id(self) -> str:
        """A number for a file or a job, unlike all others of this provider."""
        self._numbers += 1
        return f"{self._numbers:06d}{self._seed % 4096:03x}"

    def wall_s(self) -> int:
        """Seconds since 1970."""
        return self.clock.wall_ns() // NS

    def keep(self, file: SimFile) -> SimFile:
        """Keep a file; the oldest is forgotten where there are too many."""
        self.files[file.id] = file
        if len(self.files) > _MOST_FILES:
            del self.files[next(iter(self.files))]
        return file

    def make(
        self,
        id: str,  # noqa: A002 - the name of the field
        lines: tuple[SimJobLine, ...],
        facts: dict[str, object],
        errors: list[dict[str, object]] | None = None,
    ) -> SimJob:
        """Make a job; with errors it has failed from the beginning."""
        number, self.made = self.made, self.made + 1
        p50, p90 = self.spec.finish_s
        draw = Dice(self._seed, f"{self._name}/batch", number).ttft
        took_s = p50 * math.exp(math.log(p90 / p50) / _P90 * draw)
        job = SimJob(
            id=id,
            number=number,
            lines=lines,
            facts=facts,
            made_ns=self.clock.now_ns(),
            wall_s=self.wall_s(),
            due=self._due(number, len(lines), round(took_s * NS)),
            errors=errors or [],
        )
        self.jobs[id] = job
        if len(self.jobs) > _MOST_JOBS:
            del self.jobs[next(iter(self.jobs))]
        return job

    def cancel(self, job: SimJob) -> None:
        """Cancel a job that has not ended; a second time changes nothing."""
        if self.state(job).ended_ns is None and job.cancelled_ns is None:
            job.cancelled_ns = self.clock.now_ns()

    def state(self, job: SimJob) -> SimJobState:
        """The state of a job at this instant."""
        now = self.clock.now_ns()
        if job.errors:
            return SimJobState("failed", 0, job.made_ns)
        due = [at for at, _ in job.due if at is not None]
        whole = len(due) == len(job.lines)
        limit_ns = job.made_ns + round(self.spec.window_s * NS)
        last_ns = max(due, default=job.made_ns) if whole else limit_ns
        end_ns, phase = min((last_ns, limit_ns)), "completed" if whole else "expired"
        if whole and last_ns > limit_ns:
            phase = "expired"
        if job.cancelled_ns is not None:
            stop_ns = job.cancelled_ns + round(self.spec.cancel_s * NS)
            if stop_ns < end_ns:
                end_ns, phase = stop_ns, "cancelled"
        done = sum(at <= min(now, end_ns) for at in due)
        if now >= end_ns:
            return SimJobState(phase, done, end_ns)  # type: ignore[arg-type]  # the three words above
        return SimJobState("running" if job.cancelled_ns is None else "cancelling", done)

    def gone(self, job: SimJob) -> bool:
        """Whether the results of a job are no longer kept."""
        ended_ns = self.state(job).ended_ns
        kept_ns = round(self.spec.keep_s * NS)
        return ended_ns is not None and self.clock.now_ns() > ended_ns + kept_ns

    def results(self, job: SimJob) -> list[SimLineEnd]:
        """The ends of all lines of a job that has ended, the last line first: order is no promise.

        A line is answered once; to ask again gives the same bytes.
        """
        state = self.state(job)
        if state.ended_ns is None or job.errors:
            return []
        left: Fate = "cancelled" if state.phase == "cancelled" else "expired"
        found = []
        for (at, fails), line in zip(job.due, job.lines, strict=True):
            if at is None or at > state.ended_ns:
                found.append(SimLineEnd(line.id, left))
                continue
            if line.id not in job.ends:
                end = self._answer(job, line)
                if fails and end.fate == "answer":
                    end = SimLineEnd(line.id, "error", 500)
                job.ends[line.id] = end
            found.append(job.ends[line.id])
        return found[::-1]

    def _due(self, number: int, count: int, took_ns: int) -> list[tuple[int | None, bool]]:
        """The instant of each line, None for one that never finishes, and whether it fails."""
        now, stuck, errors = self.clock.now_ns(), self.spec.stuck, self.spec.errors
        drawn = Dice(self._seed, f"{self._name}/lines", number).gaps_ns(0, 1, count)
        found: list[tuple[int | None, bool]] = []
        for place, millionths in enumerate(drawn):
            luck = millionths / 1e6
            at = now + took_ns * (place + 1) // count
            found.append((None if luck < stuck else at, stuck <= luck < stuck + errors))
        return found
