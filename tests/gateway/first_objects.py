"""Objects of the gateway that have just been made; some of them need a running loop."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock

from lightgate.gateway.aside.aside import Aside
from lightgate.gateway.aside.turns import Turns
from lightgate.gateway.batches.desk import BatchDesk
from lightgate.gateway.batches.form_stream import FormStream
from lightgate.gateway.batches.upload import Upload
from lightgate.gateway.cache.disk import DiskCache
from lightgate.gateway.cache.follower import AnswerLog, SharedReader
from lightgate.gateway.cache.memory import MemoryCache, _Slot
from lightgate.gateway.cache.single_flight import SharedAnswer, SingleFlight
from lightgate.gateway.exchange.attempt import Attempt
from lightgate.gateway.exchange.cascade import Ahead, Hold
from lightgate.gateway.exchange.exchange import Exchange
from lightgate.gateway.exchange.journal import JournalWriter
from lightgate.gateway.exchange.load import Load
from lightgate.gateway.exchange.race import Race
from lightgate.gateway.exchange.state import Learned, SharedAnswers, State
from lightgate.gateway.exchange.stream import StreamAttempt
from lightgate.gateway.exchange.timers import Timers
from lightgate.gateway.exchange.whole import AssembledAttempt
from lightgate.gateway.http.app import Gateway
from lightgate.gateway.http.array import ArrayReply
from lightgate.gateway.http.ledger_reads import LedgerReads
from lightgate.gateway.http.shared import Shared
from lightgate.gateway.kept.store import ResponseStore
from lightgate.gateway.process.child import Backoff
from lightgate.gateway.process.lists import ListKeeper
from lightgate.gateway.process.logs import Redactor
from lightgate.gateway.process.probe import Prober
from lightgate.gateway.process.sharing import FormSharing
from lightgate.gateway.process.supervisor import Supervisor
from lightgate.gateway.runner.__main__ import RunnerProcess, _alone
from lightgate.gateway.runner.job_run import JobRun, RunnerTools
from lightgate.gateway.runner.results import LineTally, ResultFiles
from lightgate.gateway.runner.runner import BatchRunner
from lightgate.gateway.runner.sender import LineSender
from lightgate.gateway.runner.window import SendWindow
from lightgate.gateway.shared.answers import SharedAnswerStore
from lightgate.gateway.shared.live import LiveSharing
from lightgate.gateway.shared.pace import StorePace
from lightgate.gateway.shared.share import KeyShare, Minute
from lightgate.gateway.shared.store import SharedStore, StoreLane
from lightgate.route.form.forms import Forms
from lightgate.route.health.breaker import Rules
from lightgate.route.plan.plan import Plan, Step

if TYPE_CHECKING:
    from first_states import Made

NOWHERE = Path("/nowhere")
STEP = Step("t/m", 0, None, "primary")
PLAN = Plan((STEP,), "ordered", "because")


def now_ns() -> int:
    return 7


def terms() -> Any:
    limits = SimpleNamespace(requests=0, requests_per_key=0)
    return SimpleNamespace(terms=SimpleNamespace(breaker=Rules(), limits=limits), priors={})


def state() -> State:
    return State(terms(), client=MagicMock(), journal=MagicMock(), spend=None, worker=3)


def exchange() -> Exchange:
    caller: Any = SimpleNamespace(served=None, request_id=b"")
    request: Any = SimpleNamespace(tokens_in=5)
    inbound: Any = SimpleNamespace(received_ns=6)
    owner: Any = SimpleNamespace(ids=SimpleNamespace(new=lambda: "x1"), wall_ns=lambda: 8)
    return Exchange(owner, inbound, MagicMock(), caller, request, MagicMock())


def attempt(kind: type[Attempt]) -> Attempt:
    asked = MagicMock()
    asked.request.endpoint.dialect = "openai-chat"
    asked.request.include_usage = False
    prepared = MagicMock()
    prepared.dialect.name = "openai-chat"
    return kind(asked, STEP, MagicMock(), prepared, MagicMock())


def race() -> Race:
    asked: Any = SimpleNamespace(
        plan=PLAN,
        state=SimpleNamespace(now_ns=now_ns),
        caller=SimpleNamespace(key=None),
    )
    return Race(asked, 9)


def store() -> SharedStore:
    return SharedStore("redis://nowhere", "box", 2, now_ns)


def flights() -> SingleFlight:
    return SingleFlight(asyncio.get_running_loop(), now_ns)


def answer_log() -> AnswerLog:
    return AnswerLog(asyncio.get_running_loop(), now_ns)


def tools() -> RunnerTools:
    return RunnerTools(MagicMock(), MagicMock(), SendWindow(8, now_ns), MagicMock(), 5)


def job_run() -> JobRun:
    job: Any = SimpleNamespace(endpoint="/v1/chat/completions", kind="openai")
    return JobRun(job, tools())


def batch_runner() -> BatchRunner:
    limits: Any = SimpleNamespace(at_once=4, max_lines=5)
    return BatchRunner(MagicMock(), MagicMock(), limits, now_ns)


MADE: Made = {
    "Aside": lambda: Aside(asyncio.get_running_loop()),
    "Turns": lambda: Turns(asyncio.get_running_loop()),
    "BatchDesk": lambda: BatchDesk(MagicMock(), NOWHERE),
    "FormStream": lambda: FormStream(b"b", MagicMock()),
    "Upload": lambda: Upload(b"b", 10, MagicMock()),
    "DiskCache": lambda: DiskCache(MagicMock()),
    "AnswerLog": answer_log,
    "SharedReader": lambda: SharedReader(answer_log(), MagicMock(), "join"),
    "MemoryCache": MemoryCache, "memory._Slot": lambda: _Slot(MagicMock(), 1, 2),
    "SingleFlight": flights, "SharedAnswer": lambda: SharedAnswer(flights(), b"k", 2),
    "Exchange": exchange, "Attempt": lambda: attempt(Attempt),
    "StreamAttempt": lambda: attempt(StreamAttempt),
    "AssembledAttempt": lambda: attempt(AssembledAttempt),
    "Hold": lambda: Hold("openai-chat"), "Ahead": lambda: Ahead(1, STEP, "openai-chat"),
    "JournalWriter": lambda: JournalWriter(MagicMock(short=False)),
    "Load": lambda: Load(now_ns), "Race": race,
    "Learned": lambda: Learned(terms()), "State": state,
    "SharedAnswers": lambda: SharedAnswers(asyncio.get_running_loop(), now_ns),
    "Timers": lambda: Timers(asyncio.get_running_loop(), now_ns),
    "Gateway": lambda: Gateway(MagicMock(), NOWHERE),
    "ArrayReply": lambda: ArrayReply(MagicMock()), "LedgerReads": lambda: LedgerReads(NOWHERE),
    "Shared": lambda: Shared(MagicMock(), MagicMock(), MagicMock()),
    "ResponseStore": lambda: ResponseStore(NOWHERE, MagicMock()),
    "Backoff": Backoff, "Supervisor": Supervisor,
    "ListKeeper": lambda: ListKeeper(MagicMock(), NOWHERE, MagicMock()),
    "Redactor": Redactor,
    "Prober": lambda: Prober(MagicMock(), MagicMock(), MagicMock(), MagicMock()),
    "FormSharing": lambda: FormSharing(NOWHERE, 1, Forms({}), now_ns),
    "RunnerProcess": lambda: RunnerProcess(NOWHERE, "http://127.0.0.1:1", "s"),
    "_alone": lambda: _alone(NOWHERE, asyncio.Event()),
    "RunnerTools": tools, "JobRun": job_run, "LineTally": LineTally,
    "ResultFiles": lambda: ResultFiles(MagicMock(), MagicMock(kind="openai")),
    "BatchRunner": batch_runner,
    "LineSender": lambda: LineSender("http://127.0.0.1:1", "s"),
    "SendWindow": lambda: SendWindow(8, now_ns), "SendWindow of one": lambda: SendWindow(1, now_ns),
    "SharedAnswerStore": lambda: SharedAnswerStore(store()),
    "LiveSharing": lambda: LiveSharing(store(), MagicMock(), Forms({}), MagicMock()),
    "StorePace": StorePace, "KeyShare": KeyShare, "Minute": Minute,
    "SharedStore": store, "StoreLane": lambda: StoreLane(store()),
}  # fmt: skip
