"""Names that a provider chose go into a path of its API, where they name one thing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lightgate.errors import Malformed
from lightgate.provider.batch.anthropic import MessageJobs, _result
from lightgate.provider.batch.gemini import GeminiJobs
from lightgate.provider.batch.job import JobAsked, JobLine, JobState, JobStatus


class Recorder:
    """Stands where a provider is: keeps the paths, answers with what a test gave it."""

    def __init__(self, model: str = "m", *trees: Any) -> None:
        self.root = "/v1beta"
        self.target = SimpleNamespace(model=model)
        self.paths: list[str] = []
        self._trees = list(trees)

    async def ask(self, method: str, path: str, tree: Any = None) -> Any:
        del method, tree
        self.paths.append(path)
        return SimpleNamespace(tree=self._trees.pop(0) if self._trees else {})

    async def lines(self, path: str) -> Any:
        self.paths.append(path)
        for raw in list[bytes]():
            yield raw


def job(word: str = "BATCH_STATE_RUNNING") -> dict[str, Any]:
    return {"name": "batches/1", "metadata": {"state": word, "displayName": "t"}}


async def test_a_model_with_a_slash_stays_one_part_of_the_path() -> None:
    at = Recorder("tuned/one?x", job())
    asked = JobAsked("t", "/v1/chat/completions", 1, since_s=0.0)._replace(file="files/1")
    await GeminiJobs(at).submit(asked, [])  # type: ignore[arg-type] # a recorder
    assert at.paths == ["/v1beta/models/tuned%2Fone%3Fx:batchGenerateContent"]


async def test_a_name_may_have_parts_and_no_query() -> None:
    at = Recorder("m", job(), {})
    jobs = GeminiJobs(at)  # type: ignore[arg-type] # a recorder
    await jobs.poll("batches/1?key=x#y")
    await jobs.cancel("batches/1?key=x")
    status = JobStatus(
        id="batches/1", state=JobState.COMPLETED, word="done", results=("files/a b?c",)
    )
    assert [one async for one in jobs.results(status)] == []
    assert at.paths == [
        "/v1beta/batches/1%3Fkey%3Dx%23y",
        "/v1beta/batches/1%3Fkey%3Dx:cancel",
        "/v1beta/files/a%20b%3Fc:download?alt=media",
    ]


async def test_an_upload_says_what_will_come_and_then_sends_it() -> None:
    asked: list[tuple[Any, ...]] = []

    class Uploads(Recorder):
        async def ask(self, method: str, path: str, tree: Any = None, headers: Any = ()) -> Any:
            asked.append((method, path, tree, headers))
            return SimpleNamespace(header=lambda name: f"there {name.decode()}")

        def path_of(self, url: str) -> str:
            return f"path of {url}"

        async def send(self, method: str, path: str, parts: Any, headers: Any) -> Any:
            asked.append((method, path, parts, headers))
            return SimpleNamespace(tree=self._trees.pop(0))

    at = Uploads("m", {"file": {"name": "files/7"}}, [], {"file": []}, {"file": {"name": 7}})
    jobs = GeminiJobs(at)  # type: ignore[arg-type] # a recorder
    wish = JobAsked("tag", "/v1/chat/completions", 2, since_s=0.0)
    lines = [JobLine("a", b'{"x":1}'), JobLine("b", b"{}")]
    assert await jobs.upload(wish, lines) == "files/7"
    content = b'{"key":"a","request":{"x":1}}\n{"key":"b","request":{}}'
    assert asked == [
        (
            "POST",
            "/upload/v1beta/files",
            {"file": {"displayName": "tag"}},
            (
                ("x-goog-upload-protocol", "resumable"),
                ("x-goog-upload-command", "start"),
                ("x-goog-upload-header-content-length", str(len(content))),
                ("x-goog-upload-header-content-type", "application/jsonl"),
            ),
        ),
        (
            "POST",
            "path of there x-goog-upload-url",
            (content,),
            (("x-goog-upload-offset", "0"), ("x-goog-upload-command", "upload, finalize")),
        ),
    ]
    for _ in range(3):
        with pytest.raises(Malformed):
            await jobs.upload(wish, lines)


async def test_a_token_of_the_next_page_stays_a_value() -> None:
    at = Recorder("m", {"operations": [], "nextPageToken": "a/b&pageSize=1"}, {})
    asked = JobAsked("t", "/v1/chat/completions", 1, since_s=0.0)
    assert await GeminiJobs(at).find(asked) == []  # type: ignore[arg-type] # a recorder
    assert at.paths[1] == "/v1beta/batches?pageSize=100&pageToken=a%2Fb%26pageSize%3D1"


@pytest.mark.parametrize(
    "line",
    [
        b"[]",
        b'{"custom_id": 1, "result": {"type": "canceled"}}',
        b'{"custom_id": "a", "result": {"type": 7}}',
        b'{"custom_id": "a", "result": {"type": ["succeeded"]}}',
        b'{"custom_id": "a", "result": {"type": "succeeded"}}',
        b'{"custom_id": "a", "result": {"type": "errored"}}',
        b"{",
    ],
)
def test_a_line_that_no_message_batch_has_is_malformed(line: bytes) -> None:
    with pytest.raises(Malformed):
        _result(line)


@pytest.mark.parametrize(("kind", "end"), [("canceled", "cancelled"), ("expired", "expired")])
def test_a_line_that_was_not_worked_on_says_so(kind: str, end: str) -> None:
    assert _result(b'{"custom_id": "a", "result": {"type": "%s"}}' % kind.encode()).end == end


async def test_a_message_batch_whose_name_has_a_slash_stays_one_part_of_the_path() -> None:
    tree = {"id": "b/1?x", "processing_status": "in_progress"}
    at = Recorder("m", tree, {})
    jobs = MessageJobs(at)  # type: ignore[arg-type] # a recorder
    await jobs.poll("b/1?x")
    await jobs.cancel("b/1?x")
    one = "/v1beta/messages/batches/b%2F1%3Fx"
    assert at.paths == [one, f"{one}/cancel"]
