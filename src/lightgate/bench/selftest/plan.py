"""The cells of the self test, and the error that it allows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from lightgate.clock.marks import StampSource

MS: Final = 1_000_000


class Scenario(NamedTuple):
    """One shape of stream; `models` are the variants of it in the world `selftest`."""

    name: str
    title: str
    models: tuple[str, ...]


SCENARIOS: Final = (
    Scenario("S1", "plain: one token a chunk", ("s1",)),
    Scenario("S2", "role chunk long before the text", ("s2",)),
    Scenario("S3", "bundles: four tokens a chunk, eight first", ("s3",)),
    Scenario("S4", "reasoning, then text", ("s4",)),
    Scenario("S5", "a tool call and no text", ("s5",)),
    Scenario("S6", "hidden reasoning", ("s6",)),
    Scenario(
        "S7",
        "usage absent, in the finish chunk, apart, late",
        ("s7-absent", "s7-finish", "s7-separate", "s7-late"),
    ),
    Scenario("S8", "a stall of 2 s in one of twenty", ("s8",)),
    Scenario("S10", "429, reset, empty, error in the stream", ("s10",)),
    Scenario("S12", "comments, CRLF, split characters, two events a segment", ("s12",)),
)
OTHER_DIALECTS: Final = ("lab-anthropic", "lab-gemini")
OTHER_SCENARIOS: Final = ("S1", "S3", "S4", "S5", "S6", "S10")  # where dialects differ most
SLOW: Final = Scenario("slow", "slow streams", ("slow",))


class SelftestCell(NamedTuple):
    """One measurement: a scenario at a concurrency with one kind of stamp, in one dialect."""

    scenario: Scenario
    concurrency: int
    requests: int
    tokens: int
    stamps: StampSource
    provider: str = "lab"

    @property
    def name(self) -> str:
        """The scenario, and the dialect where it is not OpenAI's."""
        return self.scenario.name + self.provider.removeprefix("lab").replace("-", " ")


class ErrorBudget(NamedTuple):
    """The largest error that passes; times in nanoseconds, shares as fractions."""

    ttft_p50_ns: int
    ttft_p99_ns: int | None
    speed_p99: float | None
    e2e_p99_ns: int | None
    offered: float = 0.98


BUDGETS: Final[dict[StampSource, ErrorBudget]] = {
    "kernel": ErrorBudget(MS // 10, MS // 5, 0.005, 2 * MS + MS // 10),
    # A read stamp may be late, but then it says so: what is held is the median and the flags.
    "read": ErrorBudget(MS // 10, None, None, None),
}


def cells(
    *, stamps: tuple[StampSource, ...], concurrency: tuple[int, ...], quick: bool
) -> list[SelftestCell]:
    """All cells of a run, cheap ones first; read stamps are held to the plain scenario alone."""
    plan: list[SelftestCell] = []
    for source in stamps:
        for workers in concurrency:
            if workers > 256:
                plan.append(SelftestCell(SLOW, workers, workers, 40 if quick else 60, source))
                continue
            few = source == "read" and "kernel" in stamps
            shapes = SCENARIOS[:1] if few else SCENARIOS
            plan += [_cell(shape, workers, source, quick=quick) for shape in shapes]
            if workers == 32 and not few:
                plan += [
                    _cell(shape, workers, source, quick=quick)._replace(provider=provider)
                    for provider in OTHER_DIALECTS
                    for shape in shapes
                    if shape.name in OTHER_SCENARIOS
                ]
    return plan


def _cell(scenario: Scenario, workers: int, source: StampSource, *, quick: bool) -> SelftestCell:
    rounds = min(12, max(2, 512 // workers))
    tokens = 20 if workers == 1 else 60
    if quick:
        rounds = max(2, rounds // 3)
    return SelftestCell(scenario, workers, workers * rounds, tokens, source)
