"""`lightgate`, and `python -m lightgate`."""

from __future__ import annotations

import signal
import sys

from lightgate.cli.importing import Importing


def main() -> int:
    """Load the command line and run it.

    Orders to reload wait until `up` lets them through: by default they would end it.
    """
    if sys.argv[1:2] == ["up"]:
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGHUP, signal.SIGUSR2))
    with Importing():
        from lightgate.cli.main import main as run
    return run()


if __name__ == "__main__":
    sys.exit(main())
