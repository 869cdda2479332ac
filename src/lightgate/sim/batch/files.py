"""The batch APIs with files: OpenAI's, and Groq's, Together's and Mistral's kinds of it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lightgate.sim.answer.request import BadSimRequest, form_parts
from lightgate.sim.batch.endpoints import (
    JSONL,
    KINDS,
    SimReply,
    failed_body,
    read_lines,
    reply,
    submitted,
)
from lightgate.sim.batch.jobs import SimFile
from lightgate.sim.weather import NS

if TYPE_CHECKING:
    from lightgate.sim.batch.endpoints import SimCall
    from lightgate.sim.batch.jobs import SimJob, SimJobs, SimJobState, SimLineEnd

_STATUS: Final = {"running": "in_progress"}
_TOGETHER: Final = {"running": "IN_PROGRESS", "cancelling": "IN_PROGRESS"}
_MISTRAL: Final = {
    "running": "RUNNING",
    "cancelling": "CANCELLATION_REQUESTED",
    "completed": "SUCCESS",
    "expired": "TIMEOUT_EXCEEDED",
}
_PAGE: Final = 20


class OpenAIBatchApi:
    """OpenAI's files and batches."""

    upload = "v1/files"
    root = "v1/batches"
    purpose = "batch"

    def __init__(self, jobs: SimJobs) -> None:
        self.jobs = jobs

    def answer(self, call: SimCall) -> SimReply | None:
        """Answer a request about files or jobs."""
        path = call.path
        if path == self.upload and call.method == b"POST":
            return self._upload(call)
        if path == "v1/files" or path.startswith("v1/files/"):
            return self._file(call, path.removeprefix("v1/files").strip("/"))
        if path == self.root:
            return self._create(call) if call.method == b"POST" else reply(self.page(call))
        if path.startswith(f"{self.root}/"):
            return self._one(call, path.removeprefix(f"{self.root}/"))
        return None

    def _one(self, call: SimCall, rest: str) -> SimReply | None:
        name, _, verb = rest.partition("/")
        job = self._job(name)
        if verb == "cancel" and call.method == b"POST":
            self.jobs.cancel(job)
        elif verb or call.method != b"GET":
            return None
        return reply(self.document(job))

    # Files

    def _upload(self, call: SimCall) -> SimReply:
        fields, sent = form_parts(call.body)
        if fields.get("purpose") != self.purpose:
            raise BadSimRequest(f"The purpose of a batch's file is `{self.purpose}`.")
        file = SimFile(
            f"file-{self.jobs.new_id()}",
            sent.name,
            self.purpose,
            self.jobs.wall_s(),
            sent.content,
        )
        return reply(_file_document(self.jobs.keep(file)))

    def _file(self, call: SimCall, rest: str) -> SimReply | None:
        if not rest and call.method == b"GET":
            rows = [_file_document(file) for file in self.jobs.files.values()]
            return reply({"object": "list", "data": rows, "has_more": False})
        name, _, part = rest.partition("/")
        file = self.jobs.files.get(name)
        if file is None:
            raise BadSimRequest(f"No such File object: {name}", 404)
        if part == "content":
            return SimReply(self._content(file), (JSONL,))
        if call.method == b"DELETE":
            del self.jobs.files[name]
            return reply({"id": name, "object": "file", "deleted": True})
        return reply(_file_document(file))

    def _content(self, file: SimFile) -> bytes:
        if not file.job:
            return file.body
        job = self._job(file.job)
        if self.jobs.gone(job):
            raise BadSimRequest(f"No such File object: {file.id}", 404)
        good = file.kind == "output"
        ends = [end for end in self.jobs.results(job) if (end.fate == "answer") == good]
        return b"".join([_result_line(job, end) for end in ends])

    def results_file(self, job: SimJob, state: SimJobState, kind: str) -> str | None:
        """The id of a file of results, once there is something in it."""
        if state.ended_ns is None or job.errors:
            return None
        good = kind == "output"
        if not any((end.fate == "answer") == good for end in self.jobs.results(job)):
            return None
        if kind not in job.files:
            job.files[kind] = f"file-{self.jobs.new_id()}"
            name, ended = f"{job.id}_{kind}.jsonl", self._wall_s(job, state.ended_ns)
            self.jobs.keep(
                SimFile(job.files[kind], name, "batch_output", ended or 0, job=job.id, kind=kind)
            )
        return job.files[kind]

    # Jobs

    def _create(self, call: SimCall) -> SimReply:
        tree = call.tree()
        lost = submitted(self.jobs)
        job = self.jobs.make(self.name(), *self.read(tree))
        return reply(self.created(job), lost=lost)

    def name(self) -> str:
        """The id of a new job."""
        return f"batch_{self.jobs.new_id()}"

    def read(self, tree: dict[str, Any]) -> tuple[Any, dict[str, object], list[dict[str, object]]]:
        """The lines, the facts and the errors of a new job."""
        file = self.jobs.files.get(str(tree.get("input_file_id")))
        if file is None:
            raise BadSimRequest(f"No such File object: {tree.get('input_file_id')}", 404)
        endpoint = str(tree.get("endpoint"))
        if endpoint not in KINDS:
            raise BadSimRequest(f"The endpoint {endpoint!r} has no batches.")
        lines, errors = read_lines(file.body, self.jobs, "custom_id", "body")
        facts: dict[str, object] = {
            "kind": KINDS[endpoint],
            "endpoint": endpoint,
            "input_file_id": file.id,
            "completion_window": tree.get("completion_window") or "24h",
            "metadata": tree.get("metadata"),
        }
        return lines, facts, errors

    def created(self, job: SimJob) -> Any:
        """The answer to a submission."""
        return self.document(job)

    def page(self, call: SimCall) -> Any:
        """A page of jobs, the latest first."""
        rows = list(self.jobs.jobs.values())[::-1]
        names = [job.id for job in rows]
        after = call.query.get("after")
        start = names.index(after) + 1 if after in names else 0
        limit = int(call.query.get("limit", _PAGE))
        page = rows[start : start + limit]
        return {
            "object": "list",
            "data": [self.document(job) for job in page],
            "first_id": page[0].id if page else None,
            "last_id": page[-1].id if page else None,
            "has_more": start + limit < len(rows),
        }

    def document(self, job: SimJob) -> dict[str, Any]:
        """The batch object."""
        state = self.jobs.state(job)
        ended = self._wall_s(job, state.ended_ns)
        ends = self.jobs.results(job) if state.ended_ns is not None else []
        bad = sum(end.fate == "error" for end in ends)
        errors: Any = {"object": "list", "data": job.errors} if job.errors else None
        stopped = self._wall_s(job, job.cancelled_ns)
        return {
            "id": job.id,
            "object": "batch",
            "endpoint": job.facts["endpoint"],
            "errors": self.errors(errors),
            "input_file_id": job.facts["input_file_id"],
            "completion_window": job.facts["completion_window"],
            "status": _STATUS.get(state.phase, state.phase),
            "output_file_id": self.results_file(job, state, "output"),
            "error_file_id": self.results_file(job, state, "error"),
            "created_at": job.wall_s,
            "in_progress_at": job.wall_s,
            "expires_at": job.wall_s + round(self.jobs.spec.window_s),
            "finalizing_at": ended if state.phase == "completed" else None,
            "completed_at": ended if state.phase == "completed" else None,
            "failed_at": ended if state.phase == "failed" else None,
            "expired_at": ended if state.phase == "expired" else None,
            "cancelling_at": stopped,
            "cancelled_at": ended if state.phase == "cancelled" else None,
            "request_counts": {
                "total": len(job.lines),
                "completed": state.done - bad,
                "failed": bad,
            },
            "usage": _usage(ends),
            "metadata": job.facts["metadata"],
        }

    def errors(self, listed: Any) -> Any:
        """The errors of a whole job, in the provider's form."""
        return listed

    def _job(self, name: str) -> SimJob:
        job = self.jobs.jobs.get(name)
        if job is None:
            raise BadSimRequest(f"No batch found with id '{name}'.", 404)
        return job

    def _wall_s(self, job: SimJob, at_ns: int | None) -> int | None:
        return None if at_ns is None else job.wall_s + (at_ns - job.made_ns) // NS


