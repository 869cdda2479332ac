"""How well the complexity of a request is told, on the project's own labelled prompts.

Each prompt is written in one of the four dialects in turn, read back and scored. The weights were
fitted (cascade_fit.py) on `tune` and `held`, ordinary prompts written by hand, and on `made`,
prompts from templates (cascade_made.py) in which the length misleads. `late` and `fresh` were kept
out: written by hand, about other things, `late` before these rules and `fresh` before their words.
`other` was written and labelled later, without a look at rules and words, and scored once.
Beside it: one tier for all, and the best two bounds on the length alone.

Then what a cascade of three tiers costs and how long it takes, beside each of its models alone: the
levels, the climb and the budget for starts ahead are the product's own; the speeds are drawn from a
world of the simulator, and how good an answer is, and what checks find, is assumed (see `Odds`).

Exit code 6 if a part that was kept out is not told better than by any trivial rule by five points,
if scoring takes too long, if the starts ahead cost more than their budget, or if they make anything
slower.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from cascade_made import made

from lightgate.route.cascade.complexity import score
from lightgate.route.cascade.course import CascadeCourse
from lightgate.route.cascade.features import RequestFeatures, features_of
from lightgate.route.cascade.tiers import Cascade, cascade_of, starting, tier_turns
from lightgate.route.cascade.verify import State
from lightgate.route.plan.alias import Alias
from lightgate.route.plan.hedge import LAG_TOKENS, SPEND, HedgeBudgets, TargetPrice
from lightgate.route.plan.plan import LEVELS, Level
from lightgate.sim.weather import Dice, Sky, SpeedCurve
from lightgate.sim.world_file import load

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lightgate.route.cascade.tiers import TierTurn

DATA = Path(__file__).parent / "data" / "complexity.jsonl"
DIALECTS = ("openai-chat", "openai-responses", "anthropic-messages", "gemini")
ORDINARY_SETS = ("tune", "held")
FIT_SETS = (*ORDINARY_SETS, "made")
MARGIN = 0.05  # by which the score must beat every trivial rule on prompts kept out of the fit
SETS = (*FIT_SETS, "late", "fresh", "other")
TOLD_APART = ("fresh", "other")  # by whether the length misleads
LIMIT_US = 200.0
WORLD = "providers-2026"
MODELS = ("groq/mixtral", "google/gemini-1.5-pro", "anthropic/claude-opus-4.6")
LOAD = 1  # requests in flight at each
TOKENS = (80, 350, 800)  # of an answer, median by labelled level
TOKENS_SIGMA = 0.4  # of their logarithm
AHEAD_S = (1.0, 2.0, 4.0)
NS = 1_000_000_000


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


Rivals = dict[str, Callable[[Prompt], Level]]  # rules by name: the level of a prompt


def prompts() -> list[Prompt]:
    decode = msgspec.json.Decoder(Prompt).decode
    written = [decode(line) for line in DATA.read_bytes().splitlines()]
    return written + [msgspec.convert(row, Prompt) for row in made()]


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


def read_as(prompt: Prompt, place: int) -> RequestFeatures:
    """The features of a prompt that is written in one of the dialects, by its place."""
    dialect = DIALECTS[place % len(DIALECTS)]
    return features_of(dialect, fields_of(body(prompt, dialect)))


def told(prompt: Prompt, place: int) -> Level:
    return score(read_as(prompt, place)).level


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


def report(name: str, found: list[tuple[Prompt, Level]], rivals: Rivals) -> float:
    """Print one set; return by how much the score beats the best trivial rule, as a share."""
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
    single = {
        key: sum(rule(prompt) == prompt.level for prompt, _ in found) / count
        for key, rule in rivals.items()
    }
    print(
        "  told right otherwise: " + ", ".join(f"{key} {part:.1%}" for key, part in single.items())
    )
    return right / count - max(single.values())


def _always(level: Level, _: Prompt) -> Level:
    return level


def rivals_of(everything: Sequence[Prompt]) -> Rivals:
    """The trivial rules: one level for all, and two bounds on the length.

    The bounds are fitted on what the weights are fitted on, and again on the ordinary prompts of
    it alone, which is better where prompts are ordinary.
    """
    fitted = length_bounds([prompt for prompt in everything if prompt.set in FIT_SETS])
    plain = length_bounds([prompt for prompt in everything if prompt.set in ORDINARY_SETS])
    rules: Rivals = {f"all {level}": partial(_always, level) for level in LEVELS}
    rules[f"length {fitted}"] = lambda prompt: by_length(prompt, fitted)
    rules[f"length {plain} of ordinary prompts"] = lambda prompt: by_length(prompt, plain)
    return rules


def parts_of(found: list[tuple[Prompt, Level]]) -> dict[str, list[tuple[Prompt, Level]]]:
    """The sets; the last two are told apart by whether their length misleads."""
    parts = {name: [one for one in found if one[0].set == name] for name in SETS}
    for name in TOLD_APART:
        whole = parts.pop(name)
        misleads = [one[0].kind.startswith(("short-", "long-")) for one in whole]
        for kind, wanted in (("ordinary", False), ("misleading length", True)):
            both = zip(whole, misleads, strict=True)
            parts[f"{name}, {kind}"] = [one for one, found in both if found == wanted]
    return parts


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
    """Print what scoring takes for a chat of 4 KB; whether that is within the limit."""
    asked = (
        "Please write a function that parses log lines like those below and groups them by host,"
        " explain why it is robust, and say what happens when a line is cut off in the middle. "
    )
    turns = [
        {"role": "system", "content": "You are a careful engineer. " * 8},
        {"role": "user", "content": "What can you do?"},
        {"role": "assistant", "content": "I read logs, write code and explain both. " * 8},
        {"role": "user", "content": asked * 14 + "\n\n" + "12:01:07 host-3 connected\n" * 20},
    ]
    request = {"model": "smart", "messages": turns, "max_tokens": 512}
    raw = msgspec.json.encode(request)
    fields = fields_of(request)
    decode = per_call_us(lambda: msgspec.json.decode(raw))
    read = per_call_us(lambda: features_of("openai-chat", fields))
    features = features_of("openai-chat", fields)
    scored = per_call_us(lambda: score(features))
    both = read + scored
    print(f"\n{len(raw)} bytes: features {read:.1f} us + score {scored:.1f} us = {both:.1f} us")
    print(f"  (limit {LIMIT_US:.0f}); {both / decode:.1f} x msgspec decode ({decode:.1f} us)")
    return both <= LIMIT_US


class Odds(msgspec.Struct, frozen=True):
    """What nobody measured: how often an answer is not good enough, and what the checks notice."""

    bad: float = 0.05  # of a tier that is large enough for the label
    below: float = 0.4  # for every tier that it is too small by
    caught: float = 0.7  # of the bad ones
    alarm: float = 0.02  # of the good ones fail all the same


class Take(msgspec.Struct, frozen=True):
    """One tier's answer to one request, were it asked; from its own start, in nanoseconds."""

    ttft_ns: int
    end_ns: int
    tokens: int
    bad: bool
    state: State

    def said(self, at_ns: int) -> int:
        """Tokens that had come by then."""
        share = (at_ns - self.ttft_ns) / max(self.end_ns - self.ttft_ns, 1)
        return round(self.tokens * min(max(share, 0.0), 1.0))


