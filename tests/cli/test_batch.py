"""`lightgate batch run` as a user meets it, against the simulator."""

from __future__ import annotations

import asyncio
import io
import json
import signal
import sqlite3
from collections import Counter
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
import pytest

from lightgate.batch.summary import BatchSummary
from lightgate.cli.batch import _exit_code, command, cost_sentence
from lightgate.cli.batch_run import count_lines, deadline_of, progress_line
from lightgate.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from cli.conftest import Run, Serve

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "batch.md"
WORLD = """
name = "made"
title = "Two engines"
source = "made for this test"
[providers.lab]
slots = 8
[providers.lab.models.m]
exact = { ttft_ms = 5, gap_ms = 0.2 }
price = { input = 1.0, output = 4.0 }
[providers.claude]
dialect = "anthropic"
[providers.claude.models.m]
exact = { ttft_ms = 5, gap_ms = 0.2 }
price = { input = 2.0, output = 8.0 }
"""


def write_file(folder: Path, count: int, tokens: int = 20) -> None:
    (folder / "world.toml").write_text(WORLD)
    urls = ("/v1/chat/completions", "/v1/responses", "/v1/messages")
    made: list[dict[str, Any]] = []
    for n in range(count):
        url = urls[n % 3]
        turn = {"role": "user", "content": f"Question {n}"}
        body: dict[str, Any] = {"model": "m", "max_tokens": tokens, "messages": [turn]}
        if url == "/v1/responses":
            body = {"model": "m", "max_output_tokens": tokens, "input": f"Question {n}"}
        made.append({"custom_id": f"q{n}", "method": "POST", "url": url, "body": body})
    lines = [json.dumps(one) for one in made]
    (folder / "in.jsonl").write_text("\n".join([*lines[:5], "{oops", *lines[5:]]) + "\n")


def results(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "in.results.jsonl").read_bytes().splitlines()]


async def test_every_line_is_answered_in_its_own_words_and_paid(run: Run, tmp_path: Path) -> None:
    write_file(tmp_path, 60)
    ran = await run("batch", "run", "in.jsonl", "--world", "world.toml", "--json")
    assert ran.code == 1  # one line is wrong
    assert "with --retry-failed takes the failed lines again" in ran.err
    said = json.loads(ran.out)
    assert (said["answered"], said["failed"], said["open"]) == (60, 1, 0)
    found = results(tmp_path)
    assert Counter(one["custom_id"] for one in found) == Counter(f"q{n}" for n in range(60))
    kinds = {int(one["custom_id"][1:]) % 3: one["response"]["body"] for one in found}
    assert kinds[0]["object"] == "chat.completion"
    assert kinds[1]["object"] == "response"
    assert kinds[2]["type"] == "message"
    (error,) = (tmp_path / "in.errors.jsonl").read_text().splitlines()
    assert json.loads(error)["error"]["line"] == 6
    assert {lane["target"] for lane in said["targets"] if lane["answered"]} == {"lab/m", "claude/m"}
    base = sqlite3.connect(tmp_path / "lightgate-data" / "ledger.sqlite")
    paid = base.execute(
        "SELECT count(*), sum(cost_nano), min(source) FROM attempt_notes"
    ).fetchone()
    base.close()
    assert paid == (60, round(said["cost_usd"] * 1e9), "batch")
    again = await run("batch", "run", "in.jsonl", "--world", "world.toml")
    assert again.out.startswith("60 of 61 lines answered")  # no table: nothing was sent
    assert len(results(tmp_path)) == 60
    other = ("--world", "world.toml", "--out", "other.jsonl", "--max-cost", "0.0000001")
    short = await run("batch", "run", "in.jsonl", *other)
    assert "The same command with a larger --max-cost goes on with them." in short.err
    assert (tmp_path / "other.errors.jsonl").exists()  # errors of two jobs do not meet


async def test_a_job_that_is_killed_and_interrupted_goes_on_and_pays_each_line_once(
    start: Callable[..., Awaitable[asyncio.subprocess.Process]], run: Run, tmp_path: Path
) -> None:
    write_file(tmp_path, 250, tokens=600)
    options = ("batch", "run", "in.jsonl", "lab", "--world", "world.toml")

    async def until(count: int, number: signal.Signals) -> tuple[int | None, bytes]:
        process = await start(*options)
        out = tmp_path / "in.results.jsonl"
        while not out.exists() or out.read_bytes().count(b"\n") < count:
            await asyncio.sleep(0.02)
        process.send_signal(number)
        _, err = await process.communicate()
        return process.returncode, err

    await until(10, signal.SIGKILL)
    code, err = await until(30, signal.SIGINT)
    assert code == 130
    assert b"finishing" in err
    assert b"The same command goes on with them." in err
    before = len(results(tmp_path))
    assert 30 <= before < 250
    said = json.loads((await run(*options, "--json")).out)
    assert (said["answered"], said["failed"], said["resent"]) == (250, 1, 0)
    assert said["requests"] == 250 - before
    found = Counter(one["custom_id"] for one in results(tmp_path))
    assert found == Counter(f"q{n}" for n in range(250))
    base = sqlite3.connect(tmp_path / "lightgate-data" / "ledger.sqlite")
    (paid,) = base.execute("SELECT sum(cost_nano) FROM attempt_notes").fetchone()
    base.close()
    assert paid == round(said["cost_usd"] * 1e9)