class GroqBatchApi(OpenAIBatchApi):
    """Groq's: errors are a plain list, and pages are found by a cursor."""

    def errors(self, listed: Any) -> Any:
        """The errors without the object around them."""
        return None if listed is None else listed["data"]

    def page(self, call: SimCall) -> Any:
        """A page of jobs and the cursor of the next one."""
        rows = list(self.jobs.jobs.values())[::-1]
        start = int(call.query.get("cursor") or 0)
        page = rows[start : start + _PAGE]
        more = start + _PAGE < len(rows)
        cursor = str(start + _PAGE) if more else None
        return {
            "object": "list",
            "data": [self.document(job) for job in page],
            "paging": {"next_cursor": cursor},
        }


class TogetherBatchApi(OpenAIBatchApi):
    """Together's: a new job is wrapped, states are in capitals, there is no metadata."""

    upload = "v1/files/upload"
    purpose = "batch-api"

    def created(self, job: SimJob) -> Any:
        """The job and a warning, where there is one."""
        return {"job": self.document(job), "warning": ""}

    def page(self, call: SimCall) -> Any:  # noqa: ARG002 - its list has no pages
        """All jobs, in no object."""
        return [self.document(job) for job in list(self.jobs.jobs.values())[::-1]]

    def document(self, job: SimJob) -> dict[str, Any]:
        """The job; its times are texts, and its progress is a percentage."""
        state = self.jobs.state(job)
        ended = self._wall_s(job, state.ended_ns)
        done = state.phase == "completed"
        return {
            "id": job.id,
            "user_id": "sim",
            "input_file_id": job.facts["input_file_id"],
            "file_size_bytes": sum(len(line.body) for line in job.lines),
            "status": _TOGETHER.get(state.phase, state.phase.upper()),
            "job_deadline": _text(job.wall_s + round(self.jobs.spec.window_s)),
            "created_at": _text(job.wall_s),
            "endpoint": job.facts["endpoint"],
            "progress": 100.0 if done else 100.0 * state.done / max(len(job.lines), 1),
            "model_id": None,
            "output_file_id": self.results_file(job, state, "output"),
            "error_file_id": self.results_file(job, state, "error"),
            "error": "; ".join(str(one["message"]) for one in job.errors) or None,
            "completed_at": None if ended is None else _text(ended),
        }


