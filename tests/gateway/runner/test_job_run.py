"""One batch from its file to its results: wrong lines, refusals, ends before the end, crashes."""

from __future__ import annotations

import asyncio
import errno
import json
import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from lightgate.batch.lines import BatchLine, LineError, LineResult
from lightgate.clock.source import ManualClock
from lightgate.gateway.batches.records import INPUT, BatchJob, StoredFile, new_id
from lightgate.gateway.batches.store import PART, BatchStore
from lightgate.gateway.runner import job_run
from lightgate.gateway.runner.job_run import JobRun, RunnerTools, _result, _streams
from lightgate.gateway.runner.runner import BatchRunner
from lightgate.gateway.runner.sender import GatewayAnswer
from lightgate.gateway.runner.window import SendWindow
from lightgate.gateway.served.snapshot import BatchTerms

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    Send = Callable[[BatchJob, BatchLine, str], Awaitable[GatewayAnswer]]

NS = 1_000_000_000
CHAT = "/v1/chat/completions"
USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 1}}


class Bench:
    """A store with one batch in it, and what carries it out."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock()
        self.store = BatchStore(folder, self.clock)
        self.pool = ThreadPoolExecutor(1)
        self.asked: Counter[str] = Counter()
        self.id = ""

    def leave(self, lines: list[str], **more: Any) -> BatchJob:
        """Leave a batch of these lines."""
        now, text = self.store.now_s, "\n".join(lines).encode()
        file = StoredFile(
            id=new_id("file-"), owner="k", purpose=INPUT, filename="a", size=len(text),
            created_s=now, digest=new_id(""),
        )  # fmt: skip
        part = self.store.path(file.id + PART)
        part.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(text)
        self.store.add_file(file, BatchTerms())
        facts: dict[str, Any] = {
            "id": new_id("batch_"), "owner": "k", "kind": "openai", "endpoint": CHAT,
            "input_file": file.id, "output_file": new_id("file-"), "error_file": new_id("file-"),
            "created_s": now, "expires_s": now + 86_400, "keep_s": 86_400, "digest": new_id(""),
        }  # fmt: skip
        job = self.store.add_job(BatchJob(**(facts | more)), BatchTerms(), repeated=False)
        self.id = job.id
        return job

    def run(self, send: Send | None = None, *, most: int = 4) -> JobRun:
        window = SendWindow(most, self.clock.now_ns)
        tools = RunnerTools(self.store, self.pool, window, send or self.answer, 50_000)
        return JobRun(self.job, tools)

    @property
    def job(self) -> BatchJob:
        kind = "openai" if self.id.startswith("batch") else "anthropic"
        found = self.store.job("k", self.id, kind)
        assert found is not None
        return found

    async def answer(self, _job: BatchJob, line: BatchLine, request_id: str) -> GatewayAnswer:
        self.asked[line.custom_id] += 1
        await asyncio.sleep(0)
        body = {"id": line.custom_id, "usage": USAGE}
        return GatewayAnswer(200, json.dumps(body, indent=1).encode(), request_id)

    def results(self, file_id: str) -> list[dict[str, Any]]:
        path = self.store.path(file_id)
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.pool.shutdown()
    made.store.close()


def line(name: str, **body: Any) -> str:
    asked = {"model": "m", "messages": [], **body}
    return json.dumps({"custom_id": name, "method": "POST", "url": CHAT, "body": asked})


async def test_good_lines_run_and_the_others_have_their_reason(bench: Bench) -> None:
    other = line("b").replace("chat/completions", "embeddings")
    job = bench.leave([line("a"), "{", line("a"), "", other, line("c", stream=True), line("d")])
    await bench.run().run()
    done = bench.job.document()
    assert done["status"] == "completed"
    assert done["request_counts"] == {"total": 6, "completed": 2, "failed": 4}
    assert done["model"] == "m"
    assert done["usage"]["total_tokens"] == 10
    assert done["usage"]["input_tokens_details"] == {"cached_tokens": 2}
    assert {one["custom_id"] for one in bench.results(job.output_file)} == {"a", "d"}
    wrong = {one["error"]["line"]: one["error"]["code"] for one in bench.results(job.error_file)}
    assert wrong == {
        2: "invalid_json_line", 3: "duplicate_custom_id", 5: "mismatched_url", 6: "invalid_body",
    }  # fmt: skip
    assert bench.asked == {"a": 1, "d": 1}
    for name in ("in_progress_at", "finalizing_at", "completed_at", "expires_at"):
        assert done[name] is not None
    output = bench.store.file("k", job.output_file)
    assert output is not None
    assert (output.purpose, output.size) == (
        "batch_output", bench.store.path(job.output_file).stat().st_size,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("lines", "code"), [([], "empty_file"), (["{", "["], "invalid_json_line"), ([""], "empty_file")]
)
async def test_a_file_without_a_good_line_fails(bench: Bench, lines: list[str], code: str) -> None:
    bench.leave(lines)
    await bench.run().run()
    done = bench.job.document()
    assert done["status"] == "failed"
    wrong = sum(1 for line in lines if line)
    assert done["request_counts"] == {"total": wrong, "completed": 0, "failed": wrong}
    assert {one["code"] for one in done["errors"]["data"]} == {code}
    assert bench.asked == {}


async def test_lines_beyond_the_most_are_refused(bench: Bench) -> None:
    job = bench.leave([line(f"a{n}") for n in range(5)])
    run = bench.run()
    run._tools.max_lines = 3
    await run.run()
    assert len(bench.results(job.output_file)) == 3
    assert [one["error"]["code"] for one in bench.results(job.error_file)] == 2 * ["too_many_lines"]


async def test_what_targets_refuse_is_in_the_error_file(bench: Bench) -> None:
    body = b'{"error": {"message": "no such model", "code": "model_not_found"}}'

    async def send(_job: BatchJob, asked: BatchLine, request_id: str) -> GatewayAnswer:
        bench.asked[asked.custom_id] += 1
        return GatewayAnswer(404, body, request_id, code="model_not_found")

    job = bench.leave([line("a")])
    await bench.run(send).run()
    (wrong,) = bench.results(job.error_file)
    assert wrong["response"]["status_code"] == 404
    assert wrong["response"]["body"]["error"]["code"] == "model_not_found"
    assert bench.job.document()["output_file_id"] is None
    assert bench.asked == {"a": 1}


async def test_a_crash_at_any_line_loses_and_doubles_none(bench: Bench) -> None:
    """The process dies after some answers, with a result half written; the next one goes on."""
    names = [f"a{n}" for n in range(40)]
    job = bench.leave([*(line(name) for name in names), "{"])
    for stop_after in (0, 1, 7, 20, 33):
        enough = asyncio.Event()

        async def send(
            asked: BatchJob,
            one: BatchLine,
            request_id: str,
            most: int = stop_after,
            enough: asyncio.Event = enough,
        ) -> GatewayAnswer:
            if len(bench.results(job.output_file)) >= most:
                enough.set()
                await asyncio.Event().wait()  # never answered
            return await bench.answer(asked, one, request_id)

        dying = asyncio.create_task(bench.run(send).run())
        await enough.wait()
        dying.cancel()
        await asyncio.wait({dying})
        with bench.store.path(job.output_file).open("ab") as file:
            file.write(b'{"id":"batch_req_x_7","custom_id":"a6","respo')
    await bench.run().run()
    seen = [one["custom_id"] for one in bench.results(job.output_file)]
    assert sorted(seen) == sorted(names)
    assert len(bench.results(job.error_file)) == 1
    done = bench.job.document()
    assert done["request_counts"] == {"total": 41, "completed": 40, "failed": 1}
    assert done["usage"]["total_tokens"] == 200
    assert max(bench.asked.values()) == 1  # what was answered is not asked again


async def test_a_cancelled_batch_keeps_what_is_done(bench: Bench) -> None:
    job = bench.leave([line(f"a{n}") for n in range(10)])

    async def send(asked: BatchJob, one: BatchLine, request_id: str) -> GatewayAnswer:
        if len(bench.asked) == 3:
            fresh = bench.store.change(job.id, lambda now: now.moved("cancelling", 1))
            assert fresh is not None
            run.told(fresh)
        return await bench.answer(asked, one, request_id)

    run = bench.run(send, most=1)
    await run.run()
    done = bench.job.document()
    assert (done["status"], done["finalizing_at"]) == ("cancelled", None)
    assert done["request_counts"] == {"total": 10, "completed": 4, "failed": 0}
    codes = Counter(one["error"]["code"] for one in bench.results(job.error_file))
    assert codes == {"batch_cancelled": 6}
    assert len(bench.results(job.output_file)) == 4


async def test_a_batch_that_is_cancelled_before_it_began_sends_nothing(bench: Bench) -> None:
    job = bench.leave([line("a"), "{"])
    bench.store.change(job.id, lambda now: now.moved("cancelling", 1))
    await bench.run().run()
    assert bench.job.document()["status"] == "cancelled"
    assert bench.job.document()["request_counts"]["total"] == 2
    assert bench.asked == {}


async def test_what_is_not_done_in_time_expires(bench: Bench) -> None:
    job = bench.leave([line(f"a{n}") for n in range(6)])

    async def send(asked: BatchJob, one: BatchLine, request_id: str) -> GatewayAnswer:
        if len(bench.asked) == 1:
            bench.clock.advance(86_401 * NS)
        return await bench.answer(asked, one, request_id)

    await bench.run(send, most=1).run()
    done = bench.job.document()
    assert (done["status"], done["request_counts"]["completed"]) == ("expired", 2)
    assert {one["error"]["code"] for one in bench.results(job.error_file)} == {"batch_expired"}


async def test_results_of_a_message_batch_are_anthropics(bench: Bench) -> None:
    asked = {"custom_id": "a", "params": {"model": "m", "max_tokens": 5, "messages": []}}
    late = {"custom_id": "b", "params": {"model": "m", "max_tokens": 5, "messages": []}}
    job = bench.leave(
        [json.dumps(asked), json.dumps(late)], id="msgbatch_1", kind="anthropic",
        endpoint="/v1/messages", error_file="", total=2,
    )  # fmt: skip
    answers = iter(
        [
            GatewayAnswer(200, b'{"type": "message", "usage": {"input_tokens": 2}}'),
            GatewayAnswer(400, b'{"type": "error", "error": {"type": "invalid_request_error"}}'),
        ]
    )

    async def send(*_: object) -> GatewayAnswer:
        return next(answers)

    before = bench.job.document()
    assert (before["processing_status"], before["results_url"]) == ("in_progress", None)
    await bench.run(send, most=1).run()
    after = bench.job.document()
    assert after["processing_status"] == "ended"
    assert after["results_url"] == "/v1/messages/batches/msgbatch_1/results"
    assert after["request_counts"] == {
        "processing": 0, "succeeded": 1, "errored": 1, "canceled": 0, "expired": 0,
    }  # fmt: skip
    kinds = [one["result"]["type"] for one in bench.results(job.output_file)]
    assert kinds == ["succeeded", "errored"]
    assert bench.store.file("k", job.input_file) is None  # nobody could delete it


async def test_a_full_disk_stops_the_lines_and_loses_none(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = bench.leave([line("a"), line("b")])
    monkeypatch.setattr(job_run, "FULL_S", 0.001)
    run, looks = bench.run(), iter([0, 0, 10**12])
    run._tools.free_bytes = lambda: next(looks, 10**12)
    real, broken = run._files._append, iter([True, True])

    def append(file_id: str, text: bytes) -> None:
        if next(broken, False):
            raise OSError(errno.ENOSPC, "No space left on device")
        real(file_id, text)

    monkeypatch.setattr(run._files, "_append", append)
    await run.run()
    assert len(bench.results(job.output_file)) == 2
    assert bench.asked == {
        "a": 1,
        "b": 1,
    }  # an answer that was paid for is kept until it is written


async def test_half_a_line_on_a_full_disk_is_cut_off(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = bench.leave([line("a")])
    run = bench.run()
    real = os.write
    calls = iter([5, "full"])

    def write(descriptor: int, data: Any) -> int:
        step = next(calls, None)
        if step == "full":
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, data[: step or len(data)])

    monkeypatch.setattr(job_run, "FULL_S", 0.001)
    monkeypatch.setattr("lightgate.gateway.runner.results.os.write", write)
    await run.run()
    (kept,) = bench.results(job.output_file)
    assert kept["custom_id"] == "a"


async def test_a_stopped_process_leaves_the_batch_to_the_next(bench: Bench) -> None:
    job = bench.leave([line(f"a{n}") for n in range(8)])
    runner: BatchRunner

    async def send(asked: BatchJob, one: BatchLine, request_id: str) -> GatewayAnswer:
        if len(bench.asked) == 2:
            stop.set()
        return await bench.answer(asked, one, request_id)

    stop = asyncio.Event()
    runner = BatchRunner(bench.store, send, BatchTerms(at_once=1), bench.clock.now_ns)
    await runner.run(stop)
    assert bench.job.state == "in_progress"
    assert 3 <= len(bench.results(job.output_file)) < 8
    again = BatchRunner(bench.store, bench.answer, BatchTerms(), bench.clock.now_ns)
    await again.look()
    while bench.job.active:
        await asyncio.sleep(0.001)
    await again.end()
    assert sorted(one["custom_id"] for one in bench.results(job.output_file)) == [
        f"a{n}" for n in range(8)
    ]
    assert max(bench.asked.values()) == 1


@pytest.mark.parametrize(
    ("body", "streams"),
    [
        (b'{"stream": true}', True),
        (b'{"stream": false}', False),
        (b'{"x": 1}', False),
        (b'{"x": "stream"}', False),
        (b'{"stream": true', False),
        (b'["stream"]', False),
    ],
)
def test_whether_a_line_asks_for_a_stream(body: bytes, streams: bool) -> None:
    assert _streams(body) is streams


def test_what_is_kept_of_an_answer() -> None:
    line = BatchLine(3, "c", "openai-chat", b"{}")
    silence = LineError("no_answer", "The gateway did not answer.")
    rubbish = LineError("no_json", "The answer (status 502) is not JSON.")
    for answer, kept in (
        (GatewayAnswer(0), LineResult(id="i", custom_id="c", error=silence)),
        (GatewayAnswer(502, b"<html>"), LineResult(id="i", custom_id="c", error=rubbish)),
        (
            GatewayAnswer(429, b'{"a":1}', "r"),
            LineResult(id="i", custom_id="c", status=429, request_id="r", body=b'{"a":1}'),
        ),
    ):
        assert _result(answer, line, "i") == kept


@pytest.mark.parametrize(
    ("status", "counts"), [(200, 1), (299, 1), (300, 0), (199, 0), (400, 0), (404, 0)]
)
async def test_only_a_good_answer_widens_the_window(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, status: int, counts: int
) -> None:
    told: list[SendWindow] = []

    def answered(window: SendWindow) -> None:
        told.append(window)

    monkeypatch.setattr(SendWindow, "answered", answered)

    async def send(_job: BatchJob, _line: BatchLine, request_id: str) -> GatewayAnswer:
        return GatewayAnswer(status, b"{}", request_id)

    bench.leave([line("a")])
    await bench.run(send).run()
    assert len(told) == counts


async def test_a_run_that_is_stopped_between_two_lines_leaves_the_rest(bench: Bench) -> None:
    job = bench.leave([line(f"a{n}") for n in range(4)])

    async def send(asked: BatchJob, one: BatchLine, request_id: str) -> GatewayAnswer:
        run.stop()
        return await bench.answer(asked, one, request_id)

    run = bench.run(send, most=1)
    await run.run()
    assert bench.job.state == "in_progress"
    assert len(bench.results(job.output_file)) == 1