async def test_what_cannot_be_meant_is_said(run: Run, tmp_path: Path) -> None:
    write_file(tmp_path, 3)
    (tmp_path / "empty.jsonl").touch()
    for words, said in (
        (("none.jsonl",), "There is no file none.jsonl."),
        ((".",), ". is a folder."),
        (("empty.jsonl", "a=http://x/v1#m"), "empty.jsonl is empty."),
        (("in.jsonl", "a=http://x/v1#m", "--max-cost", "0"), "no number of dollars above 0"),
        (("in.jsonl", "a=http://x/v1#m", "--quiet-hours", "22-6"), "a time from 00:00 to 23:59"),
        (("in.jsonl", "a=http://x/v1#m", "--deadline", "2020-01-01"), "also like 06:00"),
        (("in.jsonl",), "Name a target."),
        (("in.jsonl", "a=http://x/v1#m", "--out", "in.jsonl"), "must be three files"),
        (("in.jsonl", "a=http://x/v1#m", "--max-cost", "5"), "no price per token is known"),
        (("in.jsonl", "a=http://x/v1#m", "--quiet-hours", "22"), "are no hours"),
        (("in.jsonl", "a=http://x/v1#m", "--deadline", "soon"), "is no duration"),
    ):
        ran = await run("batch", "run", *words)
        assert ran.code == 2
        assert said in ran.err


async def test_a_gateway_gets_lines_as_they_are_and_says_what_they_cost(
    run: Run, serving: Serve, tmp_path: Path
) -> None:
    write_file(tmp_path, 6)
    asked: list[bytes] = []
    part = {"type": "text", "text": "Yes."}
    bodies: dict[bytes, dict[str, Any]] = {
        b"chat": {"choices": [{"message": {"content": "Yes."}, "finish_reason": "stop"}]},
        b"responses": {
            "object": "response",
            "status": "completed",
            "output": [{"type": "message", "content": [{**part, "type": "output_text"}]}],
        },
        b"messages": {"type": "message", "content": [part], "stop_reason": "end_turn"},
    }

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            size = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            body = json.loads(await reader.readexactly(size))
            path = head.split(b" ")[1]
            asked.append(path + b" " + body["model"].encode())
            said = json.dumps(bodies[path.split(b"/")[2]]).encode()
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n")
            writer.write(b"x-lightgate-cost-usd: 0.0025\r\ncontent-length: %d\r\n\r\n" % len(said))
            writer.write(said)

    async with serving(answer) as port:
        url = f"http://127.0.0.1:{port}"
        ran = await run("batch", "run", "in.jsonl", "--gateway", url, "alias", "--json")
    told = json.loads(ran.out)
    paths = {b"/v1/chat/completions alias", b"/v1/responses alias", b"/v1/messages alias"}
    assert set(asked) == paths
    assert (
        told["answered"] >= 2
    )  # those in chat's words: the others were answered in the wrong ones
    assert told["cost_usd"] == pytest.approx(0.0025 * told["answered"])
    assert not (tmp_path / "lightgate-data").exists()


async def test_a_target_that_nobody_serves_is_exit_code_4(run: Run, tmp_path: Path) -> None:
    write_file(tmp_path, 3)
    ran = await run("batch", "run", "in.jsonl", "a=http://127.0.0.1:1/v1#m", "--no-ledger")
    assert ran.code == 4
    assert "3 lines are open" in ran.err


def test_lines_are_counted_without_the_blank_ones() -> None:
    assert count_lines(io.BytesIO(b"a\n\n  \nb\n")) == 2
    assert count_lines(io.BytesIO(b"a\nb")) == 2
    assert count_lines(io.BytesIO(b"")) == 0


