"""`python -m lightgate`."""

import sys

from lightgate.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