class MistralBatchApi(OpenAIBatchApi):
    """Mistral's: the job names the model, and its input is files or the requests themselves."""

    root = "v1/batch/jobs"

    def name(self) -> str:
        """An id in the form of a UUID."""
        return f"00000000-0000-4000-8000-{self.jobs.new_id():0>12}"

    def read(self, tree: dict[str, Any]) -> tuple[Any, dict[str, object], list[dict[str, object]]]:
        """The lines of all its files, or of `requests`."""
        endpoint = str(tree.get("endpoint"))
        if endpoint not in KINDS:
            raise BadSimRequest(f"The endpoint {endpoint!r} has no batches.")
        given = tree.get("input_files") or []
        raw = b"\n".join([msgspec.json.encode(one) for one in tree.get("requests") or []])
        for name in given:
            if name not in self.jobs.files:
                raise BadSimRequest(f"There is no file {name!r}.", 404)
            raw += self.jobs.files[name].body + b"\n"
        lines, errors = read_lines(raw, self.jobs, "custom_id", "body")
        facts: dict[str, object] = {
            "kind": KINDS[endpoint],
            "endpoint": endpoint,
            "input_files": given,
            "model": tree.get("model"),
            "metadata": tree.get("metadata"),
        }
        return lines, facts, errors

    def page(self, call: SimCall) -> Any:
        """A page of jobs by its number."""
        rows = list(self.jobs.jobs.values())[::-1]
        size, number = int(call.query.get("page_size", 100)), int(call.query.get("page", 0))
        page = rows[size * number : size * (number + 1)]
        documents = [self.document(job) for job in page]
        return {"object": "list", "data": documents, "total": len(rows)}

    def document(self, job: SimJob) -> dict[str, Any]:
        """The batch job."""
        state = self.jobs.state(job)
        ends = self.jobs.results(job) if state.ended_ns is not None else []
        bad = sum(end.fate != "answer" for end in ends)
        grouped = [{"message": str(one["message"]), "count": 1} for one in job.errors]
        return {
            "id": job.id,
            "object": "batch",
            "input_files": job.facts["input_files"],
            "metadata": job.facts["metadata"],
            "endpoint": job.facts["endpoint"],
            "model": job.facts["model"],
            "agent_id": None,
            "output_file": self.results_file(job, state, "output"),
            "error_file": self.results_file(job, state, "error"),
            "errors": grouped,
            "status": _MISTRAL.get(state.phase, state.phase.upper()),
            "created_at": job.wall_s,
            "total_requests": len(job.lines),
            "completed_requests": state.done,
            "succeeded_requests": max(state.done - bad, 0),
            "failed_requests": bad,
            "started_at": job.wall_s,
            "completed_at": self._wall_s(job, state.ended_ns),
        }


def _file_document(file: SimFile) -> dict[str, Any]:
    return {
        "id": file.id,
        "object": "file",
        "bytes": len(file.body),
        "created_at": file.wall_s,
        "filename": file.name,
        "purpose": file.purpose,
        "status": "processed",
    }


def _result_line(job: SimJob, end: SimLineEnd) -> bytes:
    """A line of the output or error file."""
    response, error = None, None
    if end.fate in {"answer", "error"}:
        body = end.body if end.fate == "answer" else failed_body("openai", end)
        response = {
            "status_code": end.status,
            "request_id": f"{job.id}-{end.id}",
            "body": msgspec.Raw(body),
        }
    else:
        said = "could not be executed before the completion window expired"
        if end.fate == "cancelled":
            said = "was not executed because the batch was cancelled"
        error = {"code": f"batch_{end.fate}", "message": f"This request {said}."}
    tree = {"id": f"batch_req_{job.id}_{end.id}", "custom_id": end.id, "response": response}
    return msgspec.json.encode({**tree, "error": error}) + b"\n"


def _usage(ends: list[SimLineEnd]) -> dict[str, Any]:
    tokens_in = sum(end.usage[0] for end in ends)
    tokens_out = sum(end.usage[1] for end in ends)
    return {
        "input_tokens": tokens_in,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": tokens_out,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": tokens_in + tokens_out,
    }


def _text(wall_s: int) -> str:
    return datetime.fromtimestamp(wall_s, UTC).isoformat().replace("+00:00", "Z")
