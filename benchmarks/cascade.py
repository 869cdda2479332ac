"""How well the complexity of a request is told, on the project's own labelled prompts.

Each prompt is written in one of the four dialects in turn, read back and scored. `tune` is what the
points were fitted on, `held` was kept apart, `late` was written after the rules were frozen. Beside
it: one tier for all, and the best two bounds on the length alone (found on `tune`). Exit code 6 if
a set is not told better than by any of those, or if scoring takes too long.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from lightgate.route.complexity import LEVELS, Level, score
from lightgate.route.gist import gist_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

DATA = Path(__file__).parent / "data" / "complexity.jsonl"
DIALECTS = ("openai-chat", "openai-responses", "anthropic-messages", "gemini")
SETS = ("tune", "held", "late")
LIMIT_US = 50.0


class Prompt(msgspec.Struct, frozen=True):
    """One labelled prompt; `history` alternates between user and model."""

    id: str
    set: str
    level: Level
    lang: str
    kind: str
    text: str
    system: str = ""
    history: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    schema: dict[str, Any] | None = None


def prompts() -> list[Prompt]:
    decode = msgspec.json.Decoder(Prompt).decode
    return [decode(line) for line in DATA.read_bytes().splitlines()]


def body(prompt: Prompt, dialect: str) -> dict[str, Any]:
    """The request in a dialect's words."""
    said = [*prompt.history, prompt.text]
    model = "model" if dialect == "gemini" else "assistant"
    turns = [("user" if place % 2 == 0 else model, text) for place, text in enumerate(said)]
    if dialect == "gemini":
        return _gemini(prompt, turns)
    messages = [{"role": role, "content": text} for role, text in turns]
    takes = {"type": "object", "properties": {"value": {"type": "string"}}}
    found: dict[str, Any] = {"model": "smart", "max_tokens": 1024}
    if dialect == "openai-chat":
        system = [{"role": "system", "content": prompt.system}] if prompt.system else []
        found["messages"] = [*system, *messages]
        tools = [
            {"type": "function", "function": {"name": n, "parameters": takes}} for n in prompt.tools
        ]
        form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": prompt.schema}}
        return found | _set(tools=tools, response_format=prompt.schema and form)
    if dialect == "openai-responses":
        tools = [{"type": "function", "name": n, "parameters": takes} for n in prompt.tools]
        form = {"format": {"type": "json_schema", "name": "answer", "schema": prompt.schema}}
        more = _set(instructions=prompt.system, tools=tools, text=prompt.schema and form)
        return found | {"input": messages} | more
    tools = [{"name": n, "input_schema": takes} for n in prompt.tools]
    form = {"format": {"type": "json_schema", "schema": prompt.schema}}
    more = _set(system=prompt.system, tools=tools, output_config=prompt.schema and form)
    return found | {"messages": messages} | more


def _gemini(prompt: Prompt, turns: list[tuple[str, str]]) -> dict[str, Any]:
    declared = [{"name": name} for name in prompt.tools]
    return _set(
        contents=[{"role": role, "parts": [{"text": text}]} for role, text in turns],
        systemInstruction=prompt.system and {"parts": [{"text": prompt.system}]},
        tools=declared and [{"functionDeclarations": declared}],
        generationConfig=prompt.schema and {"responseJsonSchema": prompt.schema},
    )


def _set(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value}


def fields_of(request: dict[str, Any]) -> dict[str, msgspec.Raw]:
    return msgspec.json.decode(msgspec.json.encode(request), type=dict[str, msgspec.Raw])


def told(prompt: Prompt, place: int) -> Level:
    dialect = DIALECTS[place % len(DIALECTS)]
    return score(gist_of(dialect, fields_of(body(prompt, dialect)))).level


def length_bounds(tuned: Sequence[Prompt]) -> tuple[int, int]:
    """The two lengths that tell most of the prompts apart."""
    grid = [10 * step for step in range(2, 80)]
    pairs = ((low, high) for low in grid for high in grid if low <= high)
    return max(pairs, key=lambda pair: sum(by_length(p, pair) == p.level for p in tuned))


def by_length(prompt: Prompt, bounds: tuple[int, int]) -> Level:
    return LEVELS[sum(len(prompt.text) >= bound for bound in bounds)]


