"""The store of files and batches: owners apart, quotas, requests that come twice, age."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from lightgate.clock.source import ManualClock
from lightgate.gateway.batches.records import (
    INPUT,
    OUTPUT,
    BatchJob,
    FileProblem,
    StoredFile,
    instant,
    new_id,
)
from lightgate.gateway.batches.store import AGAIN_S, FORGET_S, PART, STALE_S, BatchStore, ListPage
from lightgate.gateway.request.refusal import Refusing
from lightgate.gateway.served.snapshot import BatchTerms

if TYPE_CHECKING:
    from pathlib import Path

    from lightgate.gateway.batches.records import JobState

NS = 1_000_000_000
DAY_S = 86_400
TERMS = BatchTerms()
ALL = ListPage(limit=100)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(wall_ns=1_800_000_000 * NS)


@pytest.fixture
def store(tmp_path: Path, clock: ManualClock) -> BatchStore:
    made = BatchStore(tmp_path, clock)
    made.folder.mkdir(mode=0o700)
    (made.folder / "files").mkdir(mode=0o700)
    return made


def add(store: BatchStore, owner: str = "k", terms: BatchTerms = TERMS, **more: Any) -> StoredFile:
    id_ = new_id("file-")
    store.path(id_ + PART).write_bytes(b"x" * more.get("size", 10))
    facts: dict[str, Any] = {
        "purpose": INPUT, "filename": "a.jsonl", "size": 10, "created_s": store.now_s,
        "expires_s": store.now_s + 30 * DAY_S, "digest": id_,
    }  # fmt: skip
    return store.add_file(StoredFile(id=id_, owner=owner, **(facts | more)), terms)


def job_of(store: BatchStore, file: StoredFile, **more: Any) -> BatchJob:
    facts: dict[str, Any] = {
        "id": new_id("batch_"), "owner": file.owner, "kind": "openai",
        "endpoint": "/v1/chat/completions", "input_file": file.id, "output_file": new_id("file-"),
        "error_file": new_id("file-"), "created_s": store.now_s,
        "expires_s": store.now_s + DAY_S, "keep_s": 2 * DAY_S, "digest": "d",
    }  # fmt: skip
    return BatchJob(**(facts | more))


def code_of(refusing: pytest.ExceptionInfo[Refusing]) -> tuple[int, str]:
    return refusing.value.refusal.status, refusing.value.refusal.code


def test_another_owners_file_and_batch_do_not_exist(store: BatchStore) -> None:
    file = add(store, "mine")
    job = store.add_job(job_of(store, file), TERMS, repeated=False)
    assert store.file("mine", file.id) == file
    assert store.file("other", file.id) is None
    assert store.job("other", job.id, "openai") is None
    assert store.job("mine", job.id, "anthropic") is None
    assert store.files("other", ALL) == ([], False)
    assert store.jobs("other", ALL, "openai") == ([], False)
    assert store.files("other", ListPage(limit=5, after=file.id)) == ([], False)
    assert not store.drop_file("other", file.id)
    assert store.path(file.id).exists()


def test_only_the_owner_of_the_process_may_read_it(store: BatchStore) -> None:
    add(store)
    base = store.folder / "store.sqlite"
    assert stat.S_IMODE(base.stat().st_mode) == 0o600
    assert stat.S_IMODE(store.folder.stat().st_mode) == 0o700


def test_files_are_listed_by_their_purpose_and_no_file_has_an_unknown_one(
    store: BatchStore,
) -> None:
    asked, answered = add(store), add(store, purpose=OUTPUT)
    assert store.files("k", ALL, INPUT) == ([asked], False)
    assert store.files("k", ALL, OUTPUT) == ([answered], False)
    assert store.files("k", ALL, "fine-tune") == ([], False)
    assert len(store.files("k", ALL)[0]) == 2


def test_pages_go_on_after_the_last_id(store: BatchStore) -> None:
    ids = [add(store).id for _ in range(5)]
    newest, more = store.files("k", ListPage(limit=2))
    assert ([file.id for file in newest], more) == ([ids[4], ids[3]], True)
    rest, more = store.files("k", ListPage(limit=3, after=ids[3]))
    assert ([file.id for file in rest], more) == ([ids[2], ids[1], ids[0]], False)
    oldest, more = store.files("k", ListPage(limit=2, newest_first=False, after=ids[0]))
    assert ([file.id for file in oldest], more) == ([ids[1], ids[2]], True)
    before, more = store.files("k", ListPage(limit=2, before=ids[1]))
    assert ([file.id for file in before], more) == ([ids[3], ids[2]], True)
    assert store.files("k", ALL, "batch_output") == ([], False)
    assert len(store.files("k", ALL, "batch")[0]) == 5


@pytest.mark.parametrize(
    ("page", "found", "more"),
    [
        (ListPage(limit=2), "43", True),
        (ListPage(limit=5), "43210", False),
        (ListPage(limit=2, after="3"), "21", True),
        (ListPage(limit=3, after="3"), "210", False),
        (ListPage(limit=2, before="1"), "32", True),
        (ListPage(limit=3, before="1"), "432", False),
        (ListPage(limit=9, after="4", before="1"), "32", False),
        (ListPage(limit=1, after="4", before="1"), "3", True),
        (ListPage(limit=2, newest_first=False), "01", True),
        (ListPage(limit=2, after="0", newest_first=False), "12", True),
        (ListPage(limit=4, after="0", newest_first=False), "1234", False),
        (ListPage(limit=2, before="3", newest_first=False), "12", True),
        (ListPage(limit=3, before="3", newest_first=False), "012", False),
        (ListPage(limit=9, after="0", before="3", newest_first=False), "12", False),
    ],
)
def test_pages_of_a_list(store: BatchStore, page: ListPage, found: str, more: bool) -> None:
    ids = [add(store).id for _ in range(5)]
    after, before = (None if at is None else ids[int(at)] for at in (page.after, page.before))
    files, has_more = store.files("k", page._replace(after=after, before=before))
    assert [file.id for file in files] == [ids[int(at)] for at in found]
    assert has_more is more


def test_time_is_in_whole_seconds(store: BatchStore, clock: ManualClock) -> None:
    clock.advance(NS - 1)
    assert store.now_s == 1_800_000_000
    clock.advance(1)
    assert store.now_s == 1_800_000_001


def test_a_file_as_clients_read_it() -> None:
    file = StoredFile(
        id="file-1",
        owner="k",
        purpose=INPUT,
        filename="a.jsonl",
        size=10,
        created_s=1_800_000_000,
        expires_s=1_800_000_060,
    )
    assert file.document() == {
        "id": "file-1",
        "object": "file",
        "bytes": 10,
        "created_at": 1_800_000_000,
        "expires_at": 1_800_000_060,
        "filename": "a.jsonl",
        "purpose": INPUT,
        "status": "processed",
        "status_details": None,
    }


def test_the_same_upload_again_is_the_same_file(store: BatchStore, clock: ManualClock) -> None:
    first = add(store, digest="same")
    assert add(store, digest="same").id == first.id
    assert add(store, "other", digest="same").id != first.id
    clock.advance((AGAIN_S + 1) * NS)
    assert add(store, digest="same").id != first.id


def test_a_batch_that_still_runs_is_not_made_twice(store: BatchStore, clock: ManualClock) -> None:
    file = add(store)
    first = store.add_job(job_of(store, file), TERMS, repeated=False)
    assert store.add_job(job_of(store, file), TERMS, repeated=False).id == first.id
    assert store.add_job(job_of(store, file, digest="e"), TERMS, repeated=False).id != first.id
    clock.advance((AGAIN_S + 1) * NS)
    assert store.add_job(job_of(store, file), TERMS, repeated=True).id != first.id


@pytest.mark.parametrize(
    ("state", "repeated", "same"),
    [
        ("completed", False, False),  # its file is run once more on purpose
        ("completed", True, True),  # the SDK says that it asks again
        ("cancelled", True, False),
        ("cancelling", True, False),
        ("failed", True, False),
        ("finalizing", False, True),
    ],
)
def test_what_has_ended_is_given_again_to_a_repeat_alone(
    store: BatchStore, state: Any, repeated: bool, same: bool
) -> None:
    file = add(store)
    first = store.add_job(job_of(store, file), TERMS, repeated=False)
    store.change(first.id, lambda job: job.moved(state, store.now_s))
    again = store.add_job(job_of(store, file), TERMS, repeated=repeated)
    assert (again.id == first.id) is same


@pytest.mark.parametrize(
    "terms",
    [BatchTerms(files_per_key=2), BatchTerms(bytes_per_key=29), BatchTerms(max_bytes=29)],
)
def test_a_key_has_no_more_than_its_quota(store: BatchStore, terms: BatchTerms) -> None:
    add(store, terms=terms)
    kept = add(store, terms=terms)
    with pytest.raises(Refusing) as refusing:
        add(store, terms=terms)
    assert code_of(refusing) == (429, "quota")
    assert refusing.value.refusal.exhausted
    assert store.drop_file("k", kept.id)
    add(store, terms=terms)
    if terms.max_bytes == TERMS.max_bytes:
        add(store, "other", terms=terms)  # another key has its own


def test_a_key_has_so_many_batches_under_way(store: BatchStore) -> None:
    terms, file = BatchTerms(batches_per_key=1), add(store)
    first = store.add_job(job_of(store, file), terms, repeated=False)
    with pytest.raises(Refusing) as refusing:
        store.add_job(job_of(store, file, digest="e"), terms, repeated=False)
    assert code_of(refusing) == (429, "batch_limit")
    store.change(first.id, lambda job: job.moved("completed", store.now_s))
    store.add_job(job_of(store, file, digest="e"), terms, repeated=False)


def test_a_file_that_a_batch_reads_stays(store: BatchStore) -> None:
    file = add(store)
    job = store.add_job(job_of(store, file), TERMS, repeated=False)
    with pytest.raises(Refusing) as refusing:
        store.drop_file("k", file.id)
    assert code_of(refusing) == (409, "file_in_use")
    store.change(job.id, lambda now: now.moved("completed", store.now_s))
    assert store.drop_file("k", file.id)
    assert not store.path(file.id).exists()


def test_old_files_go_and_their_batches_say_so(store: BatchStore, clock: ManualClock) -> None:
    file = add(store, expires_s=store.now_s + DAY_S)
    job = store.add_job(job_of(store, file), TERMS, repeated=False)
    clock.advance(2 * DAY_S * NS)
    assert store.file("k", file.id) is None  # a client does not see it any more
    assert store.sweep() == 0  # and the batch still reads it
    store.path(job.output_file).write_bytes(b"{}\n")
    output = StoredFile(
        id=job.output_file, owner="k", purpose=OUTPUT, filename="o", size=3,
        created_s=store.now_s, expires_s=store.now_s + DAY_S,
    )  # fmt: skip
    done = store.change(
        job.id,
        lambda now: msgspec.structs.replace(now.moved("completed", store.now_s), has_output=True),
        output,
    )
    assert done is not None
    assert done.document()["output_file_id"] == job.output_file
    assert store.sweep() == 1
    assert not store.path(file.id).exists()
    clock.advance(DAY_S * NS)
    assert store.sweep() == 1
    kept = store.job("k", job.id, "openai")
    assert kept is not None
    assert kept.document()["output_file_id"] is None
    clock.advance(FORGET_S * NS)
    store.sweep()
    assert store.job("k", job.id, "openai") is None


def test_what_no_row_names_is_swept(store: BatchStore, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, running = add(store), add(store)
    job = store.add_job(job_of(store, running), TERMS, repeated=False)
    broken = store.path(new_id("file-") + PART)
    for path in (broken, store.path(job.output_file)):
        path.write_bytes(b"x")
    monkeypatch.setattr("lightgate.gateway.batches.store.STALE_S", -STALE_S)
    store.sweep()
    assert not broken.exists()
    assert store.path(job.output_file).exists()
    assert store.path(kept.id).exists()


def test_contents_that_are_gone_already_are_no_hindrance(
    store: BatchStore, clock: ManualClock
) -> None:
    old, dropped = add(store, expires_s=store.now_s + 1), add(store)
    job = store.add_job(job_of(store, add(store), kind="anthropic"), TERMS, repeated=False)
    for name in (old.id, dropped.id, job.input_file):
        store.path(name).unlink()
    assert store.drop_file("k", dropped.id)
    store.drop_job(job)
    clock.advance(NS)
    assert store.sweep() == 1
    assert store.files("k", ALL) == ([], False)


def test_a_file_ends_at_its_second_and_a_batch_is_forgotten_after_its_time(
    store: BatchStore, clock: ManualClock
) -> None:
    file = add(store, expires_s=store.now_s + 2)
    job = store.add_job(job_of(store, add(store)), TERMS, repeated=False)
    store.change(job.id, lambda now: now.moved("failed", store.now_s))
    clock.advance(NS)
    assert (store.sweep(), store.file("k", file.id)) == (0, file)
    clock.advance(NS)
    assert store.file("k", file.id) is None
    assert store.sweep() == 1
    clock.advance((FORGET_S - 2) * NS)
    store.sweep()
    assert store.job("k", job.id, "openai") is not None
    clock.advance(NS)
    store.sweep()
    assert store.job("k", job.id, "openai") is None


def test_an_unfinished_upload_is_nobodys_after_its_time(
    store: BatchStore, clock: ManualClock
) -> None:
    add(store)
    broken = store.path(new_id("file-") + PART)
    broken.write_bytes(b"x")
    os.utime(broken, (store.now_s, store.now_s))
    clock.advance((STALE_S - 1) * NS)
    store.sweep()
    assert broken.exists()
    clock.advance(NS)
    store.sweep()
    assert not broken.exists()


def test_results_that_are_gone_are_no_more_named_one_by_one(
    store: BatchStore, clock: ManualClock
) -> None:
    job = store.add_job(job_of(store, add(store)), TERMS, repeated=False)
    late = store.now_s + 9
    files = [
        StoredFile(id=name, owner="k", purpose=OUTPUT, filename="o", size=3,
                   created_s=store.now_s, expires_s=expires_s)
        for name, expires_s in ((job.output_file, late), (job.error_file, late + 9))
    ]  # fmt: skip
    store.change(
        job.id,
        lambda now: msgspec.structs.replace(
            now.moved("completed", store.now_s), has_output=True, has_errors=True
        ),
        *files,
    )
    for passed_s, named in ((8, (True, True)), (1, (False, True)), (9, (False, False))):
        clock.advance(passed_s * NS)
        store.sweep()
        kept = store.job("k", job.id, "openai")
        assert kept is not None
        assert (kept.has_output, kept.has_errors) == named
    assert store.change("batch_none", lambda now: now) is None


def test_tokens_that_nobody_counted_are_none(store: BatchStore) -> None:
    """In the document of a batch: no usage before an answer, and 0 for what no answer names."""
    job = job_of(store, add(store))
    assert job.document()["usage"] is None
    counted = {"input": 30, "output": 20, "cached": 10, "reasoning": 5}
    for name, count in counted.items():
        used = {name: count}
        told = job_of(store, add(store), usage=used).document()["usage"]
        assert told == {
            "input_tokens": used.get("input", 0),
            "input_tokens_details": {"cached_tokens": used.get("cached", 0)},
            "output_tokens": used.get("output", 0),
            "output_tokens_details": {"reasoning_tokens": used.get("reasoning", 0)},
            "total_tokens": used.get("input", 0) + used.get("output", 0),
        }
    assert job_of(store, add(store), usage=counted).document()["usage"]["total_tokens"] == 50


def test_a_batch_as_openais_clients_read_it(store: BatchStore) -> None:
    file, now = add(store), store.now_s
    job = job_of(store, file)
    fresh = {
        "id": job.id, "object": "batch", "endpoint": "/v1/chat/completions", "model": None,
        "errors": None, "input_file_id": file.id, "completion_window": "24h",
        "status": "validating", "output_file_id": None, "error_file_id": None,
        "created_at": now, "in_progress_at": None, "expires_at": now + DAY_S,
        "finalizing_at": None, "completed_at": None, "failed_at": None, "expired_at": None,
        "cancelling_at": None, "cancelled_at": None, "usage": None, "metadata": None,
        "request_counts": {"total": 0, "completed": 0, "failed": 0},
    }  # fmt: skip
    assert job.document() == fresh
    states: tuple[JobState, ...] = (
        "in_progress", "finalizing", "completed", "failed", "expired", "cancelling", "cancelled",
    )  # fmt: skip
    for at, state in enumerate(states, start=now):
        changed = {"status": state, f"{state}_at": at}
        assert job.moved(state, at).document() == fresh | changed
    problem = FileProblem(code="c", line=3, message="m")
    ended = job.moved("failed", now, problems=(problem,), has_output=True, has_errors=True)
    told = ended.document()
    assert (told["output_file_id"], told["error_file_id"]) == (job.output_file, job.error_file)
    assert told["errors"] == {
        "object": "list",
        "data": [{"code": "c", "line": 3, "message": "m", "param": None}],
    }


def test_a_batch_as_anthropics_clients_read_it(store: BatchStore) -> None:
    now = store.now_s
    counts = {"total": 15, "completed": 5, "failed": 4, "cancelled": 3, "expired": 2}
    job = job_of(store, add(store), kind="anthropic", **counts)
    fresh = {
        "id": job.id, "type": "message_batch", "processing_status": "in_progress",
        "request_counts": {
            "processing": 15, "succeeded": 0, "errored": 0, "canceled": 0, "expired": 0,
        },
        "created_at": instant(now), "expires_at": instant(now + DAY_S), "ended_at": None,
        "cancel_initiated_at": None, "archived_at": None, "results_url": None,
    }  # fmt: skip
    assert job.document() == fresh
    ending = job.moved("cancelling", now + 5)
    assert ending.document() == fresh | {
        "processing_status": "canceling",
        "cancel_initiated_at": instant(now + 5),
    }
    ended = {
        "processing_status": "ended",
        "ended_at": instant(now + 9),
        "request_counts": {
            "processing": 1, "succeeded": 5, "errored": 4, "canceled": 3, "expired": 2,
        },
    }  # fmt: skip
    url = f"/v1/messages/batches/{job.id}/results"
    kept = job.moved("completed", now + 9, has_output=True)
    assert kept.document() == fresh | ended | {"results_url": url}
    gone = job.moved("completed", now + 9, has_output=False)
    assert gone.document() == fresh | ended | {"archived_at": instant(now + 9 + 2 * DAY_S)}
    assert instant(1_800_000_000) == "2027-01-15T08:00:00Z"


def test_fresh_uploads_keep_no_stale_ones_from_being_swept(store: BatchStore) -> None:
    parts = [store.path(new_id("file-") + PART) for _ in range(20)]
    for number, path in enumerate(parts):
        path.write_bytes(b"x")
        made_s = store.now_s - (STALE_S if number % 2 else STALE_S - 1)
        os.utime(path, (made_s, made_s))
    store.sweep()
    assert [path.exists() for path in parts] == [True, False] * 10


def test_the_files_of_an_owner_are_counted_in_bytes(store: BatchStore) -> None:
    add(store, "mine", size=10)
    add(store, "mine", size=7)
    add(store, "other", size=5)
    assert [store.held_bytes(owner) for owner in ("mine", "other", "nobody")] == [17, 5, 0]


def test_the_newest_batches_are_those_of_all_owners(store: BatchStore) -> None:
    jobs = [
        store.add_job(job_of(store, add(store, owner)), TERMS, repeated=False)
        for owner in ("a", "b", "c")
    ]
    assert [job.id for job in store.newest(2)] == [jobs[2].id, jobs[1].id]
    assert len(store.newest(9)) == 3
