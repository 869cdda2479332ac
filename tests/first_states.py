"""The state of objects that have just been made: what is believed before anything was seen.

A counter that begins with 1, a flag that begins set or an instant that begins in the present change
the first decisions of a worker, and few tests look at those. `fixtures/first_states` has the state
of each class as it was last looked at; `python -m first_states` (from tests/) writes it anew: read
what differs.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import json
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "fixtures" / "first_states"
PLACES = {"route": "route.first_objects", "gateway": "gateway.first_objects"}
# Numbers that are others in every process.
OF_THIS_PROCESS = {"Turns": frozenset(("_thread_id", "_clock")), "Supervisor": {"_terminal"}}
Made = dict[str, Callable[[], object]]


def state_of(thing: object) -> dict[str, str]:
    """The fields of an object that its own package gives it, as text."""
    kind = type(thing)
    own = kind.__module__.split(".")[:2]
    kinds = [one for one in kind.__mro__ if one.__module__.split(".")[:2] == own]
    names = [name for one in kinds for name in getattr(one, "__slots__", ())]
    names += getattr(thing, "__dict__", {})
    left_out = OF_THIS_PROCESS.get(kind.__name__, frozenset())
    return {
        name: _shown(getattr(thing, name))
        for name in sorted(set(names) - left_out)
        if hasattr(thing, name)
    }


def _shown(value: object) -> str:
    """Data as it is written; of another object of ours the name of its class."""
    match value:
        case float():  # rounded: another library of mathematics ends otherwise
            shown = repr(float(f"{value:.12g}"))
        case None | bool() | int() | str() | bytes():
            shown = repr(value)
        case functools.partial():
            name = getattr(value.func, "__name__", "")
            shown = f"{name}({_shown(value.args)}, {_shown(value.keywords)})"
        case Mapping():
            pairs = ", ".join(f"{_shown(key)}: {_shown(one)}" for key, one in value.items())
            shown = f"{{{pairs}}}"
        case deque():
            shown = f"{_several(list(value))} at most {value.maxlen}"
        case list() | tuple():
            shown = _several(list(value))
        case set() | frozenset():
            shown = f"set {_several(sorted(value, key=repr))}"
        case _:
            ours = type(value).__module__.startswith("lightgate.")
            shown = type(value).__name__ if ours else "something"
    return shown


def _several(values: list[Any]) -> str:
    """A list; one value many times is written once."""
    shown = [_shown(one) for one in values]
    if len(shown) > 3 and len(set(shown)) == 1:
        return f"{len(shown)} times {shown[0]}"
    return f"[{', '.join(shown)}]"


async def states(made: Made) -> dict[str, dict[str, str]]:
    """The state of each of these objects; some need a running loop."""
    return {name: state_of(make()) for name, make in made.items()}


def path_of(package: str) -> Path:
    """The file of a package."""
    return FOLDER / f"{package}.json"


def kept(package: str) -> dict[str, dict[str, str]]:
    """The states as they were last looked at."""
    found: dict[str, dict[str, str]] = json.loads(path_of(package).read_text("utf-8"))
    return found


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for package, place in PLACES.items():
        made: Made = importlib.import_module(place).MADE
        text = json.dumps(asyncio.run(states(made)), indent=1, ensure_ascii=False)
        path_of(package).write_text(f"{text}\n", "utf-8")


if __name__ == "__main__":
    main()
