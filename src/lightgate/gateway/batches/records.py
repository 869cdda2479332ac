"""Files and batches as they are kept, and as clients of OpenAI and Anthropic read them."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from typing import Any, Final, Literal

import msgspec

Kind = Literal["openai", "anthropic"]
JobState = Literal[
    "validating",
    "in_progress",
    "finalizing",
    "cancelling",
    "completed",
    "failed",
    "expired",
    "cancelled",
]
# A batch in one of these states has lines that may still be sent.
ACTIVE: Final = frozenset(("validating", "in_progress", "finalizing", "cancelling"))
INPUT: Final = "batch"  # purpose of a file with lines, as OpenAI calls it
OUTPUT: Final = "batch_output"
# Files of message batches, which Anthropic's clients never see as files.
MESSAGE_INPUT: Final = "message_batch"
MESSAGE_OUTPUT: Final = "message_batch_results"
SHOWN: Final = frozenset((INPUT, OUTPUT))


class StoredFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file; `owner` is the id of its key, "" without keys; times are seconds of the wall.

    `digest` is of its contents and of what was said about it, for requests that come twice.
    """

    id: str
    owner: str
    purpose: str
    filename: str
    size: int
    created_s: int
    expires_s: int | None = None
    digest: str = ""

    def document(self) -> dict[str, Any]:
        """The file as OpenAI's clients read it."""
        return {
            "id": self.id,
            "object": "file",
            "bytes": self.size,
            "created_at": self.created_s,
            "expires_at": self.expires_s,
            "filename": self.filename,
            "purpose": self.purpose,
            "status": "processed",
            "status_details": None,
        }


class FileProblem(msgspec.Struct, frozen=True):
    """What is wrong with a whole file, or with one of its lines."""

    code: str
    message: str
    line: int | None = None


class BatchJob(msgspec.Struct, frozen=True, kw_only=True):
    """One batch of either dialect; times are seconds of the wall.

    `output_file` and `error_file` are names from the beginning: what was answered is written there
    at once, and they become files of the owner at the end, where they are not empty. `at` has the
    instant at which each state was entered. `keep_s` is how long results are kept.
    """

    id: str
    owner: str
    kind: Kind
    state: JobState = "validating"
    endpoint: str
    input_file: str
    output_file: str
    error_file: str
    created_s: int
    expires_s: int
    window: str = "24h"
    keep_s: int
    output_expires_after: int | None = None
    metadata: dict[str, str] | None = None
    digest: str = ""
    at: dict[str, int] = {}
    total: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    expired: int = 0
    has_output: bool = False
    has_errors: bool = False
    problems: tuple[FileProblem, ...] = ()
    usage: dict[str, int] = {}
    model: str | None = None

    @property
    def active(self) -> bool:
        """Whether lines of it may still be sent."""
        return self.state in ACTIVE

    @property
    def over_s(self) -> int | None:
        """The instant at which the batch ended."""
        return None if self.active else self.at.get(self.state, self.created_s)

    def moved(self, state: JobState, now_s: int, **changes: Any) -> BatchJob:
        """The batch in another state."""
        at = {**self.at, state: now_s}
        return msgspec.structs.replace(self, state=state, at=at, **changes)

    def document(self) -> dict[str, Any]:
        """The batch as its clients read it."""
        return self._openai() if self.kind == "openai" else self._anthropic()

    def _openai(self) -> dict[str, Any]:
        at, used = self.at, self.usage
        problems = [
            {"code": one.code, "line": one.line, "message": one.message, "param": None}
            for one in self.problems
        ]
        usage = {
            "input_tokens": used.get("input", 0),
            "input_tokens_details": {"cached_tokens": used.get("cached", 0)},
            "output_tokens": used.get("output", 0),
            "output_tokens_details": {"reasoning_tokens": used.get("reasoning", 0)},
            "total_tokens": used.get("input", 0) + used.get("output", 0),
        }
        return {
            "id": self.id,
            "object": "batch",
            "endpoint": self.endpoint,
            "model": self.model,
            "errors": {"object": "list", "data": problems} if problems else None,
            "input_file_id": self.input_file,
            "completion_window": self.window,
            "status": self.state,
            "output_file_id": self.output_file if self.has_output else None,
            "error_file_id": self.error_file if self.has_errors else None,
            "created_at": self.created_s,
            "in_progress_at": at.get("in_progress"),
            "expires_at": self.expires_s,
            "finalizing_at": at.get("finalizing"),
            "completed_at": at.get("completed"),
            "failed_at": at.get("failed"),
            "expired_at": at.get("expired"),
            "cancelling_at": at.get("cancelling"),
            "cancelled_at": at.get("cancelled"),
            "request_counts": {
                "total": self.total,
                "completed": self.completed,
                "failed": self.failed,
            },
            "usage": usage if used else None,
            "metadata": self.metadata,
        }

    def _anthropic(self) -> dict[str, Any]:
        over = self.over_s
        left = self.total - self.completed - self.failed - self.cancelled - self.expired
        status = "canceling" if self.state == "cancelling" else "in_progress"
        kept = self.has_output and over is not None
        return {
            "id": self.id,
            "type": "message_batch",
            "processing_status": status if over is None else "ended",
            "request_counts": {
                # Anthropic says nothing of how lines ended before the batch has.
                "processing": self.total if over is None else max(0, left),
                "succeeded": 0 if over is None else self.completed,
                "errored": 0 if over is None else self.failed,
                "canceled": 0 if over is None else self.cancelled,
                "expired": 0 if over is None else self.expired,
            },
            "created_at": instant(self.created_s),
            "expires_at": instant(self.expires_s),
            "ended_at": None if over is None else instant(over),
            "cancel_initiated_at": _instant_or_none(self.at.get("cancelling")),
            "archived_at": None if over is None or kept else instant(over + self.keep_s),
            # A path, so that the SDK goes to the gateway that it has asked, and nowhere else.
            "results_url": f"/v1/messages/batches/{self.id}/results" if kept else None,
        }


def instant(wall_s: int) -> str:
    """A time as Anthropic writes it."""
    return datetime.fromtimestamp(wall_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _instant_or_none(wall_s: int | None) -> str | None:
    return None if wall_s is None else instant(wall_s)


def new_id(prefix: str) -> str:
    """A name that cannot be guessed: 128 random bits behind its kind."""
    return f"{prefix}{secrets.token_hex(16)}"
