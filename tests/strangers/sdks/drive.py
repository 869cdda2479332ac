"""What all drivers share: the standard library alone, for every environment.

A driver has ways to use a client, each a function of a gateway's address and a key. It prints for
every way and every gateway what came of it: null where all was right, else what was wrong.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import re
import sys
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    Way = Callable[[str, str], Any]
    Ways = dict[str, dict[str, Way]]  # by form of the client, then by feature

SAID = "It rains in Oslo today."
THING = {"name": "Ada", "quote": "It computes."}
ASKED = "What is the weather in Oslo?"
LONGEST = 160  # characters of a complaint


def checked(feature: str, found: Any) -> str | None:
    """What is wrong with what a way found."""
    if feature == "stream":
        good = len(found) > 1 and "".join(found) == SAID
    elif feature == "tools":
        good = found == (SAID, ["Oslo"])
    elif feature == "embeddings":
        good = [len(vector) for vector in found] == [64, 64]
    else:
        good = found == {"chat": SAID, "structured": THING}[feature]
    return None if good else f"it came out as {found!r}"


def complaint(error: BaseException) -> str:
    """What an error says: its first sentence, without what differs from run to run."""
    text = str(error)
    said = re.search(r"""['"]message['"]: ?(['"])(.*?)\1[,}]""", text, re.DOTALL)
    text = " ".join((said[2] if said else text or type(error).__name__).split())
    text = re.sub(r"^(Error code: )?4\d\d (- )?", "", text.replace("\\'", "'"))
    text = re.sub(r"127\.0\.0\.1:\d+", "the gateway", text).split(". ")[0].rstrip(".") + "."
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def tried(runner: asyncio.Runner, feature: str, way: Way, url: str, key: str) -> str | None:
    """Use a client in one way; None if all was right."""
    try:
        found = way(url, key)
        if inspect.iscoroutine(found):
            found = runner.run(found)
        return checked(feature, found)
    except Exception as error:  # noqa: BLE001 - whatever a client lets through is the finding
        return complaint(error)


def drive(ways: Ways, *packages: str) -> None:
    """Use a client in every way with every gateway that it is given."""
    given = json.loads(sys.argv[1])
    with asyncio.Runner() as runner:  # one loop for all: clients are kept, and belong to a loop
        seen = {
            form: {
                feature: {
                    kind: tried(runner, feature, way, url, given["key"])
                    for kind, url in given["urls"].items()
                    if kind != "openai-chat" or "responses" in form
                }
                for feature, way in features.items()
            }
            for form, features in ways.items()
        }
    json.dump({"versions": {name: version(name) for name in packages}, "seen": seen}, sys.stdout)


class Weather:
    """A tool and where it was asked about."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def get_weather(self, city: str) -> str:
        """Tell the weather of a city."""
        self.asked.append(city)
        return "rain"
