"""`lightgate reload` waits for the replacement that its own order makes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from click.testing import CliRunner

from lightgate.cli import reload
from lightgate.gateway.process.lock import ChildState, SupervisorState

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def state(reloads: int, *, replacing: bool, error: str = "") -> SupervisorState:
    worker = ChildState(name="worker-0", pid=1, ready=True, restarts=0)
    return SupervisorState(
        pid=77, version="1", started="", host="", port=1, console_host="", console_port=2,
        reloads=reloads, replacing=replacing, reload_error=error, children=(worker, worker),
    )  # fmt: skip


def test_an_order_beside_another_waits_for_both(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "kill", lambda pid, number: None)
    monkeypatch.setattr(reload, "LOOK_S", 0.0)
    for replacing, states, code, said in (
        (False, [state(4, replacing=True), state(5, replacing=False)], 0, "1 of 1 workers"),
        (
            True,
            [state(4, replacing=True), state(5, replacing=True, error="of the first"),
             state(6, replacing=False)],
            0,
            "1 of 1 workers",
        ),
        (
            True,
            [state(5, replacing=True), state(6, replacing=False, error="of its own")],
            1,
            "of its own",
        ),
    ):  # fmt: skip
        seen = iter([state(4, replacing=replacing), *states])
        monkeypatch.setattr(reload, "read_state", lambda _, seen=seen: next(seen))
        done = CliRunner().invoke(reload.command, ["--data", str(tmp_path)])
        assert (done.exit_code, list(seen)) == (code, [])
        assert said in f"{done.output}{getattr(done.exception, 'message', '')}"
