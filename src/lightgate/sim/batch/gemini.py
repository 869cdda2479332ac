"""Gemini's batches: requests in the body or in a file, results in the job or in a file."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lightgate.sim.answer.request import BadSimRequest
from lightgate.sim.batch.endpoints import (
    JSON,
    JSONL,
    SimReply,
    failed_body,
    read_lines,
    reply,
    submitted,
)
from lightgate.sim.batch.jobs import SimFile, SimJobLine
from lightgate.sim.weather import NS

if TYPE_CHECKING:
    from lightgate.sim.batch.endpoints import SimCall
    from lightgate.sim.batch.jobs import SimJob, SimJobs, SimLineEnd

_VERSIONS: Final = ("v1beta", "v1")
_UPLOADS: Final = tuple([f"upload/{version}/files" for version in _VERSIONS])
_CREATE: Final = ":batchGenerateContent"
_STATE: Final = {
    "running": "RUNNING",
    "cancelling": "RUNNING",
    "completed": "SUCCEEDED",
    "expired": "EXPIRED",
    "cancelled": "CANCELLED",
    "failed": "FAILED",
}
_CODES: Final = {400: 3, 401: 16, 404: 5, 429: 8, 503: 14}  # of google.rpc.Code


class GeminiBatchApi:
    """The batches and files of one provider."""

    def __init__(self, jobs: SimJobs) -> None:
        self.jobs = jobs
        self._uploads: dict[str, SimFile] = {}

    def answer(self, call: SimCall) -> SimReply | None:
        """Answer a request about batches or files."""
        if call.path in _UPLOADS and call.method in {b"POST", b"PUT"}:
            return self._upload(call)
        version, _, path = call.path.removeprefix("download/").partition("/")
        if version not in _VERSIONS:
            return None
        if path.endswith(_CREATE) and call.method == b"POST":
            return self._create(call, path.removeprefix("models/").removesuffix(_CREATE))
        if path == "batches":
            return reply(self._page(call))
        room, _, rest = path.partition("/")
        if room == "files":
            return self._file(rest)
        return self._batch(call, rest) if room == "batches" else None

    # Files

    def _upload(self, call: SimCall) -> SimReply:
        """Begin an upload, or take a piece of one."""
        token = call.query.get("upload_id")
        if token is None:
            given = call.tree().get("file") or {}
            token = self.jobs.new_id()
            name = str(given.get("name") or f"files/{token}")
            title = str(given.get("displayName") or given.get("display_name") or "")
            self._uploads[token] = SimFile(name, title, "upload", self.jobs.wall_s())
            url = f"{call.root}/{call.path}?upload_id={token}"
            begun = ((b"x-goog-upload-status", b"active"), (b"x-goog-upload-url", url.encode()))
            return SimReply(b"{}", (JSON, *begun))
        file = self._uploads.get(token)
        if file is None:
            raise BadSimRequest("There is no such upload.", 404)
        offset = call.header(b"x-goog-upload-offset")
        if offset and int(offset) != len(file.body):
            raise BadSimRequest("The offset is not where the upload stands.")
        file = self._uploads[token] = file._replace(body=file.body + call.body)
        if b"finalize" not in call.header(b"x-goog-upload-command"):
            return SimReply(b"{}", (JSON, (b"x-goog-upload-status", b"active")))
        del self._uploads[token]
        self.jobs.keep(file)
        document = msgspec.json.encode({"file": _file_document(file, call.root)})
        return SimReply(document, (JSON, (b"x-goog-upload-status", b"final")))

    def _file(self, rest: str) -> SimReply:
        name, _, verb = rest.partition(":")
        file = self.jobs.files.get(f"files/{name}")
        if file is None:
            raise BadSimRequest(f"The file {name} does not exist.", 404)
        if verb != "download":
            return reply(_file_document(file, ""))
        if not file.job:
            raise BadSimRequest("Uploaded files cannot be downloaded.")
        job = self.jobs.jobs[file.job]
        if self.jobs.gone(job):
            raise BadSimRequest(f"The file {name} does not exist.", 404)
        lines = [
            msgspec.json.encode({"key": end.id, **_outcome(end)}) + b"\n"
            for end in self.jobs.results(job)
            if end.fate in {"answer", "error"}
        ]
        return SimReply(b"".join(lines), (JSONL,))

    # Jobs

    def _create(self, call: SimCall, model: str) -> SimReply:
        batch: Any = call.tree().get("batch")
        config: Any = batch.get("inputConfig") if isinstance(batch, dict) else None
        if not isinstance(config, dict):
            raise BadSimRequest("batch.inputConfig is missing.")
        facts: dict[str, object] = {
            "kind": "gemini",
            "model": model,
            "displayName": batch.get("displayName") or "",
            "file": config.get("fileName"),
        }
        errors: list[dict[str, object]] = []
        if facts["file"]:
            file = self.jobs.files.get(str(facts["file"]))
            if file is None:
                raise BadSimRequest(f"The file {facts['file']} does not exist.", 404)
            lines, errors = read_lines(file.body, self.jobs, "key", "request")
        else:
            lines = _inlined(config, facts)
        lost = submitted(self.jobs)
        job = self.jobs.make(f"batches/{self.jobs.new_id()}", lines, facts, errors)
        return reply(self._document(job), lost=lost)

    def _batch(self, call: SimCall, rest: str) -> SimReply:
        name, _, verb = rest.partition(":")
        job = self.jobs.jobs.get(f"batches/{name}")
        if job is None:
            raise BadSimRequest(f"The batch {name} does not exist.", 404)
        if verb == "cancel":
            self.jobs.cancel(job)
            return reply({})
        if call.method == b"DELETE":
            del self.jobs.jobs[job.id]
            return reply({})
        return reply(self._document(job))

    def _page(self, call: SimCall) -> Any:
        rows = list(self.jobs.jobs.values())[::-1]
        size = int(call.query.get("pageSize") or 50)
        start = int(call.query.get("pageToken") or 0)
        page = {"operations": [self._document(job) for job in rows[start : start + size]]}
        if start + size < len(rows):
            page["nextPageToken"] = str(start + size)  # type: ignore[assignment]  # another field
        return page

    def _document(self, job: SimJob) -> dict[str, Any]:
        """The job as a long-running operation, whose metadata is the batch."""
        state = self.jobs.state(job)
        over = state.ended_ns is not None
        bad = sum(end.fate != "answer" for end in self.jobs.results(job))
        stats = {
            "requestCount": str(len(job.lines)),
            "successfulRequestCount": str(max(state.done - bad, 0)),
            "failedRequestCount": str(bad),
            "pendingRequestCount": str(0 if over else len(job.lines) - state.done),
        }
        made, ended = job.made_ns, state.ended_ns
        batch: dict[str, Any] = {
            "@type": "type.googleapis.com/google.ai.generativelanguage.v1main.GenerateContentBatch",
            "name": job.id,
            "model": f"models/{job.facts['model']}",
            "displayName": job.facts["displayName"],
            "createTime": _text(job, made),
            "updateTime": _text(job, made if ended is None else ended),
            "batchStats": stats,
            "state": f"BATCH_STATE_{_STATE[state.phase]}",
        }
        document: dict[str, Any] = {"name": job.id, "metadata": batch}
        if ended is None:
            return document
        batch["endTime"] = _text(job, ended)
        document["done"] = True
        if state.phase in {"completed", "cancelled"} and not self.jobs.gone(job):
            batch["output"] = self._output(job)
            document["response"] = batch["output"]
        elif job.errors:
            document["error"] = {"code": 3, "message": str(job.errors[0]["message"])}
        return document

    def _output(self, job: SimJob) -> dict[str, Any]:
        if not job.facts["file"]:
            ends = sorted(self.jobs.results(job), key=lambda end: int(end.id))
            metadata = job.facts["metadata"]
            rows = [
                {"metadata": told, **_outcome(end)} if told else _outcome(end)
                for end, told in zip(ends, metadata, strict=True)  # type: ignore[call-overload]  # a list
            ]
            return {"inlinedResponses": {"inlinedResponses": rows}}
        name = job.files.setdefault("output", f"files/batch-{self.jobs.new_id()}")
        if name not in self.jobs.files:
            self.jobs.keep(SimFile(name, name, "output", self.jobs.wall_s(), job=job.id))
        return {"responsesFile": name}


def _inlined(config: dict[str, Any], facts: dict[str, object]) -> tuple[SimJobLine, ...]:
    found = config.get("requests")
    rows = found.get("requests") if isinstance(found, dict) else None
    if not isinstance(rows, list) or not rows:
        raise BadSimRequest("batch.inputConfig has neither fileName nor requests.")
    facts["metadata"] = [row.get("metadata") for row in rows]
    return tuple(
        SimJobLine(str(place), msgspec.json.encode(row.get("request")))
        for place, row in enumerate(rows)
    )


def _outcome(end: SimLineEnd) -> dict[str, Any]:
    if end.fate == "answer":
        return {"response": msgspec.Raw(end.body)}
    status = {"expired": 504, "cancelled": 499}.get(end.fate, end.status)
    message = f"The request was {end.fate}."
    if end.fate == "error":
        message = msgspec.json.decode(failed_body("gemini", end))["error"]["message"]
    return {"error": {"code": _CODES.get(status, 13), "message": message}}


def _file_document(file: SimFile, root: str) -> dict[str, Any]:
    document = {
        "name": file.id,
        "displayName": file.name,
        "mimeType": "application/jsonl",
        "sizeBytes": str(len(file.body)),
        "createTime": _wall(file.wall_s),
        "uri": f"{root}/{_VERSIONS[0]}/{file.id}",
        "state": "ACTIVE",
        "source": "GENERATED" if file.job else "UPLOADED",
    }
    if file.job:
        document["downloadUri"] = f"{document['uri']}:download?alt=media"
    return document


def _text(job: SimJob, at_ns: int) -> str:
    return _wall(job.wall_s + (at_ns - job.made_ns) / NS)


def _wall(wall_s: float) -> str:
    return datetime.fromtimestamp(wall_s, UTC).isoformat().replace("+00:00", "Z")
