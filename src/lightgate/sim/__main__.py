"""`python -m lightgate.sim OPTIONS`: the child of `spawn`; options and facts are lines of JSON."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import msgspec

from lightgate.errors import LightgateError
from lightgate.sim.server.serve import SimFacts, SimOptions, serve

if TYPE_CHECKING:
    from lightgate.sim.world import World


def _announce(facts: SimFacts, world: World) -> None:
    del world
    sys.stdout.write(msgspec.json.encode(facts).decode() + "\n")
    sys.stdout.flush()


def main() -> int:
    """Read the options, serve, and say in one sentence what went wrong."""
    try:
        options = msgspec.json.decode(sys.argv[1] if len(sys.argv) > 1 else "{}", type=SimOptions)
        return serve(options, _announce)
    except msgspec.ValidationError as error:
        sys.stderr.write(f"lightgate: {error}\n")
        return 2
    except LightgateError as error:
        sys.stderr.write(f"lightgate: {error.message}\n")
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