def test_a_deadline_is_the_next_such_time_or_a_duration() -> None:
    now = datetime(2026, 5, 1, 22, 30).astimezone()
    hour = 3600 * 10**9
    assert deadline_of("06:00", now, 0) == 7.5 * hour
    assert deadline_of("23:00", now, 0) == hour / 2
    assert deadline_of("8h", now, 5) == 8 * hour + 5
    assert deadline_of(None, now, 5) is None
    assert deadline_of("22:30", now, 0) == timedelta(days=1).total_seconds() * 10**9
    with pytest.raises(UsageError, match="is no time"):
        deadline_of("25:00", now, 0)


def test_the_line_of_progress(tmp_path: Path) -> None:
    from batch.desk import Desk, Made, prompts

    summary = Desk(tmp_path, prompts(10), Made("quick")).run(until_s=1.5)
    line = progress_line(summary)
    assert line.startswith("8/10 lines · 0 failed · ")
    assert "in flight: quick 0" in line
    assert "$0.000008 so far" in line


def test_lines_without_a_price_are_not_called_free(tmp_path: Path) -> None:
    from batch.desk import Desk, Made, prompts

    summary = Desk(tmp_path, prompts(10), Made("quick")).run(until_s=1.5)
    assert cost_sentence(summary) == "All lines together cost 0.000008 dollars."
    some = msgspec.structs.replace(summary, unpriced=1)
    assert cost_sentence(some) == (
        "What 1 line cost is not known: there is no price for the target."
        " The others cost 0.000008 dollars."
    )
    none = msgspec.structs.replace(summary, unpriced=10, cost_usd=Decimal(0))
    assert cost_sentence(none).startswith("What 10 lines cost is not known")
    assert "0.00" not in cost_sentence(none)


def test_the_guide_has_a_row_for_every_option() -> None:
    text = GUIDE.read_text("utf-8")
    run = command.commands["run"]
    for param in run.params:
        if isinstance(param, click.Option):
            names = ", ".join(f"`{name}`" for name in (*param.opts, *param.secondary_opts))
            assert f"| {names} | {param.help} |" in text


async def test_by_cost_says_which_targets_are_taken_as_free(run: Run, tmp_path: Path) -> None:
    write_file(tmp_path, 3)
    world = WORLD.replace("price = { input = 2.0, output = 8.0 }\n", "")
    (tmp_path / "world.toml").write_text(world)
    ran = await run("batch", "run", "in.jsonl", "--world", "world.toml", "--by", "cost")
    assert "no price per token is known for claude/m: taken as free." in ran.err


async def test_a_model_that_a_gateway_lacks_is_the_error_of_its_line(
    run: Run, serving: Serve, tmp_path: Path
) -> None:
    turn = [{"role": "user", "content": "Hi"}]
    lines = [json.dumps({"model": name, "messages": turn}) for name in ("none", *"abcdef")]
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    fault = {"message": "The model 'none' is not served here.", "code": "model_not_found"}
    good = {"choices": [{"message": {"content": "Yes."}, "finish_reason": "stop"}]}

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            size = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            lacks = json.loads(await reader.readexactly(size))["model"] == "none"
            said = json.dumps({"error": fault} if lacks else good).encode()
            writer.write(b"HTTP/1.1 404 Not Found\r\n" if lacks else b"HTTP/1.1 200 OK\r\n")
            writer.write(b"content-type: application/json\r\n")
            writer.write(b"content-length: %d\r\n\r\n" % len(said) + said)

    async with serving(answer) as port:
        url = f"http://127.0.0.1:{port}"
        ran = await run("batch", "run", "in.jsonl", "--gateway", url, "--json")
    told = json.loads(ran.out)
    assert (ran.code, told["answered"], told["failed"], told["open"]) == (1, 6, 1, 0)
    (error,) = (tmp_path / "in.errors.jsonl").read_text().splitlines()
    assert json.loads(error)["response"]["status_code"] == 404


@pytest.mark.parametrize(
    ("stopped", "more"),
    [
        ("cost", " with a larger --max-cost"),
        ("credentials", " with the right key (of NAME=URL#MODEL: --key-env VAR)"),
        ("unreachable", ""),
    ],
)
def test_what_a_stopped_job_needs_to_go_on_is_said(
    stopped: str, more: str, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = BatchSummary(
        lines=3, answered=0, failed=0, open=3, copied=0, resent=0, requests=3, retries=0, refused=0,
        seconds=0.1, tokens_in=0, tokens_out=0, tokens_per_s=0.0, cost_usd=Decimal(0), unpriced=0,
        eta_s=None, targets=(), stopped=stopped, reason="It was refused.",
    )  # fmt: skip
    _exit_code(summary)
    assert capsys.readouterr().err == (
        "lightgate: 3 lines are open. It was refused.\n"
        f"  The same command{more} goes on with them.\n"
    )
