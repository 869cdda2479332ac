"""Find advice in a process of its own: it takes seconds of work and memory that the console needs.

    python -m lightgate.console.work.advice_child --data DIR --last 14d

The ledger is that of the environment, as for every child of `lightgate up`. It prints the report.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from lightgate.advise.of_ledger import advise_ledger, scope_of
from lightgate.config.load import find_config, load_config
from lightgate.config.notation import parse_duration
from lightgate.errors import LightgateError
from lightgate.ledger.locate import LedgerPlace


def main() -> int:
    """Read the arguments, look, print."""
    parser = argparse.ArgumentParser(prog="lightgate-advice")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--last", required=True)
    given = parser.parse_args()
    with contextlib.suppress(OSError):
        os.nice(10)
    now = datetime.now(UTC)
    last = timedelta(microseconds=parse_duration(given.last) // 1_000)
    try:
        path = find_config(None, env=os.environ, cwd=Path.cwd())
        config = None if path is None else load_config(path)
        with LedgerPlace.of_process(os.environ, given.data).open_existing() as ledger:
            scope = scope_of(ledger, (now - last, now), config)
            report = advise_ledger(ledger, scope)
    except LightgateError as error:
        sys.stderr.write(f"{error.message}\n")
        return error.exit_code
    sys.stdout.buffer.write(msgspec.json.Encoder(decimal_format="number").encode(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
