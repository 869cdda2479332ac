"""One task of one agent in a folder of its own, with a home of its own."""

from __future__ import annotations

import os
import re
import subprocess
from typing import TYPE_CHECKING, NamedTuple

from strangers.agents.agents import NODE
from strangers.world import NOTE, WRITTEN

if TYPE_CHECKING:
    from pathlib import Path

    from strangers.agents.agents import Agent
    from strangers.fence import Fence
    from strangers.lab import StrangersLab


REFUSAL = re.compile(r"""(?:API Error: \d+ |"message":")(.*?\.)[ "]""")  # the gateway's sentence
LIMIT_S = 100  # an agent takes one to four seconds; a busy machine may take many times that


class Finished(NamedTuple):
    """How a task ended."""

    status: int
    said: str
    complaint: str
    note: str | None  # the file that was to be written

    @property
    def fault(self) -> str | None:
        """What was wrong, in one sentence; None for a task that was done."""
        if self.status == 0 and WRITTEN in self.said and self.note == f"{NOTE}\n":
            return None
        words = " ".join((self.said + self.complaint).split())
        said = REFUSAL.search(words)
        if said:
            return said[1]
        return f"status {self.status}, note {self.note!r}: {words[-1500:]}"


def run_task(
    agent: Agent, model: str | None, url: str, lab: StrangersLab, fence: Fence, at: Path
) -> Finished:
    """Let an agent do its task through the gateway at `url`; without a model it asks its own."""
    told = agent.told(url, lab.key)
    words = told.words if model is None else (*told.words, "--model", model)
    home, work = at / "home", at / "work"
    work.mkdir(parents=True)
    for name, text in told.files.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text, "utf-8")
    home.mkdir(exist_ok=True)
    path = f"{NODE.parent}:{os.environ.get('PATH', '/usr/bin:/bin')}"
    done = subprocess.run(
        [NODE, agent.path, *words],
        cwd=work, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S,
        check=False, env={"PATH": path, "HOME": str(home), **fence.environment(), **told.variables},
    )  # fmt: skip
    note = work / "note.txt"
    written = note.read_text("utf-8") if note.exists() else None
    return Finished(done.returncode, done.stdout, done.stderr, written)
