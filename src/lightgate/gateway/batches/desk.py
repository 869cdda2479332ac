"""The endpoints of files and batches: each key has its own, and another key's do not exist."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from lightgate.errors import UsageError
from lightgate.gateway.batches.asked import (
    digest_of,
    read_batch,
    read_fields,
    read_page,
    split_requests,
)
from lightgate.gateway.batches.records import (
    INPUT,
    MESSAGE_INPUT,
    SHOWN,
    BatchJob,
    StoredFile,
    new_id,
)
from lightgate.gateway.batches.store import PART, BatchStore
from lightgate.gateway.batches.upload import Upload, disk_refusal
from lightgate.gateway.request.endpoint import find
from lightgate.gateway.request.form import boundary_of
from lightgate.gateway.request.refusal import Refusal, Refusing
from lightgate.gateway.request.weight import LIGHT_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lightgate.gateway.exchange.state import State
    from lightgate.gateway.request.endpoint import Endpoint
    from lightgate.gateway.served.snapshot import BatchTerms
    from lightgate.ledger.store.keys import KeyRecord
    from lightgate.wire.door.inbound import BodySink, Inbound, RequestHead
    from lightgate.wire.door.reply import Reply

T = TypeVar("T")
AT_ONCE: Final = 32  # files that come in at the same time, all clients of a worker together
AT_ONCE_PER_KEY: Final = 4
PIECE: Final = 256 * 1024  # bytes of a file that are read and sent at a time
MESSAGE_DAY_S: Final = 86_400  # for the lines of a message batch, as Anthropic has it
RESULTS_S: Final = 29 * 86_400  # that its results are kept
NS: Final = 1_000_000_000
_JSON: Final = b"content-type: application/json\r\n"
_BINARY: Final = b"content-type: application/octet-stream\r\n"
_LINES: Final = b"content-type: application/x-jsonl\r\n"
_encode: Final = msgspec.json.Encoder().encode


class BatchDesk:
    """Answers about the files and batches of one worker's clients."""

    def __init__(self, state: State, data: Path) -> None:
        self._state = state
        self._store = BatchStore(data)
        self._pool = ThreadPoolExecutor(1, "lightgate-batches")  # the store's
        self._disk = ThreadPoolExecutor(2, "lightgate-files")
        self._closed = False
        self._coming: Counter[str] = Counter()  # uploads by owner

    @property
    def _terms(self) -> BatchTerms:
        return self._state.served.terms.batches

    def close(self) -> None:
        """End the threads."""
        if not self._closed:
            self._closed = True
            self._pool.submit(self._store.close)
        self._pool.shutdown(wait=True)
        self._disk.shutdown(wait=True)

    # A file on its way in

    def sink_of(self, head: RequestHead) -> BodySink | None:
        """A place for the body of an upload; None for every other request."""
        if head.method != b"POST" or b"/files" not in head.target:
            return None
        found = find(head.target)
        if found is None or found.endpoint.verb != "files" or not self._terms.on:
            return None
        kind = next((value for name, value in head.headers if name == b"content-type"), None)
        try:
            boundary = boundary_of(kind)
        except UsageError:
            return None  # the handler says so
        return Upload(boundary, self._terms.max_file_bytes, self._disk)

    def begin(self, sink: BodySink, key: KeyRecord | None) -> None:
        """Let an upload be written whose key was found good."""
        if isinstance(sink, Upload) and not sink.begun:
            self._begin(sink, _owner(key))

    def _begin(self, upload: Upload, owner: str) -> None:
        coming = self._coming
        if coming[owner] >= AT_ONCE_PER_KEY or coming.total() >= AT_ONCE:
            raise Refusing(_BUSY)
        coming[owner] += 1

        def over() -> None:
            coming[owner] -= 1
            if not coming[owner]:
                del coming[owner]

        upload.begin(self._store.path(new_id("file-") + PART), over)

    # The endpoints

    async def answer(
        self, inbound: Inbound, reply: Reply, path: Endpoint, key: KeyRecord | None
    ) -> None:
        """Answer a request about a file or a batch."""
        if not self._terms.on:
            said = "This gateway keeps no files and no batches."
            raise Refusing(Refusal(status=404, message=said, code="unknown_path"))
        owner, verb = _owner(key), path.verb
        made = inbound.method == b"POST"
        if verb == "files" and made:
            await self._add_file(inbound, reply, owner)
        elif verb == "files":
            await self._list_files(inbound, reply, owner)
        elif verb in {"file", "file_content"}:
            await self._one_file(inbound, reply, path, owner)
        elif verb == "batches" and made:
            await self._add_batch(inbound, reply, owner)
        elif verb == "message_batches" and made:
            await self._add_messages(inbound, reply, owner)
        elif verb in {"batches", "message_batches"}:
            await self._list_jobs(inbound, reply, owner, verb)
        else:
            await self._one_job(inbound, reply, path, owner)

    # Files

    async def _add_file(self, inbound: Inbound, reply: Reply, owner: str) -> None:
        sink = inbound.notes.sink
        upload = sink if isinstance(sink, Upload) else None
        if upload is None:  # the body came with its head
            boundary = boundary_of(inbound.header(b"content-type"))
            upload = Upload(boundary, self._terms.max_file_bytes, self._disk)
            upload.write(inbound.body)
        inbound.notes.sink = None
        try:
            if not upload.begun:
                self._begin(upload, owner)
            digest = await upload.complete()
            file = self._file_of(upload, owner, digest)
            kept = await self._in_thread(lambda: self._store.add_file(file, self._terms))
        finally:
            upload.drop()
        _tell(reply, kept.document())

    def _file_of(self, upload: Upload, owner: str, digest: str) -> StoredFile:
        asked_s = read_fields(upload.form.fields)
        now, name = self._store.now_s, upload.form.filename or ""
        keep_s = self._terms.keep_ns // NS if asked_s is None else asked_s
        return StoredFile(
            id=upload.file_id,
            owner=owner,
            purpose=INPUT,
            filename=name,
            size=upload.size,
            created_s=now,
            expires_s=now + keep_s,
            digest=digest_of(digest, name, asked_s),
        )

    async def _list_files(self, inbound: Inbound, reply: Reply, owner: str) -> None:
        page, asked = read_page(inbound.target, most=10_000, usual=10_000)
        purpose = asked.get("purpose")
        found, more = await self._in_thread(lambda: self._store.files(owner, page, purpose))
        _tell_list(reply, [file.document() for file in found], more)

    async def _one_file(self, inbound: Inbound, reply: Reply, path: Endpoint, owner: str) -> None:
        id_ = path.id or ""
        file = await self._in_thread(lambda: self._store.file(owner, id_))
        if file is None or file.purpose not in SHOWN:
            raise Refusing(_no_file(id_))
        if path.verb == "file_content":
            await self._send_file(reply, file, _BINARY)
        elif inbound.method == b"DELETE":
            await self._in_thread(lambda: self._store.drop_file(owner, id_))
            _tell(reply, {"id": id_, "object": "file", "deleted": True})
        else:
            _tell(reply, file.document())

    async def _send_file(self, reply: Reply, file: StoredFile, headers: bytes) -> None:
        """Send the contents of a file, as fast as the client takes them."""
        loop, path = asyncio.get_running_loop(), self._store.path(file.id)
        try:
            source = await loop.run_in_executor(self._disk, path.open, "rb")
        except OSError:
            raise Refusing(_no_file(file.id)) from None
        with source:
            size = os.fstat(source.fileno()).st_size
            reply.start(200, headers, length=size)
            while size > 0:
                piece = await loop.run_in_executor(self._disk, source.read, min(PIECE, size))
                if not piece:  # it has been cut under us
                    reply.abort()
                    return
                size -= len(piece)
                reply.send(piece)
                await reply.drain()
        reply.finish()

    # Batches

    async def _add_batch(self, inbound: Inbound, reply: Reply, owner: str) -> None:
        asked = read_batch(inbound.body)
        file = await self._in_thread(lambda: self._store.file(owner, asked.input_file))
        if file is None or file.purpose != INPUT:
            raise Refusing(_no_file(asked.input_file))
        now = self._store.now_s
        job = BatchJob(
            id=new_id("batch_"),
            owner=owner,
            kind="openai",
            endpoint=asked.endpoint,
            input_file=file.id,
            output_file=new_id("file-"),
            error_file=new_id("file-"),
            created_s=now,
            expires_s=now + asked.window_s,
            window=asked.window,
            keep_s=self._terms.keep_ns // NS if asked.output_s is None else asked.output_s,
            output_expires_after=asked.output_s,
            metadata=asked.metadata,
            digest=asked.digest,
        )
        await self._keep_job(inbound, reply, job)

    async def _add_messages(self, inbound: Inbound, reply: Reply, owner: str) -> None:
        body = inbound.body
        if len(body) > LIGHT_BYTES:
            turn = owner or inbound.peer.rpartition(":")[0]
            total, (lines,) = await self._state.aside.do(turn, split_requests, (body,))
        else:
            total, (lines,) = split_requests(body)
        now, file_id = self._store.now_s, new_id("file-")
        file = StoredFile(
            id=file_id,
            owner=owner,
            purpose=MESSAGE_INPUT,
            filename="requests.jsonl",
            size=len(lines),
            created_s=now,
        )
        digest = await self._in_thread(lambda: hashlib.sha256(body).hexdigest())
        job = BatchJob(
            id=new_id("msgbatch_"),
            owner=owner,
            kind="anthropic",
            endpoint="/v1/messages",
            input_file=file_id,
            output_file=new_id("file-"),
            error_file="",
            created_s=now,
            expires_s=now + MESSAGE_DAY_S,
            keep_s=min(RESULTS_S, self._terms.keep_ns // NS),
            digest=digest,
            total=total,
        )
        part = self._store.path(file_id + PART)
        try:
            await self._in_thread(lambda: _write(part, lines))
            await self._keep_job(inbound, reply, job, file)
        finally:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)

    async def _keep_job(
        self, inbound: Inbound, reply: Reply, job: BatchJob, lines: StoredFile | None = None
    ) -> None:
        count = inbound.header(b"x-stainless-retry-count") or b""
        repeated = count.isdigit() and int(count[:9]) > 0
        kept = await self._in_thread(
            lambda: self._store.add_job(job, self._terms, repeated=repeated, lines=lines)
        )
        _tell(reply, kept.document())

    async def _list_jobs(self, inbound: Inbound, reply: Reply, owner: str, verb: str) -> None:
        messages = verb == "message_batches"
        page, _ = read_page(inbound.target, most=1000 if messages else 100, usual=20)
        kind = "anthropic" if messages else "openai"
        found, more = await self._in_thread(lambda: self._store.jobs(owner, page, kind))
        _tell_list(reply, [job.document() for job in found], more, plain=messages)

    async def _one_job(self, inbound: Inbound, reply: Reply, path: Endpoint, owner: str) -> None:
        id_, kind = path.id or "", "anthropic" if path.verb.startswith("message") else "openai"
        job = await self._in_thread(lambda: self._store.job(owner, id_, kind))
        if job is None:
            said = f"There is no batch {id_}."
            raise Refusing(Refusal(status=404, message=said, code="batch_not_found"))
        if path.verb.endswith("cancel"):
            job = await self._in_thread(lambda: self._store.change(id_, self._cancelled)) or job
        elif path.verb == "message_batch_results":
            await self._send_results(reply, job)
            return
        elif inbound.method == b"DELETE":
            await self._delete(reply, job)
            return
        _tell(reply, job.document())

    def _cancelled(self, job: BatchJob) -> BatchJob:
        if job.state == "cancelling":
            return job
        if not job.active:
            said = f"The batch has ended: it is {job.state}."
            raise Refusing(Refusal(status=409, message=said, code="batch_ended", exhausted=True))
        return job.moved("cancelling", self._store.now_s)

    async def _send_results(self, reply: Reply, job: BatchJob) -> None:
        file = None
        if not job.active and job.has_output:
            file = await self._in_thread(lambda: self._store.file(job.owner, job.output_file))
        if file is None:
            said = "The batch has not ended." if job.active else "The results are kept no more."
            raise Refusing(Refusal(status=404, message=said, code="no_results"))
        await self._send_file(reply, file, _LINES)

    async def _delete(self, reply: Reply, job: BatchJob) -> None:
        if job.active:
            raise UsageError("The batch has not ended.", hint="Cancel it, and delete it then.")
        await self._in_thread(lambda: self._store.drop_job(job))
        _tell(reply, {"id": job.id, "type": "message_batch_deleted"})

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """Do something with the store; Refusing where the disk or the database does not let it."""

        def run() -> T:
            import sqlite3  # most workers keep no file

            try:
                return work()
            except sqlite3.Error as error:
                if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
                    raise OSError(errno.ENOSPC, "full") from None
                raise

        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, run)
        except OSError as error:
            raise Refusing(disk_refusal(error)) from None


def _owner(key: KeyRecord | None) -> str:
    return "" if key is None else key.id


def _no_file(id_: str) -> Refusal:
    return Refusal(status=404, message=f"There is no file {id_[:100]!r}.", code="file_not_found")


_BUSY: Final = Refusal(
    status=429,
    message="Too many files are coming in at the moment.",
    code="uploads",
    retry_after_s=5.0,
)


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _tell(reply: Reply, document: dict[str, Any]) -> None:
    reply.whole(200, _JSON, _encode(document))


def _tell_list(
    reply: Reply, found: list[dict[str, Any]], more: bool, *, plain: bool = False
) -> None:
    """Send a page of a list; a `plain` one is Anthropic's."""
    first, last = (found[0]["id"], found[-1]["id"]) if found else (None, None)
    page = {"data": found, "first_id": first, "last_id": last, "has_more": more}
    _tell(reply, page if plain else {"object": "list", **page})
