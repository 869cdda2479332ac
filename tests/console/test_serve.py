from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from typing import TYPE_CHECKING

import msgspec
import psutil
import pytest

from lightgate.config.load import parse_config
from lightgate.console.serve import remake_ledger
from lightgate.gateway.process.logs import CONSOLE_SECRET_ENV
from lightgate.gateway.served.resolve import make_snapshot
from lightgate.gateway.served.snapshot import put_snapshot
from lightgate.ledger.locate import LEDGER_ENV, LedgerPlace
from lightgate.ledger.store.keys import KeyTerms, new_key, read_keys

if TYPE_CHECKING:
    from pathlib import Path

    from console.conftest import Traffic


async def begin(data: Path, *args: str, **env: str) -> asyncio.subprocess.Process:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("LIGHTGATE")}
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "lightgate.console", "--data", str(data), "--port", "0", *args,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**clean, "PYTHONWARNINGS": "always::ResourceWarning", **env},
    )  # fmt: skip


async def ready_port(process: asyncio.subprocess.Process) -> int:
    assert process.stdout is not None
    facts = json.loads(await process.stdout.readline())
    assert facts["ready"] is True
    return int(facts["port"])


async def status(port: int, path: str, header: str = "") -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(
        f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n{header}connection: close\r\n\r\n".encode()
    )
    answer = await reader.read()
    writer.close()
    return int(answer.split()[1])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_it_ships_and_ends_with_everything_in_the_ledger(
    tmp_path: Path, traffic: Traffic, number: signal.Signals
) -> None:
    process = await begin(tmp_path)
    async with asyncio.timeout(100):
        port = await ready_port(process)
        while await status(port, "/health/ready") != 200:
            await asyncio.sleep(0.02)
        traffic(4)
        traffic.close()  # its writer is gone: the journal is finished and removed
        process.send_signal(number)
        _, err = await process.communicate()
    assert process.returncode == 0
    assert b"Traceback" not in err
    assert b"Warning" not in err
    assert list((tmp_path / "journal").iterdir()) == []


async def test_it_ends_with_its_parent(tmp_path: Path) -> None:
    process = await begin(tmp_path, LIGHTGATE_ENDS_WITH_PARENT="1")
    async with asyncio.timeout(100):
        await ready_port(process)
        assert process.stdin is not None
        process.stdin.close()
        assert await process.wait() == 0


async def test_alone_it_does_not_need_a_parent(tmp_path: Path) -> None:
    process = await begin(tmp_path)
    async with asyncio.timeout(100):
        port = await ready_port(process)
        assert process.stdin is not None
        process.stdin.close()
        assert await status(port, "/health/live") == 200
        process.terminate()
        await process.communicate()


async def test_a_secret_lets_it_listen_for_others(tmp_path: Path) -> None:
    secret = "a secret that is long"
    process = await begin(tmp_path, "--host", "0.0.0.0", **{CONSOLE_SECRET_ENV: secret})
    async with asyncio.timeout(100):
        port = await ready_port(process)
        assert await status(port, "/metrics") == 401
        assert await status(port, "/health/live") == 200
        assert await status(port, "/metrics", f"authorization: Bearer {secret}\r\n") == 200
        assert not any(secret in word for word in psutil.Process(process.pid).cmdline())
        process.terminate()
        _, err = await process.communicate()
    assert secret.encode() not in err


async def refusal(process: asyncio.subprocess.Process) -> tuple[int | None, str]:
    async with asyncio.timeout(100):
        out, err = await process.communicate()
    assert out == b""
    return process.returncode, err.decode()


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "example.com"])
async def test_without_a_secret_it_is_for_this_machine_alone(tmp_path: Path, host: str) -> None:
    code, said = await refusal(await begin(tmp_path, "--host", host))
    assert code == 3
    assert f"does not listen on {host} without a secret" in said
    assert CONSOLE_SECRET_ENV in said


async def test_a_port_in_use(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, said = await refusal(await begin(tmp_path, "--port", str(port)))
    assert code == 1
    assert f"Port {port} on 127.0.0.1 is in use" in said


async def test_a_broken_configuration(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text("[ledger]\ncolour = 1\n")
    code, said = await refusal(await begin(tmp_path, "--config", str(tmp_path / "x.toml")))
    assert code == 3
    assert "ledger.colour" in said


async def test_a_ledger_whose_server_is_away_is_said_without_its_password(tmp_path: Path) -> None:
    """The console serves all the same: journals are kept, and it says what is wrong."""
    url = "postgresql://me:CANARY-word@127.0.0.1:1/none"
    process = await begin(tmp_path, **{LEDGER_ENV: url})
    async with asyncio.timeout(100):
        port = await ready_port(process)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        said = b""
        while b"is away" not in said:
            writer.write(b"GET /health/ready HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
            said = await reader.readuntil(b"}")
            await asyncio.sleep(0.02)
        assert b" 503 " in said
        writer.close()
        process.terminate()
        _, err = await process.communicate()
    assert process.returncode == 0
    assert b"The ledger's PostgreSQL at 127.0.0.1:1 is away: Connection refused." in err
    assert b"CANARY" not in err + said


async def test_a_ledger_that_is_none_is_refused_without_its_password(tmp_path: Path) -> None:
    code, said = await refusal(await begin(tmp_path, **{LEDGER_ENV: "mysql://me:CANARY@x/y"}))
    assert code not in {0, None}
    assert "CANARY" not in said


@pytest.mark.parametrize("comes", [True, False])
def test_a_ledger_is_made_anew_with_the_keys_of_a_snapshot_that_comes_back(
    tmp_path: Path, comes: bool
) -> None:
    """Where the folder was deleted, a worker writes the snapshot again in a moment."""
    record = new_key(KeyTerms(name="kept"))[1]
    made = msgspec.structs.replace(make_snapshot(parse_config(""), (), {}), keys=(record,))
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if comes and len(pauses) == 3:
            put_snapshot(tmp_path, made)

    place = LedgerPlace("sqlite", tmp_path)
    remake_ledger(place, pause)
    assert len(pauses) == (3 if comes else 30)
    with place.open() as ledger, ledger.reading() as connection:
        assert read_keys(connection) == ((record,) if comes else ())
