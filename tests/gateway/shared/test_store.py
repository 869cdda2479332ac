"""A store that is frozen, gone, wrong or old: one sentence, and no request waits twice for it."""

from __future__ import annotations

import asyncio
import logging
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest
import trustme

from gateway.shared.test_counters import CENT, crowd, join, key
from lightgate.clock.source import SYSTEM
from lightgate.gateway.shared import store as store_module
from lightgate.gateway.shared.store import (
    PATIENCE_S,
    NodeId,
    SharedStore,
    StoreAway,
    _connection,
    _facts,
    _sentence,
    shown,
)
from redis_server import ROOT, RedisServer, free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from gateway.shared.conftest import Machine, Machines


@pytest.fixture
def own_server(redis: RedisServer) -> Iterator[RedisServer]:
    """A server that a test may freeze."""
    del redis  # it says where no program is there
    with RedisServer() as started:
        started.command("SET", "{lightgate}:epoch", "1")
        yield started
        started.thaw()


@pytest.fixture
async def old_server() -> AsyncIterator[str]:
    """A server that says that it is of version 5."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            if line.strip().upper() == b"INFO":
                info = b"redis_version:5.0.7\r\nmaxmemory_policy:noeviction\r\n"
                writer.write(b"$%d\r\n%b\r\n" % (len(info), info))
            elif line.strip().upper() == b"CLIENT":
                writer.write(b"+OK\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()


async def problem(url: str) -> str:
    store = SharedStore(url, "m", 0, SYSTEM.now_ns)
    store.lane()
    assert not await store.join()
    assert store.state == "away"
    await store.close()
    return store.problem


def waits(machine: Machine) -> bool:
    """Whether a request would wait for the store."""
    return machine.store.asked


async def test_a_frozen_server_delays_requests_by_one_time_out_and_then_not_at_all(
    machines: Machines, own_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = key(budget_usd=Decimal(1), rpm=1000)
    (one,) = machines(1, record, url=own_server.url)
    await join([one])
    assert await one.ask(record, CENT) == ""
    one.store.patience_s = PATIENCE_S
    own_server.freeze()
    assert await crowd([one], record, 5, nano_usd=CENT) == {"": 5}  # all wait together
    assert one.store.timeouts == 1
    assert "does not answer in time" in one.store.problem
    assert not waits(one)
    asked = asyncio.create_task(one.ask(record, CENT))
    await asyncio.sleep(0)
    assert asked.done()  # in the first turn of the loop: it did not wait
    own_server.thaw()
    one.store.patience_s = 10.0
    await join([one])
    assert not waits(one)  # it is told and heard, but for a minute no request waits for it
    assert await one.ask(record, CENT) == ""
    standing = one.counters.standing(record.id)
    assert standing is not None
    assert standing.held_nano == 8 * CENT
    later = SYSTEM.now_ns() + 61_000_000_000
    monkeypatch.setattr(one.store, "now_ns", lambda: later)
    assert waits(one)
    assert await crowd([one], record, 200, nano_usd=CENT) == {"": 92, "budget": 108}


async def test_a_store_that_is_lost_has_one_reason(
    own_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    """A question that is under way on another connection ends with it, for the same reason."""
    store = SharedStore(own_server.url, "m", 0, SYSTEM.now_ns)
    lane, _ = store.lane(), store.lane()
    assert await store.join()
    own_server.freeze()
    waiting = asyncio.create_task(lane.run("TIME", within_s=30))
    await asyncio.sleep(0)
    store.lost("It does not answer in time.")
    with pytest.raises(StoreAway) as failed:
        await waiting
    store.lost(failed.value.message)
    assert failed.value.message == "It does not answer in time."
    assert len([one for one in caplog.records if "is away" in one.message]) == 1
    await store.close()


async def test_a_server_without_memory_refuses_a_command_and_stays(own_server: RedisServer) -> None:
    store = SharedStore(own_server.url, "m", 0, SYSTEM.now_ns)
    lane = store.lane()
    assert await store.join()
    await lane.run("CONFIG", "SET", "maxmemory", "1")
    with pytest.raises(StoreAway) as failed:
        await lane.run("SET", "x", "y")
    assert failed.value.refused
    assert await lane.run("GET", "x") is None  # on the same connection
    await store.close()


async def test_a_server_that_is_killed_and_comes_back_empty_learns_everything_again(
    machines: Machines, own_server: RedisServer
) -> None:
    record = key(budget_usd=Decimal(1))
    (one,) = machines(1, record, url=own_server.url)
    await join([one])
    assert await crowd([one], record, 40, nano_usd=CENT) == {"": 40}
    await one.beat()
    own_server.stop()
    assert await crowd([one], record, 10, nano_usd=CENT) == {"": 10}  # nobody else is there
    assert one.store.timeouts == 0  # a closed connection is seen at once
    await one.beat()
    assert "cannot be reached" in one.store.problem
    own_server.start()
    own_server.command("SET", "{lightgate}:epoch", "1")
    await join([one])
    assert await crowd([one], record, 100, nano_usd=CENT) == {"": 50, "budget": 50}


async def test_a_reply_that_came_while_the_loop_was_busy_is_not_late() -> None:
    loop = asyncio.get_running_loop()

    async def waiting(reply: asyncio.Future[bytes]) -> bytes:
        return await reply

    came, never = loop.create_future(), loop.create_future()
    asked = asyncio.ensure_future(store_module._in_time(waiting(came), 0.05))
    loop.call_later(0.06, came.set_result, b"PONG")
    until = SYSTEM.now_ns() + 100_000_000
    while SYSTEM.now_ns() < until:  # both instants pass before the loop looks again
        pass
    assert await asked == b"PONG"
    with pytest.raises(TimeoutError):
        await store_module._in_time(waiting(never), 0.0)


@pytest.mark.parametrize(
    ("options", "login", "said"),
    [
        (("--requirepass", "right"), ":wrong@", "does not take the user or the password"),
        (("--requirepass", "right"), "", "wants a password"),
        (("--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru"), "",
         "set maxmemory-policy to noeviction"),
    ],
)  # fmt: skip
async def test_a_server_that_cannot_be_used_is_named_in_one_sentence_without_its_password(
    redis: RedisServer, options: tuple[str, ...], login: str, said: str,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    del redis
    with RedisServer(*options) as server, caplog.at_level(logging.WARNING):
        sentence = await problem(f"redis://{login}127.0.0.1:{server.port}")
    assert said in sentence
    assert sentence.endswith(".")
    assert sentence in caplog.text
    assert "wrong" not in caplog.text


@pytest.mark.parametrize(
    ("spoil", "mend", "said"),
    [
        (("CONFIG", "SET", "maxmemory", "1"), ("CONFIG", "SET", "maxmemory", "0"),
         "has no memory left."),
        (("REPLICAOF", "127.0.0.1", "1"), ("REPLICAOF", "NO", "ONE"),
         "is a replica, which takes no writes: name the primary."),
        (("ACL", "SETUSER", "default", "-hset"), ("ACL", "SETUSER", "default", "+hset"),
         "allows this user too little: the guide names the rights."),
        (("SET", "{lightgate}:members", "x"), ("DEL", "{lightgate}:members"),
         "has other data under names that begin with {lightgate}: use another database."),
    ],
)  # fmt: skip
async def test_a_server_that_takes_no_writes_is_named_once_and_joined_when_it_does(
    machines: Machines, own_server: RedisServer, caplog: pytest.LogCaptureFixture,
    spoil: tuple[str, ...], mend: tuple[str, ...], said: str,
) -> None:  # fmt: skip
    record = key(rpm=3200)
    (one,) = machines(1, record, url=own_server.url)
    await join([one])
    own_server.command(*spoil)
    caplog.clear()  # the log may be at this level already
    with caplog.at_level(logging.INFO):
        assert await one.ask(record) == ""  # a request that has to ask goes on
        for _ in range(4):
            await one.beat()
            assert (one.store.state, one.store.timeouts) == ("away", 0)
        assert [r.message for r in caplog.records] == [
            (
                f"The shared state is away: {own_server.url} {said}"
                " Requests go on with this machine's share."
            )
        ]
        own_server.command(*mend)
        await one.beat()
    assert one.store.state == "joined"
    assert caplog.records[-1].message == f"The shared state is joined: {own_server.url}"


async def test_the_rights_that_the_guide_names_are_enough(
    machines: Machines, own_server: RedisServer
) -> None:
    guide = (ROOT / "docs" / "guides" / "several-machines.md").read_text()
    (line,) = (line for line in guide.splitlines() if line.startswith("ACL SETUSER lightgate "))
    assert own_server.command(*line.replace("PASSWORD", "s3cret").split()) == b"+OK\r\n"
    record = key(budget_usd=Decimal(1), rpm=100)
    login = own_server.url.replace("//", "//lightgate:s3cret@")
    two = machines(2, record, url=login)
    await join(two)
    assert (await crowd(two, record, 8, nano_usd=CENT))[""] == 8
    for machine in two:
        await machine.live.leave()
        assert (machine.store.problem, machine.store.timeouts) == ("", 0)
    needed = [word for word in line.split() if word.startswith("+")]
    for word in needed:  # and none of them is too many
        own_server.command("ACL", "SETUSER", "lightgate", f"-{word[1:]}")
        assert "allows this user too little" in await problem(login), word
        own_server.command("ACL", "SETUSER", "lightgate", word)


async def test_an_old_server_and_no_server_are_named(old_server: str) -> None:
    assert "is version 5.0.7; Lightgate needs 6.2 or newer" in await problem(old_server)
    assert "cannot be reached" in await problem("redis://127.0.0.1:1")
    assert "cannot be reached" in await problem("redis://nowhere.invalid:6379")
    assert "not an address" in await problem("redis://127.0.0.1:port")


async def test_a_database_that_the_server_does_not_have_is_named(redis: RedisServer) -> None:
    assert "has no database of the number" in await problem(f"{redis.url}/99")


async def test_eviction_without_a_limit_of_memory_never_happens_and_is_taken(
    redis: RedisServer, machines: Machines
) -> None:
    redis.command("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    try:
        await join(machines(1))
    finally:
        redis.command("CONFIG", "SET", "maxmemory-policy", "noeviction")


async def test_tls_and_a_password(redis: RedisServer, tmp_path: Path) -> None:
    del redis
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    issued = authority.issue_cert("127.0.0.1")
    issued.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    issued.cert_chain_pems[0].write_to_path(str(tmp_path / "cert.pem"))
    names = {"cert-file": "cert", "key-file": "key", "ca-cert-file": "ca"}
    files = [word for n, f in names.items() for word in (f"--tls-{n}", str(tmp_path / f"{f}.pem"))]
    with RedisServer(
        "--tls-port", "0", "--tls-auth-clients", "no", "--requirepass", "s3cret", *files
    ) as server:
        port = free_port()
        login = f"rediss://:s3cret@127.0.0.1:{port}"
        server.ask_as("s3cret", "CONFIG", "SET", "tls-port", str(port))
        trusted = SharedStore(f"{login}?ssl_ca_certs={tmp_path / 'ca.pem'}", "m", 0, SYSTEM.now_ns)
        trusted.lane()
        assert await trusted.join(), trusted.problem
        await trusted.close()
        assert "that is not trusted" in await problem(login)  # a certificate nobody vouches for
        other = login.replace("127.0.0.1", "localhost")  # which the certificate does not name
        mine = f"ssl_ca_certs={tmp_path / 'ca.pem'}"
        assert "or of another name" in await problem(f"{other}?{mine}")
        for asked in (f"ssl_check_hostname=no&{mine}", "ssl_cert_reqs=none"):
            chosen = SharedStore(f"{other}?{asked}", "m", 0, SYSTEM.now_ns)
            chosen.lane()
            assert await chosen.join(), chosen.problem
            await chosen.close()
        both = "ssl_cert_reqs=none&ssl_check_hostname=yes"  # which is a contradiction
        assert "cannot be reached" in await problem(f"{other}?{both}")


async def test_a_server_of_a_cluster_that_keeps_our_names_elsewhere_is_named(
    redis: RedisServer, tmp_path: Path
) -> None:
    del redis
    clustered = ("--cluster-enabled", "yes", "--cluster-port")
    with RedisServer(
        *clustered, str(free_port()), "--cluster-config-file", str(tmp_path / "nodes.conf")
    ) as server:
        assert "has no server for names with {lightgate}" in await problem(server.url)
        server.command("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
        while b"cluster_state:ok" not in server.command("CLUSTER", "INFO"):
            await asyncio.sleep(0.01)
        whole = SharedStore(server.url, "m", 0, SYSTEM.now_ns)
        whole.lane()
        assert await whole.join(), whole.problem
        await whole.close()


def test_an_address_is_shown_without_its_secret() -> None:
    assert shown("rediss://user:secret@host:6380/2?password=x") == "rediss://host:6380"
    assert shown("unix:///run/redis.sock?password=x") == "unix:///run/redis.sock"
    assert "secret" not in shown("redis://:secret@[bad")


def test_a_machine_keeps_its_name(tmp_path: Path) -> None:
    name = NodeId(tmp_path).read()
    assert NodeId(tmp_path).read() == name
    assert (tmp_path / "node").stat().st_mode & 0o777 == 0o600
    other = tmp_path / "other"
    other.mkdir()
    assert NodeId(other).read() != name


async def test_what_machines_share_is_off_without_an_address(tmp_path: Path) -> None:
    assert SharedStore.of_process({}, tmp_path, 0, SYSTEM.now_ns) is None
    assert SharedStore.of_process({"LIGHTGATE_SHARED_URL": ""}, tmp_path, 0, SYSTEM.now_ns) is None


def test_the_name_of_a_machine_is_made_once_whatever_the_disk_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "node"
    path.write_text("a" * 40 + "\n")
    assert NodeId(tmp_path).read() == "a" * 32
    path.write_text("no name!")  # and it is in the way of another one
    assert NodeId(tmp_path).read() == "no name!"
    path.write_text("")
    made = NodeId(tmp_path).read()
    assert (len(made), made.isalnum()) == (16, True)
    assert len(NodeId(tmp_path / "nowhere").read()) == 16
    path.unlink()
    monkeypatch.setattr("os.urandom", lambda size: b"\xab" * size)
    assert NodeId(tmp_path).read() == path.read_text() == "ab" * 8


def named(kind: str, words: str = "") -> Exception:
    error: Exception = type(kind, (Exception,), {})(words)
    return error


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (named("TimeoutError"), "does not answer in time."),
        (named("OutOfMemoryError", "x"), "has no memory left."),
        (named("ResponseError", "NOREPLICAS of key"), "refused a command (NOREPLICAS)."),
        (named("ResponseError", "W" * 50), f"refused a command ({'W' * 40})."),
        (named("ResponseError"), "refused a command (error)."),
        (named("ResponseError", "Something secret"), "refused a command (error)."),
        (
            named("ResponseError", "The user executing the script can't run this command"),
            "allows this user too little: the guide names the rights.",
        ),
        (
            named("ResponseError", "Error running script: @user_script:9: -OOM command not"),
            "has no memory left.",
        ),
        (
            named("ResponseError", "Error running script: @user_script:9: -READONLY You can't"),
            "is a replica, which takes no writes: name the primary.",
        ),
        (
            named("ResponseError", "NOAUTH Authentication required."),
            "wants a password: put one into shared.url.",
        ),
        (
            named("MovedError", "10554 10.0.0.9:6379"),
            "is in a cluster that keeps names with {lightgate} at another server: name it.",
        ),
        (OSError("secret"), "cannot be reached."),
    ],
)
def test_a_sentence_about_what_went_wrong(error: Exception, said: str) -> None:
    assert _sentence(error, "redis://:p@h:7") == f"redis://h:7 {said}"


def test_facts_of_a_server_as_text_bytes_or_table() -> None:
    text = "# Server\r\nredis_version:7.2 \r\nmode:a:b\r\n"
    told = {"redis_version": "7.2", "mode": "a:b"}
    assert _facts(text) == _facts(text.encode()) == told
    assert _facts({"redis_version": 7.2}) == {"redis_version": "7.2"}


@pytest.mark.parametrize(
    "url", ["http://h:1", "redis://h:x", "redis://h:1/?db=x", "rediss://h?ssl_cert_reqs=x"]
)
def test_an_address_that_is_none_is_named(url: str) -> None:
    with pytest.raises(StoreAway, match="is not an address of a Valkey or Redis server"):
        _connection(url)


@pytest.mark.parametrize("error", [asyncio.CancelledError(), ValueError("x")])
async def test_a_command_that_is_given_up_takes_its_connection_with_it(
    monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """Its reply would be read as that of the next command."""
    closed: list[object] = []

    async def fails(*_: object) -> None:
        raise error

    lane = SharedStore("redis://127.0.0.1:1", "m", 0, SYSTEM.now_ns).lane()
    link = lane._link = object()  # type: ignore[assignment]
    monkeypatch.setattr(store_module, "_close", closed.append)
    monkeypatch.setattr(store_module, "_asked", fails)
    found = None
    try:
        await lane.run("GET", "x")
    except BaseException as raised:  # noqa: BLE001 - whatever it is
        found = raised
    assert found is error
    assert closed == [link]
    with pytest.raises(StoreAway, match="There is no connection"):
        await lane.run("GET", "x")
