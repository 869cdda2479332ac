"""What providers' batch APIs write, read one document at a time: jobs, results, pages, refusals."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from lightgate.errors import (
    DeadlineMissed,
    HttpRefused,
    Malformed,
    NoDescriptor,
    RateLimited,
    TooLarge,
    Unreachable,
    UsageError,
)
from lightgate.provider.batch import anthropic, exchange, files, gemini
from lightgate.provider.batch.exchange import BatchExchange, _LineTaker, _WholeAnswer
from lightgate.provider.batch.files import FileJobs, GroqJobs, MistralJobs, TogetherJobs
from lightgate.provider.batch.job import (
    MOST_PAGES,
    SKEW_S,
    JobAsked,
    JobLine,
    JobState,
    JobStatus,
    surely_not_made,
)
from lightgate.provider.catalogue import catalogue
from lightgate.provider.secret import Secret
from lightgate.provider.target import Target
from provider.batch.test_paths import Recorder

ASKED = JobAsked("t", "/v1/chat/completions", 2, since_s=1_000_000.0)
EDGE_S = ASKED.since_s - SKEW_S


def message_batch(**more: Any) -> dict[str, Any]:
    return {"id": "msgbatch_1", "processing_status": "in_progress"} | more


def file_job(**more: Any) -> dict[str, Any]:
    return {"id": "batch_1", "status": "in_progress", "created_at": ASKED.since_s} | more


def at(form: Any, *trees: Any) -> tuple[Any, Recorder]:
    """The batch API of a form in front of a recorder."""
    recorder = Recorder("m", *trees)
    return form(recorder), recorder


# Jobs


def test_a_message_batch_that_ended_without_results_says_that_they_are_gone() -> None:
    ended = message_batch(processing_status="ended")
    for url in (None, ""):
        gone = anthropic._status(ended | {"results_url": url})
        assert (gone.results, gone.error) == ((), "Its results are no longer kept.")
    kept = anthropic._status(ended | {"results_url": "/r"})
    assert (kept.results, kept.error) == (("/r",), "")
    runs = anthropic._status(message_batch())
    assert (runs.state, runs.word, runs.results, runs.error) == (
        JobState.RUNNING, "in_progress", (), "",
    )  # fmt: skip


def test_of_a_message_batch_is_done_what_is_not_processing() -> None:
    counts = {"processing": 2, "succeeded": 3, "errored": 1, "canceled": "some"}
    told = anthropic._status(message_batch(request_counts=counts, created_at=5))
    assert (told.id, told.total, told.done, told.made_s) == ("msgbatch_1", 6, 4, 5.0)
    for other, total in ((None, 0), ({}, 0), ({"succeeded": 3}, 3)):
        told = anthropic._status(message_batch(request_counts=other))
        assert (told.total, told.done) == (total, None)


@pytest.mark.parametrize(
    "tree",
    [None, [], {}, message_batch(processing_status="new"), message_batch(processing_status=3),
     message_batch(id=7), {"id": "a"}],
)  # fmt: skip
def test_what_is_no_message_batch_is_malformed(tree: Any) -> None:
    with pytest.raises(Malformed, match="not a message batch"):
        anthropic._status(tree)


def test_a_batch_of_gemini_is_an_operation_or_the_batch_itself() -> None:
    stats = {"requestCount": "5", "pendingRequestCount": "2"}
    facts = {"state": "BATCH_STATE_SUCCEEDED", "displayName": "t", "createTime": 7,
             "batchStats": stats, "output": {"responsesFile": "files/r"}}  # fmt: skip
    bare = gemini._status({"name": "batches/1", **facts})
    assert bare == JobStatus(
        id="batches/1", state=JobState.COMPLETED, word="BATCH_STATE_SUCCEEDED", tag="t",
        made_s=7.0, total=5, done=3, results=("files/r",),
    )  # fmt: skip
    wrapped = gemini._status({"name": "batches/1", "metadata": facts})
    assert wrapped == bare
    del facts["output"], stats["pendingRequestCount"]
    old = {"name": "batches/1", "metadata": facts | {"state": "JOB_STATE_FAILED"},
           "response": {"responsesFile": "files/x"}, "error": {"message": "why"}}  # fmt: skip
    told = gemini._status(old)
    assert (told.state, told.done, told.results, told.error) == (
        JobState.FAILED, 5, ("files/x",), "why",
    )  # fmt: skip
    few = gemini._status({"metadata": {"name": "batches/2", "state": "PENDING"}})
    assert (few.id, few.tag, few.total, few.done, few.results) == ("batches/2", "", None, None, ())


@pytest.mark.parametrize("tree", [None, [], {}, {"name": "b"}, {"state": "PENDING"},
                                  {"name": 3, "state": "PENDING"}])  # fmt: skip
def test_what_is_no_batch_of_gemini_is_malformed(tree: Any) -> None:
    with pytest.raises(Malformed, match="not a batch"):
        gemini._status(tree)


def test_a_job_of_files_as_openai_and_its_likes_write_it() -> None:
    jobs, _ = at(FileJobs)
    told = jobs.status(
        file_job(
            status="COMPLETED", metadata={"lightgate_job": "t"}, input_file_id="file-1",
            request_counts={"total": 4, "completed": 3}, output_file_id="o", error_file_id="",
        )
    )  # fmt: skip
    assert told == JobStatus(
        id="batch_1", state=JobState.COMPLETED, word="COMPLETED", tag="t", file="file-1",
        made_s=ASKED.since_s, total=4, done=3, results=("o",),
    )  # fmt: skip
    other = jobs.status(
        file_job(total_requests=9, completed_requests=True, metadata=[], error="all of it")
    )
    assert (other.tag, other.file, other.total, other.done) == ("", "", 9, None)
    assert (other.results, other.error) == ((), "all of it")
    with pytest.raises(Malformed, match="'asleep'"):
        jobs.status(file_job(status="asleep"))
    for tree in ({"status": "failed"}, {"id": "a"}, {"id": "", "status": "failed"}, None):
        with pytest.raises(Malformed, match="has no"):
            jobs.status(tree)
    mistral, _ = at(MistralJobs)
    assert mistral.status(file_job(status="QUEUED", input_files=["a", "b"])).file == "a"
    for names in ([], "a", [7]):
        assert mistral.status(file_job(status="QUEUED", input_files=names)).file == ""


# Results


@pytest.mark.parametrize(
    ("code", "status"), [(1, 499), (3, 400), (4, 504), (5, 404), (7, 403), (8, 429), (14, 503),
                         (16, 401), (2, 500), ("5", 500)]
)  # fmt: skip
def test_a_line_that_failed_at_gemini_has_the_status_of_its_code(code: Any, status: int) -> None:
    line = {"key": "a", "error": {"code": code, "message": "why"}}
    told = gemini._result(json.dumps(line).encode())
    assert (told.id, told.end, told.status, told.message) == ("a", "error", status, "why")
    inner = {"code": status, "message": "why", "status": "INTERNAL"}
    assert json.loads(told.body) == {"error": inner}


def test_lines_of_gemini_that_say_little() -> None:
    good = gemini._result(b'{"key": "a", "response": {"x": 1}}')
    assert (good.id, good.end, good.status, good.body) == ("a", "answer", 200, b'{"x": 1}')
    bad = gemini._result(b'{"key": "a", "error": []}')
    assert (bad.end, bad.status, bad.message) == ("error", 500, "The line failed.")
    for raw in (b"{", b"[]", b'{"response": {}}'):
        with pytest.raises(Malformed, match="Gemini"):
            gemini._result(raw)


@pytest.mark.parametrize(
    ("word", "status"),
    [("invalid_request_error", 400), ("authentication_error", 401), ("permission_error", 403),
     ("not_found_error", 404), ("request_too_large", 413), ("rate_limit_error", 429),
     ("overloaded_error", 529), ("api_error", 500), (7, 500)],
)  # fmt: skip
def test_a_line_that_failed_at_anthropic_has_the_status_of_its_word(word: Any, status: int) -> None:
    error = {"type": "error", "error": {"type": word, "message": "why"}}
    line = {"custom_id": "a", "result": {"type": "errored", "error": error}}
    told = anthropic._result(json.dumps(line).encode())
    assert (told.id, told.end, told.status, told.message) == ("a", "error", status, "why")
    assert json.loads(told.body) == error


def test_lines_of_anthropic_that_say_little() -> None:
    good = anthropic._result(
        b'{"custom_id": "a", "result": {"type": "succeeded", "message": {"x": 1}}}'
    )
    assert (good.id, good.end, good.status, good.body) == ("a", "answer", 200, b'{"x": 1}')
    for error in (b"[]", b'{"error": []}', b"{}"):
        raw = b'{"custom_id": "a", "result": {"type": "errored", "error": %b}}' % error
        bad = anthropic._result(raw)
        assert (bad.end, bad.status, bad.body, bad.message) == (
            "error", 500, error, "The line failed.",
        )  # fmt: skip


@pytest.mark.parametrize(("status", "end"), [(199, "error"), (200, "answer"), (299, "answer"),
                                             (300, "error"), (0, "error")])  # fmt: skip
def test_a_line_of_a_file_is_an_answer_where_its_status_is_one(status: int, end: str) -> None:
    response = {"status_code": status, "request_id": "req_1", "body": {"x": 1}}
    told = files.read_result(json.dumps({"custom_id": "a", "response": response}).encode())
    assert (told.id, told.end, told.status, told.request_id) == ("a", end, status, "req_1")
    assert json.loads(told.body) == {"x": 1}
    assert told.message == ("" if end == "answer" else f"The line was answered with {status}.")


def test_a_line_of_a_file_without_a_status_is_an_error() -> None:
    told = files.read_result(b'{"custom_id": "a", "response": {}}')
    assert (told.end, told.status, told.body, told.request_id) == ("error", 0, b"null", "")
    odd = files.read_result(b'{"custom_id":"a","response":{"status_code":"x","request_id":3}}')
    assert (odd.end, odd.status, odd.request_id) == ("error", 0, "")


@pytest.mark.parametrize(
    ("error", "end", "message"),
    [({"code": "batch_expired", "message": "late"}, "expired", "late"),
     ({"code": "batch_cancelled"}, "cancelled", ""),
     ({"code": "other"}, "error", "The line failed."),
     (None, "error", "The line failed."), ("why", "error", "why")],
)  # fmt: skip
def test_a_line_of_a_file_that_was_not_answered(error: Any, end: str, message: str) -> None:
    told = files.read_result(json.dumps({"custom_id": "a", "error": error}).encode())
    assert (told.end, told.message, told.status) == (end, message, 0)


# Looking for a job


async def test_a_message_batch_is_looked_for_among_the_young_ones_of_its_size() -> None:
    def batch(name: str, made_s: float | None, size: int = 2) -> dict[str, Any]:
        counts = {"processing": 0, "succeeded": size}
        return message_batch(id=name, created_at=made_s, request_counts=counts)

    first = [batch("edge/1", EDGE_S), batch("unknown", None), batch("large", EDGE_S + 9, 3)]
    then = [batch("next", EDGE_S + 1), batch("old", EDGE_S - 1)]
    jobs, recorder = at(
        anthropic.MessageJobs,
        {"data": first, "has_more": True},
        {"data": then, "has_more": True},
        {"data": [batch("never", EDGE_S)]},
    )
    assert [job.id for job in await jobs.find(ASKED)] == ["edge/1", "unknown", "next"]
    root = "/v1beta/messages/batches?limit=100"
    assert recorder.paths == [root, f"{root}&after_id=large"]


@pytest.mark.parametrize("page", [{"data": [], "has_more": True}, {"has_more": True}, [],
                                  {"data": [message_batch()], "has_more": "yes"}])  # fmt: skip
async def test_a_list_of_message_batches_ends_with_its_last_page(page: Any) -> None:
    jobs, recorder = at(anthropic.MessageJobs, page, page)
    assert await jobs.find(ASKED) == []
    assert len(recorder.paths) == 1


async def test_lists_without_end_are_given_up_after_so_many_pages() -> None:
    page = {"data": [message_batch(id="a/b")], "has_more": True}
    jobs, recorder = at(anthropic.MessageJobs, *[page] * 20)
    assert await jobs.find(ASKED) == []
    assert len(recorder.paths) == MOST_PAGES
    assert recorder.paths[1].endswith("&after_id=a%2Fb")
    page = {"data": [file_job()], "has_more": True, "last_id": "a/b"}
    jobs, recorder = at(FileJobs, *[page] * 20)
    assert await jobs.find(ASKED) == []
    assert recorder.paths[:2] == [
        "/v1beta/batches?limit=100",
        "/v1beta/batches?limit=100&after=a%2Fb",
    ]
    assert len(recorder.paths) == MOST_PAGES
    page = {"batches": [{"name": "b", "state": "PENDING"}], "nextPageToken": "n"}
    jobs, recorder = at(gemini.GeminiJobs, *[page] * 20)
    assert await jobs.find(ASKED) == []
    assert len(recorder.paths) == MOST_PAGES


async def test_a_job_of_files_is_found_by_its_tag_or_its_file_and_not_among_old_ones() -> None:
    more = {"has_more": True, "last_id": "x"}
    tagged = file_job(id="mine", metadata={"lightgate_job": "t"})
    for mine, asked in ((tagged, ASKED), (file_job(id="mine", input_file_id="f"),
                                          ASKED._replace(file="f"))):  # fmt: skip
        edge = {"data": [file_job(created_at=EDGE_S)], **more}
        jobs, recorder = at(FileJobs, edge, {"data": [file_job(), mine]})
        assert [job.id for job in await jobs.find(asked)] == ["mine"]
        old = {"data": [file_job(), file_job(created_at=EDGE_S - 1)], **more}
        jobs, recorder = at(FileJobs, old, {"data": [mine]})
        assert await jobs.find(asked) == []
        assert len(recorder.paths) == 1
    jobs, _ = at(FileJobs, {"data": [file_job()]})
    assert await jobs.find(ASKED) == []  # two without a file are not the same job


async def test_a_batch_of_gemini_is_found_by_its_name_and_not_among_old_ones() -> None:
    def batch(tag: str, made_s: float) -> dict[str, Any]:
        return {"name": tag, "state": "PENDING", "displayName": tag, "createTime": made_s}

    edge = {"operations": [batch("x", EDGE_S)], "nextPageToken": "n"}
    jobs, _ = at(gemini.GeminiJobs, edge, {"batches": [batch("y", EDGE_S), batch("t", EDGE_S)]})
    assert [job.id for job in await jobs.find(ASKED)] == ["t"]
    old = {"operations": [batch("x", EDGE_S - 1)], "nextPageToken": "n"}
    jobs, recorder = at(gemini.GeminiJobs, old, {"batches": [batch("t", EDGE_S)]})
    assert await jobs.find(ASKED) == []
    assert len(recorder.paths) == 1
    jobs, _ = at(gemini.GeminiJobs, [])
    assert await jobs.find(ASKED) == []


def test_pages_of_the_kinds_of_file_apis() -> None:
    jobs, _ = at(FileJobs)
    assert jobs.page({"data": [{}, 7], "has_more": True}) == ([{}], "")
    assert jobs.page({"data": {}, "has_more": False, "last_id": "a"}) == ([], "")
    assert jobs.page([{"id": "a"}]) == ([{"id": "a"}], "")
    tree = {"data": [], "has_more": True, "last_id": "a/b?c"}
    assert jobs.page(tree) == ([], f"{jobs.first_page}&after=a%2Fb%3Fc")
    assert jobs.page(tree | {"last_id": 7}) == jobs.page(tree | {"has_more": 1}) == ([], "")
    groq, _ = at(GroqJobs)
    assert groq.page({"data": [{}], "paging": {"next_cursor": "a/b"}}) == ([{}], "?cursor=a%2Fb")
    assert groq.page({"data": [{}], "paging": {}}) == ([{}], "")
    assert groq.page({"paging": []}) == groq.page([]) == ([], "")
    together, _ = at(TogetherJobs)
    assert together.unwrapped({"job": {"id": "a"}, "warning": "w"}) == {"id": "a"}
    assert together.unwrapped({"job": "a"}) == {"job": "a"}
    assert together.unwrapped([1]) == [1]
    mistral, _ = at(MistralJobs)
    assert mistral.page({"data": [{"id": "a"}], "has_more": True, "last_id": "a"})[1] == ""


def test_what_each_kind_of_file_api_is_asked() -> None:
    line, asked = JobLine("a", b'{"model":"m","x":1}'), ASKED._replace(file="f")
    both = {"input_file_id": "f", "endpoint": asked.endpoint, "completion_window": "24h"}
    jobs, _ = at(FileJobs)
    assert jobs.wish(asked) == both | {"metadata": {"lightgate_job": "t"}}
    assert jobs.fields("n") == {"purpose": "batch"}
    assert json.loads(jobs.line(line, asked.endpoint)) == {
        "custom_id": "a", "method": "POST", "url": asked.endpoint, "body": {"model": "m", "x": 1},
    }  # fmt: skip
    together, _ = at(TogetherJobs)
    assert together.wish(asked) == both
    assert together.fields("n") == {"purpose": "batch-api", "file_name": "n", "file_type": "jsonl"}
    assert json.loads(together.line(line, "")) == {
        "custom_id": "a",
        "body": {"model": "m", "x": 1},
    }
    mistral, _ = at(MistralJobs)
    assert mistral.wish(asked) == {
        "input_files": ["f"], "model": "m", "endpoint": asked.endpoint, "timeout_hours": 24,
        "metadata": {"lightgate_job": "t"},
    }  # fmt: skip
    assert json.loads(mistral.line(line, "")) == {"custom_id": "a", "body": {"x": 1}}


@pytest.mark.parametrize(
    ("error", "sure"),
    [(HttpRefused("x", code=499), True), (HttpRefused("x", code=500), False),
     (HttpRefused("x", code=408), False), (HttpRefused("x", code=409), False),
     (HttpRefused("x", code=407), True), (HttpRefused("x", code=410), True),
     (DeadlineMissed("x", phase="connect"), True), (DeadlineMissed("x", phase="total"), False),
     (Unreachable("x"), True), (NoDescriptor("x"), True), (Malformed("x"), False)],
)  # fmt: skip
def test_which_failures_prove_that_no_job_was_made(error: Any, sure: bool) -> None:
    assert surely_not_made(error) is sure


# Requests and answers


def sender(**sent: Any) -> BatchExchange:
    """An exchange whose client keeps what it is given in `sent`."""
    url, key = "https://api.openai.com/v1/", Secret("sk-0123456789abcdef")
    target = Target(
        name="openai/m", provider=catalogue()["openai"], model="m", base_url=url, api_key=key
    )
    client: Any = SimpleNamespace(send=lambda out: sent.setdefault("out", []).append(out))
    return BatchExchange(client, target)


async def test_a_refusal_says_what_the_provider_said_and_what_to_do() -> None:
    batches = sender()
    assert batches.root == "/v1"
    for status, hint in ((400, ""), (401, "Check the key"), (403, "Check the key"), (404, "")):
        taker = _WholeAnswer()
        taker.status, taker.headers = status, [(b"retry-after", b"7")]
        told = batches._refused(taker, b'{"error":{"message":"no sk-0123456789abcdef"}}')
        assert told.message.startswith(f"api.openai.com answered {status}: no ")
        assert "sk-0123456789abcdef" not in told.message
        assert (told.code, told.retry_after_s) == (status, 7.0)
        assert (told.hint or "").startswith(hint)
        assert bool(told.hint) is bool(hint)
    taker.status = 429
    late = batches._refused(taker, b"")
    assert isinstance(late, RateLimited)
    assert late.retry_after_s == 7.0
    for status, points in ((299, False), (300, True), (399, True), (400, False)):
        taker.status = status
        assert ("not followed" in batches._refused(taker, b"").message) is points


async def test_a_line_break_in_a_header_is_never_sent() -> None:
    for value in ("a\r", "a\nb", "\0"):
        with pytest.raises(UsageError, match="'x-y'"):
            sender()._start("GET", "/", (), (("x-y", value),), _WholeAnswer(), exchange.STREAM)


async def test_a_submission_says_its_length_and_is_sent_once() -> None:
    out: list[Any] = []
    for method, pieces in (("POST", (b"ab", b"c")), ("GET", ())):
        sender(out=out)._start(method, "/p", pieces, (), _WholeAnswer(), exchange.DEADLINES)
    post, get = (one.payload.split(b"\r\n") for one in out)
    assert post[:2] == [b"POST /p HTTP/1.1", b"host: api.openai.com"]
    assert b"content-length: 3" in post
    assert b"authorization: Bearer sk-0123456789abcdef" in post
    assert not any(line.startswith(b"content-length") for line in get)
    assert [(one.once, one.rest) for one in out] == [(True, (b"ab", b"c")), (False, ())]


async def test_an_address_of_the_provider_is_its_path() -> None:
    batches = sender()
    assert batches.path_of("/x?y") == "/x?y"
    assert batches.path_of("https://api.openai.com/x?y") == "/x?y"
    for url in ("https://evil.example/x", "http://api.openai.com/x"):
        with pytest.raises(Malformed, match="stay at the provider's own"):
            batches.path_of(url)


async def test_a_whole_answer_has_a_limit_and_a_refusal_a_smaller_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exchange, "DOCUMENT_LIMIT", 10)
    monkeypatch.setattr(exchange, "REFUSAL_LIMIT", 4)
    taker = _WholeAnswer()
    assert taker.status == 0  # no head has come
    taker.on_head(299, [], 1)
    taker.on_body(b"12345", 1, 1)
    taker.on_body(b"67890", 1, 1)
    with pytest.raises(TooLarge):
        taker.on_body(b"x", 1, 1)
    assert b"".join(taker.parts) == b"1234567890"
    refused = _WholeAnswer()
    refused.on_head(300, [], 1)
    refused.on_body(b"1234", 1, 1)
    refused.on_body(b"5" * 100, 1, 1)
    assert refused.parts == [b"1234"]


class Trip:
    """A roundtrip as far as its reading can be paused."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def pause(self) -> None:
        self.said.append("pause")

    def resume(self) -> None:
        self.said.append("resume")


