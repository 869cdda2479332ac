"""`lightgate`, and `python -m lightgate`."""

from __future__ import annotations

import sys

from lightgate.cli.importing import Importing


def main() -> int:
    """Load the command line and run it."""
    with Importing():
        from lightgate.cli.main import main as run
    return run()


if __name__ == "__main__":
    sys.exit(main())
