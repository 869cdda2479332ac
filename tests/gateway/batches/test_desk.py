"""Files and batches over HTTP: each key's own, errors in the client's dialect, the whole way."""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from gateway.batches.test_upload import MARK, form
from lightgate.gateway.batches import desk
from lightgate.gateway.batches.store import BatchStore
from lightgate.gateway.request.refusal import Refusing
from lightgate.gateway.runner.runner import BatchRunner
from lightgate.gateway.runner.sender import LineSender
from lightgate.gateway.served.inner import InnerCaller, credential
from lightgate.ledger.store.keys import KeyTerms
from sim.conftest import SAY

if TYPE_CHECKING:
    from gateway.conftest import Rig, Start
    from sim.conftest import Answer

TYPE = f"multipart/form-data; boundary={MARK.decode()}"
SECRET = "0123456789abcdef"
TWO = {"me": KeyTerms(name="me"), "you": KeyTerms(name="you")}
ANTHROPIC = {"anthropic-version": "2023-06-01"}


def line(name: str, model: str = "lab/plain", **body: Any) -> str:
    asked = {"model": model, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5}
    url = "/v1/chat/completions"
    return json.dumps({"custom_id": name, "method": "POST", "url": url, "body": asked | body})


async def ask(
    rig: Rig, method: str, path: str, body: Any = b"", key: str = "me", **headers: str
) -> Answer:
    """One request of a key on a connection of its own."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    if key in rig.keys:
        named["authorization"] = f"Bearer {rig.keys[key]}"
    line_ = await rig.line()
    answer = await line_.ask(method, path, raw, named)
    await line_.close()
    return answer


async def upload(rig: Rig, *lines: str, key: str = "me", **more: Any) -> Answer:
    return await ask(
        rig, "POST", "/v1/files", form("\n".join(lines).encode(), **more), key, content_type=TYPE
    )


async def run_all(rig: Rig) -> None:
    """Carry out what waits, through the gateway itself."""
    rig.state.inner = InnerCaller(SECRET, "127.0.0.1")
    sender = LineSender(f"http://127.0.0.1:{rig.port}", SECRET)
    store = BatchStore(rig.data)
    terms = rig.state.served.terms.batches
    runner = BatchRunner(store, sender.send, terms, rig.state.now_ns)
    await runner.look()
    while store.active():
        await asyncio.sleep(0.01)
    await runner.end()
    await sender.close()


def folder(rig: Rig) -> list[str]:
    path = rig.data / "batches" / "files"
    return sorted(os.listdir(path)) if path.exists() else []


async def test_a_file_comes_in_and_goes_out(start: Start) -> None:
    rig = await start(terms=TWO)
    content = "x" * 700_000
    made = await upload(rig, content, name="../lines.jsonl")
    assert made.status == 200
    id_ = made.json["id"]
    assert (made.json["bytes"], made.json["filename"], made.json["object"]) == (
        700_000, "lines.jsonl", "file",
    )  # fmt: skip
    assert (await ask(rig, "GET", f"/v1/files/{id_}")).json == made.json
    got = await ask(rig, "GET", f"/v1/files/{id_}/content", accept="application/binary")
    assert (got.status, got.body) == (200, content.encode())
    assert got.headers["content-type"] == "application/octet-stream"
    listed = (await ask(rig, "GET", "/v1/files?purpose=batch&limit=5")).json
    assert (listed["data"], listed["has_more"]) == ([made.json], False)
    assert folder(rig) == [id_]
    gone = await ask(rig, "DELETE", f"/v1/files/{id_}")
    assert gone.json == {"id": id_, "object": "file", "deleted": True}
    assert (await ask(rig, "GET", f"/v1/files/{id_}")).status == 404
    assert folder(rig) == []


async def test_another_keys_things_are_as_if_they_did_not_exist(start: Start) -> None:
    rig = await start(terms=TWO)
    file = (await upload(rig, line("a"))).json["id"]
    asked = {"input_file_id": file, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    batch = (await ask(rig, "POST", "/v1/batches", asked)).json["id"]
    params = {"model": "lab/plain", "max_tokens": 5, "messages": []}
    requests = {"requests": [{"custom_id": "a", "params": params}]}
    messages = (await ask(rig, "POST", "/v1/messages/batches", requests)).json["id"]
    for method, path in (
        ("GET", f"/v1/files/{file}"),
        ("GET", f"/v1/files/{file}/content"),
        ("DELETE", f"/v1/files/{file}"),
        ("GET", f"/v1/batches/{batch}"),
        ("POST", f"/v1/batches/{batch}/cancel"),
        ("GET", f"/v1/messages/batches/{messages}"),
        ("POST", f"/v1/messages/batches/{messages}/cancel"),
        ("GET", f"/v1/messages/batches/{messages}/results"),
        ("DELETE", f"/v1/messages/batches/{messages}"),
    ):
        unknown = path.replace(file, "file-0").replace(batch, "batch_0")
        unknown = unknown.replace(messages, "msgbatch_0")
        theirs, none = await ask(rig, method, path, key="you"), await ask(rig, method, unknown)
        assert theirs.status == none.status == 404, path
        for one in (file, batch, messages):
            theirs.pieces = [theirs.body.replace(one.encode(), one.rstrip("0123456789abcdef")
                                                 .encode() + b"0")]  # fmt: skip
        assert theirs.body == none.body, path
        if not path.startswith("/v1/messages"):  # Anthropic's errors have no code
            kind = "file" if "file" in path else "batch"
            assert none.json["error"]["code"] == f"{kind}_not_found"
    refused = await ask(rig, "POST", "/v1/batches", asked, key="you")
    assert (refused.status, refused.json["error"]["code"]) == (404, "file_not_found")
    for path in ("/v1/files", "/v1/batches", "/v1/messages/batches"):
        assert (await ask(rig, "GET", path, key="you")).json["data"] == []
        assert len((await ask(rig, "GET", path)).json["data"]) == 1
    assert (await ask(rig, "GET", f"/v1/batches/{batch}")).json["status"] == "validating"


async def test_a_body_without_a_key_never_reaches_the_disk(start: Start) -> None:
    rig = await start(terms=TWO)
    raw = form(b"x" * 600_000)
    head = (
        f"POST /v1/files HTTP/1.1\r\nhost: a\r\ncontent-type: {TYPE}\r\n"
        f"content-length: {len(raw)}\r\n\r\n"
    )
    reader, writer = await asyncio.open_connection("127.0.0.1", rig.port)
    writer.write(head.encode() + raw[:200_000])
    assert (await reader.readline()).startswith(b"HTTP/1.1 401")
    writer.close()
    assert folder(rig) == []


async def test_a_client_that_leaves_leaves_nothing(start: Start) -> None:
    rig = await start(terms=TWO)
    raw = form(b"x" * 3_000_000)
    head = (
        f"POST /v1/files HTTP/1.1\r\nhost: a\r\ncontent-type: {TYPE}\r\n"
        f"authorization: Bearer {rig.keys['me']}\r\ncontent-length: {len(raw)}\r\n\r\n"
    )
    _, writer = await asyncio.open_connection("127.0.0.1", rig.port)
    writer.write(head.encode() + raw[:2_000_000])
    await rig.until(lambda: folder(rig) != [])
    writer.close()
    await rig.until(lambda: folder(rig) == [])
    assert rig.gateway._batches._coming == {}
    for number in range(desk.AT_ONCE_PER_KEY + 1):
        assert (await upload(rig, line(f"a{number}"))).status == 200


@pytest.mark.parametrize(
    ("body", "kind", "status", "said"),
    [
        (form(b"x", purpose=b"assistants"), TYPE, 400, "purpose"),
        (form(b"x")[:-9], TYPE, 400, "cut off"),
        (b"{}", "application/json", 400, "multipart/form-data"),
        (form(b"x" * 2000), TYPE, 413, "larger than 1024"),
    ],
)
async def test_a_wrong_upload_is_told_why(
    start: Start, body: bytes, kind: str, status: int, said: str
) -> None:
    rig = await start("[gateway.batches]\nmax_file_bytes = 1024\n", terms=TWO)
    got = await ask(rig, "POST", "/v1/files", body, content_type=kind)
    assert got.status == status
    assert said in got.json["error"]["message"]
    assert folder(rig) == []


async def test_only_uploads_are_read_as_files(start: Start) -> None:
    rig = await start(terms=TWO)
    for path in ("/v1/nothing/files", "/v1/models/files"):
        got = await ask(rig, "POST", path, form(b"x"), content_type=TYPE)
        assert 400 <= got.status < 500
        assert got.json["error"]["message"]
    assert folder(rig) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"endpoint": "/v1/models"}, "endpoint"),
        ({"endpoint": "http://evil.example/v1/chat/completions"}, "endpoint"),
        ({"completion_window": "30d"}, "completion_window"),
        ({"metadata": {"a": 1}}, "metadata"),
        ({"metadata": {str(n): "x" for n in range(17)}}, "metadata"),
        ({"output_expires_after": {"anchor": "created_at", "seconds": 5}}, "expires"),
        ({"input_file_id": None}, "input_file_id"),
    ],
)
async def test_a_wrong_batch_is_told_why(start: Start, change: dict[str, Any], said: str) -> None:
    rig = await start(terms=TWO)
    file = (await upload(rig, line("a"))).json["id"]
    asked = {"input_file_id": file, "endpoint": "/v1/chat/completions"} | change
    got = await ask(rig, "POST", "/v1/batches", asked)
    assert got.status == 400
    assert said in got.json["error"]["message"]
    assert (await ask(rig, "GET", "/v1/batches")).json["data"] == []


@pytest.mark.parametrize(
    "requests",
    [
        None, [], {}, [{"custom_id": "a"}], [{"params": {}}],
        [{"custom_id": "a b", "params": {}}], 2 * [{"custom_id": "a", "params": {}}],
    ],
)  # fmt: skip
async def test_a_wrong_message_batch_is_refused_in_anthropics_words(
    start: Start, requests: Any
) -> None:
    rig = await start(terms=TWO)
    got = await ask(rig, "POST", "/v1/messages/batches", {"requests": requests}, **ANTHROPIC)
    assert got.status == 400
    assert (got.json["type"], got.json["error"]["type"]) == ("error", "invalid_request_error")
    assert folder(rig) == []


async def test_a_repeat_makes_no_second_batch(start: Start) -> None:
    rig = await start(terms=TWO)
    first = (await upload(rig, line("a"))).json
    assert (await upload(rig, line("a"))).json == first
    asked = {"input_file_id": first["id"], "endpoint": "/v1/chat/completions"}
    batch = (await ask(rig, "POST", "/v1/batches", asked)).json["id"]
    assert (await ask(rig, "POST", "/v1/batches", asked)).json["id"] == batch
    other = asked | {"metadata": {"run": "2"}}
    assert (await ask(rig, "POST", "/v1/batches", other)).json["id"] != batch
    await run_all(rig)
    again = await ask(rig, "POST", "/v1/batches", asked, x_stainless_retry_count="1")
    assert again.json["id"] == batch
    assert (await ask(rig, "POST", "/v1/batches", asked)).json["id"] != batch


async def test_lines_run_with_the_rights_of_their_key(start: Start) -> None:
    terms = {"me": KeyTerms(name="me", models=("lab/plain",), tags='{"team":"a"}')}
    rig = await start(terms=terms)
    file = (await upload(rig, line("a"), line("b", "lab/think"), line("c"))).json["id"]
    asked = {"input_file_id": file, "endpoint": "/v1/chat/completions"}
    batch = (await ask(rig, "POST", "/v1/batches", asked)).json["id"]
    await run_all(rig)
    done = (await ask(rig, "GET", f"/v1/batches/{batch}")).json
    assert (done["status"], done["request_counts"]) == (
        "completed", {"total": 3, "completed": 2, "failed": 1},
    )  # fmt: skip
    wrong = (await ask(rig, "GET", f"/v1/files/{done['error_file_id']}/content")).json
    assert wrong["response"]["status_code"] == 403
    assert wrong["response"]["body"]["error"]["code"] == "forbidden"
    output = (await ask(rig, "GET", f"/v1/files/{done['output_file_id']}/content")).body
    ids = {json.loads(text)["id"] for text in output.splitlines()}
    # One row in the ledger for each line, for the key, at its cost.
    settled = [note for note in rig.settled() if note.exchange.request_id in ids]
    assert len(settled) == len(ids) == 2
    key = rig.state.served.snapshot.keys[0].id
    for note in settled:
        assert (note.exchange.key_id, note.exchange.tags) == (key, '{"team":"a"}')
        assert [one.facts.source for one in note.attempts] == ["batch"]
        assert (note.exchange.cost_nano or 0) > 0


async def test_a_message_batch_from_end_to_end(start: Start) -> None:
    rig = await start(terms=TWO)
    params = {"model": "lab/plain", "max_tokens": 5, "messages": [{"role": "user", "content": "H"}]}
    requests = [{"custom_id": f"a{n}", "params": params} for n in range(3)]
    made = await ask(rig, "POST", "/v1/messages/batches", {"requests": requests}, **ANTHROPIC)
    path = f"/v1/messages/batches/{made.json['id']}"
    early = await ask(rig, "GET", f"{path}/results")
    assert (early.status, early.json["error"]["type"]) == (404, "not_found_error")
    assert (await ask(rig, "DELETE", path)).status == 400
    assert (await ask(rig, "GET", "/v1/files")).json["data"] == []  # its lines are no file
    await run_all(rig)
    done = (await ask(rig, "GET", path)).json
    assert done["request_counts"]["succeeded"] == 3
    assert done["results_url"] == f"{path}/results"
    got = await ask(rig, "GET", done["results_url"])
    assert (got.status, got.headers["content-type"]) == (200, "application/x-jsonl")
    lines = [json.loads(text) for text in got.body.splitlines()]
    assert {one["custom_id"] for one in lines} == {"a0", "a1", "a2"}
    assert {one["result"]["message"]["type"] for one in lines} == {"message"}
    refused = await ask(rig, "POST", f"{path}/cancel")
    assert (refused.status, refused.headers["x-should-retry"]) == (409, "false")
    assert (await ask(rig, "DELETE", path)).json == {
        "id": made.json["id"], "type": "message_batch_deleted",
    }  # fmt: skip
    assert (await ask(rig, "GET", path)).status == 404
    assert folder(rig) == []


async def test_a_cancelled_batch_sends_no_line(start: Start) -> None:
    rig = await start(terms=TWO)
    file = (await upload(rig, line("a"))).json["id"]
    asked = {"input_file_id": file, "endpoint": "/v1/chat/completions"}
    path = f"/v1/batches/{(await ask(rig, 'POST', '/v1/batches', asked)).json['id']}"
    in_use = await ask(rig, "DELETE", f"/v1/files/{file}")
    assert (in_use.status, in_use.json["error"]["code"]) == (409, "file_in_use")
    assert (await ask(rig, "POST", f"{path}/cancel")).json["status"] == "cancelling"
    assert (await ask(rig, "POST", f"{path}/cancel")).json["status"] == "cancelling"
    await run_all(rig)
    assert (await ask(rig, "GET", path)).json["status"] == "cancelled"
    assert len(rig.sim.log) == 0


async def test_without_keys_all_clients_share_one_owner(rig: Rig) -> None:
    file = (await upload(rig, line("a"), key="")).json["id"]
    asked = {"input_file_id": file, "endpoint": "/v1/chat/completions"}
    batch = (await ask(rig, "POST", "/v1/batches", asked, key="")).json["id"]
    await run_all(rig)
    done = (await ask(rig, "GET", f"/v1/batches/{batch}", key="other")).json
    assert done["request_counts"] == {"total": 1, "completed": 1, "failed": 0}


async def test_switched_off_there_is_nothing(start: Start) -> None:
    rig = await start("[gateway.batches]\non = false\n", terms=TWO)
    for path in ("/v1/files", "/v1/batches", "/v1/messages/batches"):
        assert (await ask(rig, "GET", path)).status == 404
    assert (await upload(rig, line("a"))).status == 404
    assert not (rig.data / "batches").exists()


# The gateway's own caller


async def test_only_the_secret_sends_lines_for_a_key(start: Start) -> None:
    rig = await start(terms={"me": KeyTerms(name="me")})
    key = rig.state.served.snapshot.keys[0].id
    body = {"model": "lab/plain", "messages": SAY, "max_tokens": 2}

    async def status(shown: str) -> int:
        got = await ask(
            rig, "POST", "/v1/chat/completions", body, "", authorization=f"Bearer {shown}"
        )
        return got.status

    assert await status(credential(SECRET, key)) == 401  # nobody may, unless it was handed over
    rig.state.inner = InnerCaller(SECRET, "127.0.0.1")
    assert await status(credential(SECRET, key)) == 200
    for wrong in (
        credential(SECRET[:-1], key), credential(SECRET + "x", key), credential("", key),
        credential(SECRET, ""), credential(SECRET, "someone"), credential(SECRET, key + "x"),
        SECRET, f"lightgate-batch.{SECRET}",
    ):  # fmt: skip
        assert await status(wrong) == 401, wrong
    for method, path in (("GET", "/v1/models"), ("GET", "/v1/files"), ("POST", "/v1/batches")):
        shown = credential(SECRET, key)
        got = await ask(rig, method, path, b"{}", "", authorization=f"Bearer {shown}")
        assert got.status == 401, path


def test_the_secret_is_good_on_this_machine_alone() -> None:
    inner = InnerCaller(SECRET, "10.0.0.5")
    shown = credential(SECRET, "k").encode()
    for peer in ("127.0.0.1:9", "::1:9", "[::1]:9", "10.0.0.5:9"):
        assert inner.owner_of(shown, peer) == "k", peer
    for peer in ("10.0.0.6:9", "192.168.1.2:9", "127.0.0.1.evil:9", ":9"):
        assert inner.owner_of(shown, peer) is None, peer
    env = {"LIGHTGATE_BATCH_SECRET": SECRET}
    assert InnerCaller.of(env, "h") is not None
    assert env == {}
    assert InnerCaller.of(env, "h") is None


async def test_a_line_gives_way_to_clients(start: Start) -> None:
    rig = await start()
    rig.state.inner = InnerCaller(SECRET, "127.0.0.1")
    body = {"model": "lab/plain", "messages": SAY, "max_tokens": 2}

    async def sent() -> Answer:
        shown = f"Bearer {credential(SECRET, '')}"
        return await ask(rig, "POST", "/v1/chat/completions", body, "", authorization=shown)

    assert (await sent()).status == 200
    form_ = rig.state.learned.forms.form("lab/plain")
    form_.limit.refused(5, rig.state.now_ns())  # it takes four
    form_.in_flight = 3
    refused = await sent()
    assert (refused.status, refused.json["error"]["code"]) == (429, "no_spare_room")
    assert refused.headers["retry-after"] == "1"
    client = await ask(rig, "POST", "/v1/chat/completions", body, "")
    assert client.status == 200  # nobody else is held back
    form_.in_flight, form_.curve.easy = 1, 8
    assert (await sent()).status == 200
    rig.state.load.lag_ns = 20_000_000
    assert (await sent()).status == 429


# Limits


def test_so_many_files_come_in_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk, "AT_ONCE", 6)
    made: Any = SimpleNamespace(_coming=Counter(), _store=BatchStore(Path("nowhere")))
    ends: list[Any] = []

    def begin(owner: str) -> bool:
        upload: Any = SimpleNamespace(begin=lambda _path, over: ends.append(over))
        try:
            desk.BatchDesk._begin(made, upload, owner)
        except Refusing as refusing:
            refusal = refusing.refusal
            assert (refusal.status, refusal.code, refusal.retry_after_s) == (429, "uploads", 5.0)
            return False
        return True

    assert [begin("a") for _ in range(desk.AT_ONCE_PER_KEY + 1)] == [True] * 4 + [False]
    assert [begin("b"), begin("c"), begin("d")] == [True, True, False]
    ends[0]()
    assert begin("d")
    for end in ends[1:]:
        end()
    assert made._coming == {}


@pytest.mark.parametrize(
    ("count", "repeated"), [(b"0", False), (b"1", True), (b"x", False), (None, False)]
)
async def test_a_client_says_that_it_asks_again(count: bytes | None, repeated: bool) -> None:
    told: list[bool] = []

    class Store:
        def add_job(self, job: Any, _terms: Any, *, repeated: bool, lines: Any) -> Any:
            told.append(repeated)
            return SimpleNamespace(document=lambda: {"id": job})

    async def in_thread(work: Any) -> Any:
        return work()

    made: Any = SimpleNamespace(_store=Store(), _terms=None, _in_thread=in_thread)
    inbound: Any = SimpleNamespace(header=lambda _: count)
    said: list[Any] = []
    reply: Any = SimpleNamespace(whole=lambda *facts: said.append(facts))
    job: Any = "j"
    await desk.BatchDesk._keep_job(made, inbound, reply, job)
    assert told == [repeated]
    assert said == [(200, b"content-type: application/json\r\n", b'{"id":"j"}')]


async def test_a_file_that_is_cut_while_it_is_sent_cuts_its_reply(tmp_path: Path) -> None:
    path = tmp_path / "file-1"
    path.write_bytes(b"x" * (desk.PIECE + 1))
    said: list[Any] = []

    class Sent:
        def start(self, status: int, _headers: bytes, *, length: int) -> None:
            said.append((status, length))

        def send(self, data: bytes) -> None:
            said.append(len(data))
            if cut:
                path.write_bytes(b"")

        async def drain(self) -> None:
            said.append("drain")

        def abort(self) -> None:
            said.append("abort")

        def finish(self) -> None:
            said.append("finish")

    file, reply = SimpleNamespace(id="file-1"), Sent()
    made: Any = SimpleNamespace(_store=SimpleNamespace(path=lambda _: path), _disk=None)
    size = desk.PIECE + 1
    for cut in (False, True):
        said.clear()
        await desk.BatchDesk._send_file(made, reply, file, b"")  # type: ignore[arg-type]
        rest = ["abort"] if cut else [1, "drain", "finish"]
        assert said == [(200, size), desk.PIECE, "drain", *rest]
    path.unlink()
    with pytest.raises(Refusing) as refusing:
        await desk.BatchDesk._send_file(made, reply, file, b"")  # type: ignore[arg-type]
    assert refusing.value.refusal.status == 404