async def test_reading_pauses_above_what_may_be_held_and_goes_on_below_half(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exchange, "HELD", 8)
    trip: Any = Trip()
    taker = _LineTaker()
    taker.trip = trip
    taker.on_head(200, [], 1)
    taker.on_body(b"aaaa\nbb\n\n \nbb\n", 1, 1)
    assert trip.said == []  # as much as may be held
    taker.on_body(b"c\nd", 1, 1)
    taker.on_body(b"\n", 1, 1)
    assert trip.said == ["pause"]
    assert [await taker.next(), await taker.next()] == [b"aaaa", b"bb"]
    assert trip.said == ["pause"]  # four are left, which is half
    assert await taker.next() == b"bb"
    assert trip.said == ["pause", "resume"]
    taker.on_body(b"end ", 1, 1)
    taker.over(None)
    assert [await taker.next() for _ in range(4)] == [b"c", b"d", b"end", None]


async def test_one_line_has_a_limit_however_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "LINE_LIMIT", 6)
    taker = _LineTaker()
    taker.on_head(200, [], 1)
    taker.on_body(b"123", 1, 1)
    taker.on_body(b"456", 1, 1)
    taker.on_body(b"\n123", 1, 1)
    taker.on_body(b"456", 1, 1)
    with pytest.raises(TooLarge, match="One result"):
        taker.on_body(b"7", 1, 1)
    assert await taker.next() == b"123456"