def interval(right: int, count: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share."""
    share, z = right / count, 1.96
    middle = share + z * z / (2 * count)
    half = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    whole = 1 + z * z / count
    return (middle - half) / whole, (middle + half) / whole


def report(
    name: str, found: list[tuple[Prompt, Level]], bounds: tuple[int, int], prices: list[float]
) -> bool:
    """Print one set; whether the score beats what is trivial."""
    count = len(found)
    rank = {level: place for place, level in enumerate(LEVELS)}
    right = sum(prompt.level == level for prompt, level in found)
    low, high = interval(right, count)
    below = sum(rank[level] < rank[prompt.level] for prompt, level in found)
    far = sum(abs(rank[level] - rank[prompt.level]) > 1 for prompt, level in found)
    print(f"\n{name}: {count} prompts, {right / count:.1%} told right ({low:.0%} - {high:.0%}),")
    print(f"  {below / count:.1%} one tier or more too low, {far} wrong by two tiers")
    table = Counter((prompt.level, level) for prompt, level in found)
    print(
        f"\n  | labelled | {' | '.join(f'told {level}' for level in LEVELS)} |\n  |---|---|---|---|"
    )
    for level in LEVELS:
        print(f"  | {level} | {' | '.join(str(table[level, other]) for other in LEVELS)} |")
    shares = [sum(level == one for _, level in found) / count for one in LEVELS]
    print(f"  | share | {' | '.join(f'{share:.0%}' for share in shares)} |")
    single = {f"all {one}": sum(p.level == one for p, _ in found) / count for one in LEVELS}
    single["by length"] = sum(by_length(p, bounds) == p.level for p, _ in found) / count
    print(
        "  told right otherwise: " + ", ".join(f"{key} {part:.1%}" for key, part in single.items())
    )
    spent = sum(share * price for share, price in zip(shares, prices, strict=True)) / prices[-1]
    print(f"  cost beside the largest model for all: {spent:.0%} (prices {prices}, equal lengths)")
    return right / count > max(single.values())


def per_call_us(act: Callable[[], object], calls: int = 2000, rounds: int = 9) -> float:
    """CPU microseconds of one call: the median of some rounds."""
    found = []
    for _ in range(rounds):
        begun = time.process_time_ns()
        for _ in range(calls):
            act()
        found.append((time.process_time_ns() - begun) / calls / 1e3)
    return statistics.median(found)


def cost() -> bool:
    """Print what scoring takes for a chat of 2 KB; whether that is within the limit."""
    asked = (
        "Please write a function that parses log lines like those below and groups them by host,"
        " explain why it is robust, and say what happens when a line is cut off in the middle. "
    )
    turns = [
        {"role": "system", "content": "You are a careful engineer. " * 8},
        {"role": "user", "content": "What can you do?"},
        {"role": "assistant", "content": "I read logs, write code and explain both. " * 8},
        {"role": "user", "content": asked * 4 + "\n\n" + "12:01:07 host-3 connected\n" * 20},
    ]
    request = {"model": "smart", "messages": turns, "max_tokens": 512}
    raw = msgspec.json.encode(request)
    fields = fields_of(request)
    decode = per_call_us(lambda: msgspec.json.decode(raw))
    read = per_call_us(lambda: gist_of("openai-chat", fields))
    gist = gist_of("openai-chat", fields)
    scored = per_call_us(lambda: score(gist))
    both = read + scored
    print(f"\n{len(raw)} bytes: gist {read:.1f} us + score {scored:.1f} us = {both:.1f} us")
    print(f"  (limit {LIMIT_US:.0f}); {both / decode:.1f} x msgspec decode ({decode:.1f} us)")
    return both <= LIMIT_US


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prices", default="1,5,25", help="relative prices of the three tiers")
    parser.add_argument("--wrong", action="store_true", help="list what was told wrong in `tune`")
    options = parser.parse_args()
    prices = [float(price) for price in options.prices.split(",")]
    if len(prices) != len(LEVELS) or any(low > high for low, high in pairwise(prices)):
        parser.error("--prices takes three numbers that do not fall, such as 1,5,25")
    everything = prompts()
    found = [(prompt, told(prompt, place)) for place, prompt in enumerate(everything)]
    bounds = length_bounds([prompt for prompt in everything if prompt.set == "tune"])
    languages = Counter(prompt.lang for prompt in everything)
    print(f"{len(everything)} prompts in {len(languages)} languages; length bounds {bounds}")
    better = [
        report(name, [one for one in found if one[0].set == name], bounds, prices) for name in SETS
    ]
    if options.wrong:
        for prompt, level in found:
            if prompt.set == "tune" and prompt.level != level:
                print(f"  {prompt.id} told {level}: {prompt.text[:70]!r}")
    return 0 if cost() and all(better) else 6


if __name__ == "__main__":
    sys.exit(main())
