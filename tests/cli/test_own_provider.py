"""`bench` and `doctor` send to an own provider what its table says, and show no secret of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli.test_doctor import STREAM

if TYPE_CHECKING:
    import asyncio
    from pathlib import Path

    from cli.conftest import Run, Serve

SECRETS = {
    "CORP_KEY": "canary/corp+key",
    "CORP_DOOR": "Basic canary-door",
    "AWS_ACCESS_KEY_ID": "AKIDCANARY",
    "AWS_SECRET_ACCESS_KEY": "canary-aws-secret",
    "AWS_SESSION_TOKEN": "canary-aws-session",
    "AWS_REGION": "eu-west-1",
}
CONFIG = """
[providers.corp]
base_url = "http://127.0.0.1:{port}/gw/v1"
api_key = "env:CORP_KEY"
auth = "query:key"
headers = {{ X-Door = "env:CORP_DOOR" }}
query = {{ api-version = "1" }}
quirks = {{ stream_usage = false, max_tokens_field = "max_completion_tokens" }}
[providers.signed]
base_url = "http://127.0.0.1:{port}/openai/v1"
auth = "sigv4"
"""


def written(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())


async def test_bench_and_doctor_honour_the_table(run: Run, serving: Serve, tmp_path: Path) -> None:
    heads: list[bytes] = []
    bodies: list[bytes] = []

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        size = head.lower().partition(b"content-length: ")[2].partition(b"\r")[0]
        heads.append(head)
        bodies.append(await reader.readexactly(int(size or b"0")))
        writer.write(STREAM)
        await writer.drain()

    file = tmp_path / "own.toml"
    async with serving(script) as port:
        file.write_text(CONFIG.format(port=port))
        load = ("--requests", "3", "--concurrency", "1", "--max-tokens", "4", "--out")
        for target in ("corp/m", "signed/m"):
            out = str(tmp_path / target.partition("/")[0])
            for verb in (("bench", target, *load, out), ("doctor", target)):
                done = await run(*verb, "--config", str(file), **SECRETS)
                assert done.code in {0, 7}, done.err
                assert "canary" not in done.out + done.err
    assert b"canary" not in written(tmp_path)
    corp = [number for number, head in enumerate(heads) if b"/gw/v1" in head]
    signed = [head for head in heads if b"/openai/v1" in head]
    assert len(corp) >= 4
    assert len(signed) >= 4
    for number in corp:
        line = b"POST /gw/v1/chat/completions?api-version=1&key=canary%2Fcorp%2Bkey HTTP/1.1\r\n"
        assert heads[number].startswith(line)
        assert b"\r\nX-Door: Basic canary-door\r\n" in heads[number]
        assert b"stream_options" not in bodies[number]
        assert b'"max_completion_tokens":' in bodies[number]
    for head in signed:
        assert b"\r\nauthorization: AWS4-HMAC-SHA256 Credential=AKIDCANARY/" in head
        assert b"/eu-west-1/bedrock/aws4_request" in head
        assert b"\r\nx-amz-security-token: canary-aws-session\r\n" in head
