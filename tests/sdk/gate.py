"""A gateway's worker in its own process, in front of whatever listens on two ports."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from lightgate.config.load import parse_config
from lightgate.gateway.process.lock import PARENT_DEATH_ENV
from lightgate.gateway.served.resolve import make_snapshot
from lightgate.gateway.served.snapshot import put_snapshot
from lightgate.ledger.journal.journal import read_frames
from lightgate.ledger.journal.notes import Settled
from lightgate.ledger.store.keys import KeyTerms, new_key

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FAMILIES = {"lab": "openai", "claude": "anthropic", "gem": "gemini"}
SDKS = ("openai", "anthropic", "google", "langchain")
# The models that the drivers ask for. Each fault is a target, and a breaker, of its own: what one
# SDK does to a target must not show in another's test.
ALIASES = {
    "fast": ["lab/plain"],
    "late": ["lab/plain!hang", "lab/plain"],
    "quiet": ["lab/plain!silence:2.2"],
    "pausing": ["lab/plain!stall:3,2.2"],
    "refusing": ["lab/plain!status:400"],
    "speaking": ["openai/plain!status:500", "openai/plain"],
    "broken": ["lab/plain!stream-error:3"],
    "cut": ["lab/plain!truncated:5"],
    # A fault's mark cannot be part of Gemini's address, so these have names.
    "quiet-gem": ["gem/plain!silence:2.2"],
    "pausing-gem": ["gem/plain!stall:3,2.2"],
    "broken-gem": ["gem/plain!stream-error:3"],
    "cut-gem": ["gem/plain!truncated:5"],
}
ALIASES["silent-openai"] = ["openai/plain!no-text"]
for family in FAMILIES:
    ALIASES[f"silent-{family}"] = [f"{family}/plain!no-text"]  # cut off while it was thinking
    ALIASES[f"unmarked-{family}"] = [f"{family}/plain!no-marker"]
for number, sdk in enumerate(SDKS):
    ALIASES[f"rescued-{sdk}"] = [f"lab/plain!status:54{number}", "lab/plain"]
    ALIASES[f"gone-{sdk}"] = [f"lab/plain!status:55{number}", f"lab/plain!status:56{number}"]
    ALIASES[f"limited-{sdk}"] = [f"lab/plain!rate-limited:{20 + number}"]
KEYS = {name: KeyTerms(name=name, rpm=1) for name in (f"slow-{sdk}" for sdk in SDKS)}
KEYS["open"] = KeyTerms(name="open")


class Gate(NamedTuple):
    """A running gateway: where it is, its keys by name, its data folder."""

    url: str
    keys: dict[str, str]
    data: Path

    def exchanges(self, request_id: str) -> list[Any]:
        """What the gateway settled under a client's own request id, from its journal."""
        files = sorted((self.data / "journal").glob("*.lgj"))
        notes = [note for file in files for note, _ in read_frames(file)]
        found = [note.exchange for note in notes if isinstance(note, Settled)]
        return [exchange for exchange in found if exchange.request_id == request_id]


def config_text(sim_port: int, reciter_port: int) -> str:
    # Silence is counted in ticks of a second: one tick may fall into a quick answer, two cannot.
    lines = ['[gateway]\nkeep_alive = "1s"']
    for name, family in FAMILIES.items():
        version = "v1beta" if family == "gemini" else "v1"
        for prefix, root in (("", f"{sim_port}/{name}"), ("golden-", str(reciter_port))):
            lines.append(
                f'[providers.{prefix}{name}]\nbase_url = "http://127.0.0.1:{root}/{version}"\n'
                f'dialect = "{family}"\napi_key = "none"'
            )
    # Of the catalogue: they have the endpoints that other providers need not have.
    for name, root in (("openai", "lab/v1"), ("anthropic", "claude/v1"), ("gemini", "gem/v1beta")):
        url = f"http://127.0.0.1:{sim_port}/{root}"
        lines.append(f'[providers.{name}]\nbase_url = "{url}"\napi_key = "none"')
    for name, targets in ALIASES.items():
        lines.append(
            f"[models.{name}]\ntargets = {json.dumps(targets)}\n"
            'policy = "ordered"\nhedge = "off"\nttft_timeout = "300ms"\ntimeout = "20s"'
        )
    lines.append('[prices."lab/plain"]\ninput = 1\noutput = 2')
    return "\n".join(lines)


@contextlib.contextmanager
def gateway(data: Path, sim_port: int, reciter_port: int) -> Iterator[Gate]:
    """Serve until the end of the block."""
    made = {name: new_key(terms) for name, terms in KEYS.items()}
    config = parse_config(config_text(sim_port, reciter_port))
    put_snapshot(data, make_snapshot(config, [record for _, record in made.values()], {}))
    with worker(data) as port:
        secrets = {name: secret for name, (secret, _) in made.items()}
        yield Gate(f"http://127.0.0.1:{port}", secrets, data)


@contextlib.contextmanager
def worker(data: Path, **env: str) -> Iterator[int]:
    """A worker process on a free port of its own; ends with this process."""
    child = subprocess.Popen(
        [sys.executable, "-m", "lightgate.gateway.process.worker", "--data", data,
         "--drain-s", "1"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env={**os.environ, PARENT_DEATH_ENV: "1", **env},
    )  # fmt: skip
    try:
        assert child.stdout is not None
        yield json.loads(child.stdout.readline())["port"]
    finally:
        child.terminate()
        child.communicate(timeout=10)
