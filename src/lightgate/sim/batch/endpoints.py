"""The batch endpoints of one simulated provider: a request about files or jobs, and its answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import msgspec

from lightgate.clock.source import SYSTEM
from lightgate.sim.answer.request import BadSimRequest, read_request
from lightgate.sim.batch.jobs import SimJobLine, SimJobs, SimLineEnd
from lightgate.sim.dialects.registry import error_body, renderer_of
from lightgate.sim.faults import parse_fault

if TYPE_CHECKING:
    from lightgate.clock.source import Clock
    from lightgate.sim.answer.request import Kind
    from lightgate.sim.batch.jobs import SimJob
    from lightgate.sim.provider import SimProvider

JSON: Final = (b"content-type", b"application/json")
JSONL: Final = (b"content-type", b"application/octet-stream")
KINDS: Final[dict[str, Kind]] = {
    "/v1/chat/completions": "chat",
    "/v1/completions": "completions",
    "/v1/responses": "responses",
    "/v1/embeddings": "embeddings",
}


class SimCall(NamedTuple):
    """A request for a batch endpoint; `root` is the provider's own address, without a version."""

    method: bytes
    path: str
    query: dict[str, str]
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes
    root: str

    def header(self, name: bytes) -> bytes:
        """The value of a header, empty where there is none."""
        return next((value for key, value in self.headers if key == name), b"")

    def tree(self) -> dict[str, Any]:
        """The body as a JSON object."""
        try:
            tree = msgspec.json.decode(self.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise BadSimRequest("The body is not valid JSON.") from None
        if not isinstance(tree, dict):
            raise BadSimRequest("The body is not a JSON object.")
        return tree


class SimReply(NamedTuple):
    """The answer of a batch endpoint; `lost`: the connection is cut instead of it."""

    body: bytes
    headers: tuple[tuple[bytes, bytes], ...] = (JSON,)
    status: int = 200
    lost: bool = False


class SimBatchApi(Protocol):
    """The batch endpoints of one form."""

    jobs: SimJobs

    def answer(self, call: SimCall) -> SimReply | None:
        """Answer a request; None where the path is no batch endpoint."""
        ...


def reply(tree: Any, *, lost: bool = False) -> SimReply:
    """A JSON document as an answer."""
    return SimReply(msgspec.json.encode(tree), lost=lost)


class LineAnswerer:
    """Answers the lines of jobs as the provider's own endpoints would."""

    def __init__(self, provider: SimProvider, clock: Clock = SYSTEM) -> None:
        self._provider = provider
        self._clock = clock

    def __call__(self, job: SimJob, line: SimJobLine) -> SimLineEnd:
        """Answer one line; an error answer has the body that the endpoint would have sent."""
        family = self._provider.spec.dialect
        kind = job.facts["kind"]
        model = job.facts.get("model") or ""
        try:
            return self._answered(line, kind, str(model))  # type: ignore[arg-type]  # a Kind
        except BadSimRequest as error:
            body = error_body(family, error.status, str(error), f"{job.id}-{line.id}")
            return SimLineEnd(line.id, "error", error.status, body)

    def _answered(self, line: SimJobLine, kind: Kind, model: str) -> SimLineEnd:
        request = read_request(kind, line.body, model, stream=False)
        request = msgspec.structs.replace(request, stream=False)
        provider = self._provider
        if request.model_name not in provider.spec.models:
            raise BadSimRequest(f"The model `{request.model_name}` does not exist.", 404)
        fault = parse_fault(request.fault) if request.fault else None
        now_ns = self._clock.now_ns()
        planned = provider.plan(request, now_ns, fault, batched=True)
        provider.over(planned, now_ns, gone=False)
        error = planned.plan.error
        if error is not None:
            raise BadSimRequest(error.message, error.status)
        if planned.outcome != "ok":
            raise BadSimRequest("The simulated provider failed.", 500)
        renderer = renderer_of(request, planned, array=False)
        usage = (request.tokens_in, planned.counts.total * request.answers)
        return SimLineEnd(line.id, "answer", 200, renderer.whole(), usage)


def submitted(jobs: SimJobs) -> bool:
    """Count a submission: refuse it where it is the turn of one, and say whether to lose it."""
    jobs.asked += 1
    every = jobs.spec.refused_every
    if every and jobs.asked % every == 0:
        raise BadSimRequest("Too many batch jobs are queued.", 429)
    every = jobs.spec.lost_every
    return bool(every) and (jobs.made + 1) % every == 0


def read_lines(
    raw: bytes, jobs: SimJobs, id_field: str, body_field: str
) -> tuple[tuple[SimJobLine, ...], list[dict[str, object]]]:
    """The lines of a file, and what is wrong with them; with one error none of them runs."""
    lines: list[SimJobLine] = []
    errors: list[dict[str, object]] = []
    seen: set[str] = set()
    for number, text in enumerate(filter(None, raw.split(b"\n")), 1):
        try:
            tree = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
            name = msgspec.json.decode(tree[id_field], type=str)
            body = bytes(tree[body_field])
        except KeyError as missing:
            errors.append(_wrong("missing_required_parameter", number, f"Missing {missing}."))
        except (msgspec.DecodeError, UnicodeDecodeError):
            said = "This line is not parseable as valid JSON."
            errors.append(_wrong("invalid_json_line", number, said))
        else:
            if name in seen:
                errors.append(_wrong("duplicate_custom_id", number, f"{name!r} is there twice."))
            seen.add(name)
            lines.append(SimJobLine(name, body))
    if not lines and not errors:
        errors.append(_wrong("empty_file", None, "The file has no lines."))
    if len(lines) > jobs.spec.most_lines:
        errors.append(_wrong("too_many_tasks", None, "The file has too many lines."))
    return tuple(lines), errors


def _wrong(code: str, line: int | None, message: str) -> dict[str, object]:
    return {"code": code, "line": line, "message": message, "param": None}


def failed_body(family: str, end: SimLineEnd) -> bytes:
    """The body of a line's error; one that was drawn by chance has the provider's usual words."""
    if end.body:
        return end.body
    status = end.status or 500
    return error_body(family, status, "The simulated provider failed.", end.id)  # type: ignore[arg-type]  # a Family
