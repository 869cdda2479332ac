"""`lightgate explain`: from the gateway, else from the ledger; `report --predictions`."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
import pytest

from ledger.notes import T0, attempt_note, exchange_note
from lightgate.cli import explain
from lightgate.cli import report as report_verb
from lightgate.cli.main import main
from lightgate.gateway.process.lock import STATE, SupervisorState
from lightgate.ledger.store import schema
from lightgate.ledger.store.store import Ledger

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CANDIDATE = {
    "target": "lab/s1",
    "ttft_ms": 120.4,
    "end_ms": 900.0,
    "samples": 12,
    "age_s": 3.25,
    "in_flight": 2,
    "failures": 0.012,
    "cost_usd": 0.00012,
    "value": 0.9,
    "why": "taken: the best value for the policy",
}
SECOND = CANDIDATE | {"target": "lab/s2", "age_s": None, "cost_usd": None, "value": None}
PREDICTED = {
    "plan": "lab/s1 > lab/s2 (by form)",
    "predicted_ttft_ns": 80_000_000,
    "predicted_low_ns": 60_000_000,
    "predicted_high_ns": 120_000_000,
    "in_flight": 2,
}


class Told(BaseHTTPRequestHandler):
    """A gateway that knows one request; each answer is the next of a list."""

    answers: ClassVar[list[tuple[int, Any]]] = []
    asked: ClassVar[list[tuple[str, str | None]]] = []

    def do_GET(self) -> None:
        self.asked.append((self.path, self.headers["authorization"]))
        status, body = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name in the library
        """Say nothing on stderr."""


@pytest.fixture
def gateway() -> Iterator[str]:
    Told.answers, Told.asked = [], []
    server = HTTPServer(("127.0.0.1", 0), Told)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ledger with one predicted exchange, where no configuration is found."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("LIGHTGATE_CONFIG", raising=False)
    monkeypatch.delenv("LIGHTGATE_KEY", raising=False)
    folder = tmp_path / "d"
    folder.mkdir()
    exchange, attempt = exchange_note("x-1", **PREDICTED), attempt_note("x-1")
    with Ledger.open("sqlite", folder) as ledger, ledger.writing() as connection:
        ledger.insert(connection, schema.exchange_notes, [exchange.row(1)])
        ledger.insert(connection, schema.attempt_notes, [attempt.row()])
    return folder


def told(**changes: Any) -> dict[str, Any]:
    exchange = {
        "model_asked": "fast",
        "policy": "fastest",
        "plan": "lab/s1 > lab/s2 (by form)",
        "winner": "lab/s1",
        "outcome": "ok",
        "predicted_ttft_ms": 120.4,
        "predicted_low_ms": 90.0,
        "predicted_high_ms": 200.0,
    }
    attempt = {"seq": 0, "target": "lab/s1", "outcome": "ok", "ttft_plan_ms": 131.0}
    found = {"exchange": exchange, "attempts": [attempt], "candidates": [CANDIDATE, SECOND]}
    return found | changes


def test_the_table_has_a_row_for_each_candidate(
    gateway: str, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    del data
    Told.answers = [(200, told())]

    assert main(["explain", "r 1", "--url", f"{gateway}/v1"]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "fast by fastest: lab/s1 > lab/s2 (by form)"
    assert "expected in 120 ms (80 % in 90 to 200); it came after 131 ms." in lines[1]
    assert lines[3].split()[:9] == (
        ["lab/s1", "120", "900", "12", "3.25", "2", "1.2%", "0.00012", "0.9"]
    )
    assert lines[3].endswith("taken: the best value for the policy")
    assert lines[4].split()[4] == lines[4].split()[7] == lines[4].split()[8]  # dashes
    assert Told.asked == [("/v1/requests/r%201", None)]


def test_the_gateway_of_the_data_folder_is_asked_at_the_port_that_it_took(
    gateway: str, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Told.answers = [(200, told())]
    port = int(gateway.rpartition(":")[2])
    state = SupervisorState(
        pid=1, version="0", started="", host="0.0.0.0", port=port, console_host="", console_port=0
    )
    (data / STATE).write_bytes(msgspec.json.encode(state))

    assert main(["explain", "x-1", "--data", str(data)]) == 0

    said = capsys.readouterr()
    assert "taken: the best value for the policy" in said.out
    assert said.err == ""


@pytest.mark.parametrize(
    ("outcome", "said"), [("ok", "the answer came whole"), ("cut", "before the attempt was over")]
)
def test_a_first_token_that_was_not_seen(
    gateway: str, data: Path, capsys: pytest.CaptureFixture[str], outcome: str, said: str
) -> None:
    del data
    attempt = {"seq": 0, "target": "lab/s1", "outcome": outcome, "ttft_plan_ms": None}
    Told.answers = [(200, told(attempts=[attempt]))]
    assert main(["explain", "r", "--url", gateway]) == 0
    assert said in capsys.readouterr().out


def test_last_is_the_newest_request_that_is_neither_demo_nor_probe(
    gateway: str, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    newer = exchange_note("x-2", wall_ns=T0 + 5, **PREDICTED)
    demo = exchange_note("x-3", wall_ns=T0 + 9, tags="demo", **PREDICTED)
    with Ledger.open("sqlite", data) as ledger, ledger.writing() as connection:
        probe = exchange_note("x-4", wall_ns=T0 + 9, **PREDICTED | {"policy": "probe"})
        rows = [note.row(1) for note in (newer, demo, probe)]
        ledger.insert(connection, schema.exchange_notes, rows)
    Told.answers = [(200, told())]
    assert main(["explain", "last", "--url", gateway, "--data", str(data)]) == 0
    assert Told.asked == [("/v1/requests/x-2", None)]
    assert capsys.readouterr().err == "The newest request is x-2.\n"


def test_without_a_request_there_is_no_last_one(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = data / "empty"
    empty.mkdir()
    assert main(["explain", "last", "--data", str(empty)]) == 1
    assert "no request in the ledger yet" in capsys.readouterr().err


def test_another_worker_is_asked_for_the_candidates(
    gateway: str,
    data: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    del data
    monkeypatch.setenv("TEAM", "sk-1")
    Told.answers = [(404, {}), (200, told(candidates=[])), (200, told())]

    assert main(["explain", "r", "--url", gateway, "--key-env", "TEAM", "--json"]) == 0

    assert [one["target"] for one in json.loads(capsys.readouterr().out)["candidates"]] == [
        "lab/s1",
        "lab/s2",
    ]
    assert Told.asked == [("/v1/requests/r", "Bearer sk-1")] * 3


def test_a_gateway_with_keys_wants_one(
    gateway: str, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    del data
    Told.answers = [(401, {})]

    assert main(["explain", "r", "--url", gateway]) == 5
    assert "virtual key" in capsys.readouterr().err


def test_an_older_request_is_told_from_the_ledger(
    gateway: str, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Told.answers = [(404, {})]

    assert main(["explain", "x-1", "--url", gateway, "--data", str(data)]) == 0

    said = capsys.readouterr().out
    assert "fast by ordered: lab/s1 > lab/s2 (by form)" in said
    assert "expected in 80 ms (80 % in 60 to 120)" in said
    assert "not in the ledger" in said


def test_an_unknown_request_is_a_failure(
    gateway: str, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Told.answers = [(404, {})]

    assert main(["explain", "nobody", "--url", gateway, "--data", str(data)]) == 1
    assert "No request with the id nobody is known" in capsys.readouterr().err


class Clock(datetime):
    """A minute after the exchange of the ledger."""

    @classmethod
    def now(cls, tz: Any = None) -> Clock:
        return cls.fromtimestamp(T0 / 1e9 + 60, tz or UTC)


def test_predictions_are_reported_from_the_ledger(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(report_verb, "datetime", Clock)

    assert main(["report", "--predictions", "--json", "--data", str(data)]) == 0

    [row] = json.loads(capsys.readouterr().out)["rows"]
    first = attempt_note("x-1")
    assert first.first is not None
    assert first.plan is not None
    assert (row["target"], row["load"], row["n"]) == ("lab/s1", "all", 1)
    assert row["ratio_p50"] == pytest.approx((first.first - first.plan) / 80_000_000)

    assert main(["report", "--predictions", "--data", str(data)]) == 0
    assert "lab/s1" in capsys.readouterr().out
    assert main(["report", "--predictions", "--last", "1s", "--data", str(data)]) == 0
    assert "No exchange of this time has a prediction" in capsys.readouterr().err
    assert main(["report", "--predictions", "--out", "x.html", "--data", str(data)]) == 2


@pytest.mark.parametrize(
    ("cost", "shown"), [(4.2e-05, "0.000042"), (1.6e-08, "0.000000016"), (0, "0"), (2.5, "2.5")]
)
def test_dollars_are_shown_without_an_exponent(cost: float, shown: str) -> None:
    assert shown in explain._cells(CANDIDATE | {"cost_usd": cost})