async def test_lines_that_broke_off_end_with_the_error() -> None:
    taker = _LineTaker()
    taker.on_head(200, [], 1)
    taker.on_body(b"a\nhal", 1, 1)
    taker.over(Unreachable("gone"))
    assert await taker.next() == b"a"
    with pytest.raises(Unreachable):
        await taker.next()
    refused = _LineTaker()
    refused.on_head(404, [], 1)
    refused.on_body(b"a\nb", 1, 1)
    refused.over(None)
    assert await refused.next() is None
    assert refused.parts == [b"a\nb"]


@pytest.mark.parametrize(("body", "tree"), [(b"", {}), (b" \n", {}), (b'{"a":1}', {"a": 1})])
async def test_an_answer_is_a_document_or_empty(
    monkeypatch: pytest.MonkeyPatch, body: bytes, tree: Any
) -> None:
    assert (await answered(monkeypatch, body)).tree == tree


async def test_an_answer_that_is_no_document_is_said_to_be_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(Malformed, match="answered with a document that is not JSON"):
        await answered(monkeypatch, b"<html>")


@pytest.mark.parametrize("status", [199, 300])
async def test_only_a_status_of_success_is_an_answer(
    monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    assert (await answered(monkeypatch, b"{}", 299)).tree == {}
    with pytest.raises(HttpRefused, match=f"answered {status}"):
        await answered(monkeypatch, b"{}", status)


async def answered(monkeypatch: pytest.MonkeyPatch, body: bytes, status: int = 200) -> Any:
    """What comes of an answer with this body."""

    async def run(_self: Any, _method: Any, _path: Any, _body: Any, _headers: Any, to: Any) -> None:
        to.status, to.headers = status, []
        to.parts.append(body)

    monkeypatch.setattr(BatchExchange, "_run", run)
    target: Any = SimpleNamespace(base_url="http://127.0.0.1:9/v1", name="lab/m", secrets=())
    return await BatchExchange(SimpleNamespace(), target).send("GET", "/x", (), ())  # type: ignore[arg-type]


async def test_an_answer_in_pieces_is_one_document(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run(_self: Any, _method: Any, _path: Any, _body: Any, _headers: Any, to: Any) -> None:
        to.status, to.headers = 200, [(b"a", b"b")]
        to.parts += [b'{"a', b'":', b"1}"]

    monkeypatch.setattr(BatchExchange, "_run", run)
    target: Any = SimpleNamespace(base_url="http://127.0.0.1:9/v1", name="lab/m", secrets=())
    made = BatchExchange(SimpleNamespace(), target)  # type: ignore[arg-type]
    answer = await made.send("GET", "/x", (), ())
    assert (answer.tree, answer.headers) == ({"a": 1}, [(b"a", b"b")])


@pytest.mark.parametrize(("url", "root"), [("http://h:9/vX/", "/vX"), ("http://h:9/", "")])
def test_the_root_of_a_provider_ends_without_a_slash(url: str, root: str) -> None:
    target: Any = SimpleNamespace(base_url=url, name="lab/m", secrets=())
    assert BatchExchange(SimpleNamespace(), target).root == root  # type: ignore[arg-type]


async def test_the_name_of_a_job_of_files_stays_one_part_of_the_path() -> None:
    tree = {"id": "j/1?x", "status": "completed", "output_file_id": "f/2?y"}
    jobs, recorder = at(FileJobs, tree, {})
    status = await jobs.poll("j/1?x")
    await jobs.cancel("j/1?x")
    assert [one async for one in jobs.results(status)] == []
    assert [path.rpartition("/batches/")[2] for path in recorder.paths[:2]] == [
        "j%2F1%3Fx",
        "j%2F1%3Fx/cancel",
    ]
    assert recorder.paths[2].endswith("/files/f%2F2%3Fy/content")