class Case(msgspec.Struct, frozen=True):
    """One request: its prompt, where it would start, and what every tier would say."""

    tokens_in: int
    level: Level
    takes: tuple[Take, ...]


class Flown(msgspec.Struct, frozen=True):
    """What became of a request; money in nano-dollars."""

    tier: int
    first_ns: int
    end_ns: int
    nano: float
    vain_nano: float = 0.0
    bad: bool = False
    ahead: bool = False
    used: bool = False


def cases(found: list[tuple[Prompt, Level]], odds: Odds, rounds: int) -> list[Case]:
    """The prompts again and again, each time with other luck."""
    world = load(WORLD)
    models = []
    for name in MODELS:
        provider, _, model = name.partition("/")
        maker = world.providers[provider]
        models.append(
            (SpeedCurve(maker.models[model].curve).at(LOAD), Sky(world.weather, 1, provider))
        )
    made = []
    for number in range(rounds * len(found)):
        prompt, level = found[number % len(found)]
        rank = LEVELS.index(prompt.level)
        text = "".join((prompt.system, *prompt.history, prompt.text))
        own = Dice(1, "request", number)
        tokens = max(1, round(TOKENS[rank] * math.exp(TOKENS_SIGMA * own.ttft)))
        takes = []
        for tier, (parameters, sky) in enumerate(models):
            dice = Dice(1, MODELS[tier], number)
            luck = sky.luck(parameters, dice, 0.0)
            good = (1 - odds.bad) * (1 - odds.below) ** max(0, rank - tier)
            bad = dice.fail >= good
            failed = dice.stall < (odds.caught if bad else odds.alarm)
            end_ns = luck.ttft_ns + round(tokens / luck.tps * NS)
            state: State = "failed" if failed else "passed"
            takes.append(Take(luck.ttft_ns, end_ns, tokens, bad, state))
        made.append(Case(30 + len(text) // 4, level, tuple(takes)))
    return made


def token_prices() -> tuple[TargetPrice, ...]:
    world, made = load(WORLD), []
    for name in MODELS:
        provider, _, model = name.partition("/")
        price = world.providers[provider].models[model].price
        if price is None:
            raise ValueError(f"{name} has no price")
        made.append(TargetPrice(float(price.input) * 1000, float(price.output) * 1000))
    return tuple(made)


class Course:
    """One policy over all the requests, with one key's budget for starts ahead."""

    def __init__(self, cascade: Cascade, prices: Sequence[TargetPrice]) -> None:
        self.cascade = cascade
        self._prices = prices
        self._budgets = HedgeBudgets()

    def fly(self, case: Case) -> Flown:
        """Climb until an answer is delivered."""
        self._budgets.deposit("")
        ladder = tier_turns(self.cascade, starting(self.cascade, case.level))
        climb, begun, may = CascadeCourse(ladder), {0: 0}, True
        move, out_ns, ended, reserve = climb.begin(), 0, set[int](), None
        while not climb.over:
            ends = {n: at + self._take(case, ladder[n]).end_ns for n, at in begun.items()}
            place = min((n for n in begun if n not in ended), key=lambda n: ends[n])
            due = climb.due_ns()
            if may and due is not None and due < ends[place]:
                reserve = self._nano(case, ladder[1], self._take(case, ladder[1]).tokens)
                may = self._budgets.take("", "hedge", reserve)
                if may:
                    begun |= dict.fromkeys(climb.tick(due).start, due)
                continue
            now = ends[place]
            ended.add(place)
            move = climb.answered(place, self._take(case, ladder[place]).state)
            begun |= dict.fromkeys(move.start, now)
            out_ns = now if move.release is not None else out_ns
        won = move.deliver if move.deliver is not None else 0
        nano = sum(self._nano(case, ladder[n], self._take(case, ladder[n]).tokens) for n in ended)
        closed = [(ladder[n], ends[won] - at) for n, at in begun.items() if n not in ended]
        vain = sum(self._closed_nano(case, rung, after_ns) for rung, after_ns in closed)
        ahead = reserve is not None and may
        if ahead:
            self._budgets.settle("", "hedge", reserve or 0.0, vain)
        self._budgets.paid("", nano)
        take = self._take(case, ladder[won])
        first = ends[won] if ladder[won].checked else max(out_ns, begun[won] + take.ttft_ns)
        used = ahead and 1 in ended
        return Flown(ladder[won].tier, first, ends[won], nano + vain, vain, take.bad, ahead, used)

    def _closed_nano(self, case: Case, rung: TierTurn, after_ns: int) -> float:
        """What an answer costs that is closed so long after its start."""
        take = self._take(case, rung)
        return self._nano(case, rung, min(take.said(after_ns) + LAG_TOKENS, take.tokens))

    def _take(self, case: Case, rung: TierTurn) -> Take:
        return case.takes[rung.tier]

    def _nano(self, case: Case, rung: TierTurn, tokens: int) -> float:
        return self._prices[rung.tier].nano(case.tokens_in, tokens)


def alone(case: Case, tier: int, prices: Sequence[TargetPrice]) -> Flown:
    take = case.takes[tier]
    nano = prices[tier].nano(case.tokens_in, take.tokens)
    return Flown(tier, take.ttft_ns, take.end_ns, nano, bad=take.bad)


def quantile(values: list[int], share: float) -> float:
    """In seconds, by nearest rank."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)] / NS


def row(name: str, flown: list[Flown], best_nano: float, serial: Sequence[Flown] = ()) -> str:
    """One line of the table; `serial` is the same without starts ahead."""
    count = len(flown)
    shares = [sum(one.tier == tier for one in flown) / count for tier in range(len(MODELS))]
    spent = sum(one.nano for one in flown)
    ends, firsts = [one.end_ns for one in flown], [one.first_ns for one in flown]
    started = sum(one.ahead for one in flown)
    saved = [was.end_ns - one.end_ns for one, was in zip(flown, serial, strict=False) if one.used]
    cells = [
        name,
        " / ".join(f"{share:.0%}" for share in shares),
        f"{spent / count / 1e6:.2f}",  # nano-dollars per request to dollars per 1,000
        f"{spent / best_nano:.0%}",
        f"{quantile(ends, 0.5):.1f} / {quantile(ends, 0.95):.1f}",
        f"{quantile(firsts, 0.5):.1f} / {quantile(firsts, 0.95):.1f}",
        f"{sum(one.bad for one in flown) / count:.1%}",
        f"{started / count:.1%}" if started else "-",
        f"{len(saved) / started:.0%}" if started else "-",
        f"{statistics.mean(saved) / NS:.1f}" if saved else "-",
        f"{sum(one.vain_nano for one in flown) / spent:.1%}" if started else "-",
    ]
    return f"  | {' | '.join(cells)} |"


def cascades() -> dict[str, Cascade]:
    """The cascade without checks, with checks, and with starts ahead."""
    alias = Alias(name="smart", targets=MODELS, policy="cascade")
    tiers = [("simple", MODELS[:1]), ("medium", MODELS[1:2]), (None, MODELS[2:])]
    checks = ("checked",)

    def made(verify: tuple[str, ...], ahead_s: float | None) -> Cascade:
        ahead_ns = None if ahead_s is None else int(ahead_s * NS)
        return cascade_of(msgspec.structs.replace(alias, ahead_ns=ahead_ns), tiers, verify)  # type: ignore[arg-type]  # levels, as literals

    early = {f"checked, ahead at {ahead_s:g} s": made(checks, ahead_s) for ahead_s in AHEAD_S}
    return {"cascade": made((), None), "checked": made(checks, None)} | early


def against_single(found: list[tuple[Prompt, Level]], odds: Odds, rounds: int) -> bool:
    """Print cost and time of cascades beside each model alone; whether the promises hold."""
    prices = token_prices()
    asked = cases(found, odds, rounds)
    single = {
        name: [alone(case, tier, prices) for case in asked] for tier, name in enumerate(MODELS)
    }
    best = min(single, key=lambda name: sum(one.bad for one in single[name]))
    best_nano = sum(one.nano for one in single[best])
    print(f"\n{len(asked)} simulated requests: {len(found)} prompts, with other luck each time")
    lengths = ", ".join(map(str, TOKENS))
    print(f"  speeds and prices: the world {WORLD}, {LOAD} in flight at each; nothing breaks down")
    print(f"  assumed: answers of {lengths} tokens by label; {odds.bad:.0%} are bad, and of the")
    print(f"  rest {odds.below:.0%} for each tier that is too small; checks fail {odds.caught:.0%}")
    print(f"  of the bad and {odds.alarm:.0%} of the good; the next tier has luck of its own")
    print(f"  best single model: {best}, for its fewest bad answers\n")
    print("  | all to / policy | answered by tier | $ per 1,000 | of best single", end="")
    print(" | end p50 / p95 s | first token s | bad | ahead | needed | saves s", end="")
    print(" | spent in vain |")
    print("  |---|---|---|---|---|---|---|---|---|---|---|")
    for name, flown in single.items():
        print(row(name, flown, best_nano))
    holds, serial = True, list[Flown]()
    for name, cascade in cascades().items():
        course = Course(cascade, prices)
        flown = [course.fly(case) for case in asked]
        print(row(name, flown, best_nano, serial))
        if cascade.ahead_ns is None:
            serial = flown
            continue
        vain, spent = sum(one.vain_nano for one in flown), sum(one.nano for one in flown)
        slower = sum(one.end_ns > was.end_ns for one, was in zip(flown, serial, strict=True))
        holds = holds and vain <= SPEND * spent and not slower
    return holds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=150, help="requests made of each prompt")
    for name, value in msgspec.structs.asdict(Odds()).items():
        parser.add_argument(f"--{name}", type=float, default=value, help=f"share; {value:g}")
    parser.add_argument("--wrong", action="store_true", help="list what was told wrong in the fit")
    options = parser.parse_args()
    everything = prompts()
    found = [(prompt, told(prompt, place)) for place, prompt in enumerate(everything)]
    rivals = rivals_of(everything)
    languages = Counter(prompt.lang for prompt in everything)
    print(f"{len(everything)} prompts in {len(languages)} languages")
    parts = parts_of(found)
    margins = {name: report(name, part, rivals) for name, part in parts.items()}
    print("\nbetter than the best trivial rule by, in points:")
    print("  " + ", ".join(f"{name} {100 * margin:.1f}" for name, margin in margins.items()))
    kept_out = [margin for name, margin in margins.items() if name not in FIT_SETS]
    if options.wrong:
        for prompt, level in found:
            if prompt.set in FIT_SETS and prompt.level != level:
                print(f"  {prompt.id} told {level}: {prompt.text[:70]!r}")
    odds = Odds(options.bad, options.below, options.caught, options.alarm)
    ordinary = parts["late"] + parts["fresh, ordinary"]
    holds = against_single(ordinary, odds, options.rounds)
    return 0 if cost() and holds and min(kept_out) >= MARGIN else 6


if __name__ == "__main__":
    sys.exit(main())
