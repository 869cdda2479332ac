"""`python -m lightgate.console --data DIR`: the control process of `lightgate up`, or alone."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from lightgate.errors import ConfigError, LightgateError
from lightgate.ledger.locate import LEDGER_ENV, LedgerPlace


def main() -> int:
    """Read the arguments, serve, and say in one sentence what went wrong."""
    parser = argparse.ArgumentParser(prog="python -m lightgate.console")
    parser.add_argument("--data", type=Path, required=True, help="data folder of the gateway")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=8081, help="port; 0 takes a free one")
    parser.add_argument("--config", type=Path, help="configuration file")
    parser.add_argument("--retention-s", type=float, help="how long single requests are kept")
    given = vars(parser.parse_args())
    # Begun before this process imports what serving takes: the two go side by side.
    known = given["config"] is None or LEDGER_ENV in os.environ
    ledger_made = LedgerPlace.of_process(os.environ, given["data"]).prepare() if known else None
    from lightgate.console.serve import ConsoleOptions, run

    try:
        return run(ConsoleOptions(**given), ledger_made)
    except LightgateError as error:
        problems = error.problems if isinstance(error, ConfigError) else ()
        lines = (f"lightgate: {error.message}", *(f"  {line}" for line in problems))
        hint = (f"  {error.hint}",) if error.hint else ()
        sys.stderr.write("\n".join((*lines, *hint, "")))
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
