"""Batches of the gateway with their progress, and what earlier runs of `lightgate batch` took."""

from __future__ import annotations

import contextlib
import shlex
import sqlite3
from typing import TYPE_CHECKING, Final

import msgspec

from lightgate.batch.history import PastTimes
from lightgate.console.api.question import rfc3339
from lightgate.errors import LightgateError
from lightgate.gateway.batches.store import BatchStore
from lightgate.gateway.served.example import example_name

if TYPE_CHECKING:
    from lightgate.console.work.own_gateway import OwnGateway
    from lightgate.gateway.batches.records import BatchJob

MOST_SHOWN: Final = 200
MOST_PAST: Final = 20
STATES: Final = ("all", "running", "ended", "failed")
LEAST_DONE: Final = 5  # lines before a rate is told


class BatchRow(msgspec.Struct, frozen=True, kw_only=True):
    """A batch; `done` counts every line that has an end, `failed` those among them without answer.

    `rate_per_s` and `ends` are told once a few lines have ended, and while the batch runs.
    """

    id: str
    key: str | None
    kind: str
    endpoint: str
    model: str | None
    state: str
    active: bool
    total: int
    done: int
    completed: int
    failed: int
    cancelled: int
    expired: int
    created: str
    over: str | None
    expires: str
    rate_per_s: float | None
    ends: str | None
    tokens_in: int | None
    tokens_out: int | None
    problem: str


class PastRun(msgspec.Struct, frozen=True, kw_only=True):
    """What a job of a provider, or lines in parallel, took in a run of `lightgate batch run`."""

    kind: str
    name: str
    lines: int
    seconds: float
    at: str


class BatchList(msgspec.Struct, frozen=True, kw_only=True):
    """Batches, the newest first; `try_lines` are the commands that make one."""

    rows: list[BatchRow]
    past: list[PastRun]
    now: str
    try_lines: tuple[str, ...]
    ignored: tuple[str, ...] = ()


def batch_list(own: OwnGateway, state: str, now_s: int) -> BatchList:
    """List the batches of a gateway."""
    names = _names(own)
    jobs = [job for job in _jobs(own) if _wanted(job, state)]
    past = PastTimes(own.data).newest(MOST_PAST)
    return BatchList(
        rows=[_row(job, names, now_s) for job in jobs],
        past=[
            PastRun(
                kind=one.kind, name=one.name, lines=one.lines, seconds=one.seconds,
                at=rfc3339(int(one.wall_s)),
            )
            for one in past
        ],
        now=rfc3339(now_s),
        try_lines=_try_lines(own),
    )  # fmt: skip


def _jobs(own: OwnGateway) -> list[BatchJob]:
    store = BatchStore(own.data)
    if not store.exists:
        return []
    with contextlib.closing(store):
        try:
            return store.newest(MOST_SHOWN)
        except sqlite3.Error as error:
            raise LightgateError(f"The store of batches cannot be read: {error}.") from None


def _wanted(job: BatchJob, state: str) -> bool:
    if state == "running":
        return job.active
    if state == "ended":
        return not job.active
    return state != "failed" or job.failed > 0 or job.state in {"failed", "expired"}


def _row(job: BatchJob, names: dict[str, str], now_s: int) -> BatchRow:
    done = job.completed + job.failed + job.cancelled + job.expired
    rate, ends = _pace(job, done, now_s)
    over = job.over_s
    return BatchRow(
        id=job.id,
        key=names.get(job.owner, job.owner) or None,
        kind=job.kind,
        endpoint=job.endpoint,
        model=job.model,
        state=job.state,
        active=job.active,
        total=job.total,
        done=done,
        completed=job.completed,
        failed=job.failed,
        cancelled=job.cancelled,
        expired=job.expired,
        created=rfc3339(job.created_s),
        over=None if over is None else rfc3339(over),
        expires=rfc3339(job.expires_s),
        rate_per_s=rate,
        ends=ends,
        tokens_in=job.usage.get("input"),
        tokens_out=job.usage.get("output"),
        problem="; ".join(one.message for one in job.problems[:3]),
    )


def _pace(job: BatchJob, done: int, now_s: int) -> tuple[float | None, str | None]:
    """Lines a second since it began, and when it ends at that pace."""
    began = job.at.get("in_progress")
    until = job.at.get("finalizing", job.over_s or now_s)
    if began is None or done < LEAST_DONE or until <= began:
        return None, None
    rate = done / (until - began)
    left = job.total - done
    ends = rfc3339(now_s + round(left / rate)) if job.active and left > 0 else None
    return round(rate, 3), ends


def _names(own: OwnGateway) -> dict[str, str]:
    """The names of keys by their ids."""
    with contextlib.suppress(LightgateError):
        return {key.id: key.name for key in own.snapshot().keys}
    return {}


def _try_lines(own: OwnGateway) -> tuple[str, ...]:
    address, key, model = own.address or "http://127.0.0.1:8080", "", "PROVIDER/MODEL"
    with contextlib.suppress(LightgateError):
        snapshot = own.snapshot()
        key = ' -H "authorization: Bearer $LIGHTGATE_KEY"' if snapshot.keys else ""
        model = example_name(snapshot) or model
    said = {"model": model, "messages": [{"role": "user", "content": "Say hello."}]}
    url = "/v1/chat/completions"
    line = {"custom_id": "1", "method": "POST", "url": url, "body": said}
    order = {"input_file_id": "'$FILE_ID'", "endpoint": url, "completion_window": "24h"}
    upload = f"curl -s {address}/v1/files{key} -F purpose=batch -F file=@lines.jsonl"
    return (
        f"echo {_shell(line)} > lines.jsonl",
        f"FILE_ID=$({upload} | grep -o 'file-[0-9a-f]*' | head -n 1)",
        # The quotes around the variable end those of the body: the shell puts the id in.
        f"curl {address}/v1/batches{key} -H 'content-type: application/json' -d '{_json(order)}'",
    )


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _shell(value: object) -> str:
    return shlex.quote(_json(value))
