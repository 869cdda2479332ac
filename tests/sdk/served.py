"""A gateway with the process of batches beside it, and a driver of an SDK run against both."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from lightgate.config.load import parse_config
from lightgate.gateway.process.lock import PARENT_DEATH_ENV
from lightgate.gateway.served.inner import SECRET_ENV, new_secret
from lightgate.gateway.served.resolve import make_snapshot
from lightgate.gateway.served.snapshot import put_snapshot
from lightgate.ledger.store.keys import KeyTerms, new_key
from sdk.environment import HERE, run_in
from sdk.gate import worker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WORLD = """
name = "left"
title = "Quick answers, and slow ones"
source = "the tests of the SDKs"

[providers.lab.models.plain]
exact = { ttft_ms = 2, gap_ms = 0 }
shape = { tokens = 12 }
[providers.lab.models.far]
exact = { ttft_ms = 300, gap_ms = 0 }
shape = { tokens = 12 }
"""


@contextlib.contextmanager
def runner(data: Path, port: int, secret: str) -> Iterator[subprocess.Popen[bytes]]:
    """The process of batches; ends with the block."""
    child = subprocess.Popen(
        [sys.executable, "-m", "lightgate.gateway.runner", "--data", data, "--url",
         f"http://127.0.0.1:{port}"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env={**os.environ, PARENT_DEATH_ENV: "1", SECRET_ENV: secret},
    )  # fmt: skip
    try:
        assert child.stdout is not None
        assert json.loads(child.stdout.readline()) == {"ready": True}
        yield child
    finally:
        child.terminate()
        child.communicate(timeout=20)


def drive(sdk: str, data: Path, sim_port: int) -> dict[str, Any]:
    """What the driver of an SDK saw."""
    made = {name: new_key(KeyTerms(name=name)) for name in ("open", "other")}
    base = f"http://127.0.0.1:{sim_port}/lab/v1"
    config = parse_config(
        f'[providers.lab]\nbase_url = "{base}"\napi_key = "none"\n'
        '[prices."lab/plain"]\ninput = 1\noutput = 2\n'
    )
    put_snapshot(data, make_snapshot(config, [record for _, record in made.values()], {}))
    secret = new_secret()
    with worker(data, **{SECRET_ENV: secret}) as port, runner(data, port, secret):
        keys = {name: shown for name, (shown, _) in made.items()}
        facts = json.dumps({"url": f"http://127.0.0.1:{port}", "keys": keys})
        done = run_in(sdk, HERE / f"served_{sdk}.py", facts)
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen
