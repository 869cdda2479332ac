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
BESIDE: Final = (SCENARIOS[0], SCENARIOS[-1])  # beside a hog: the plain one and the hardest to read
BESIDE_AT: Final = (1, 32)  # streams
SLOW: Final = Scenario("slow", "slow streams", ("slow",))


class SelftestCell(NamedTuple):
    """One measurement: a scenario at a concurrency with one kind of stamp, in one dialect."""

    scenario: Scenario
    concurrency: int
    requests: int
    tokens: int
    stamps: StampSource
    provider: str = "lab"
    hog: bool = False  # another process wants all of the client's core

    @property
    def name(self) -> str:
        """The scenario, the dialect where it is not OpenAI's, and whether a hog was beside it."""
        dialect = self.provider.removeprefix("lab").replace("-", " ")
        return f"{self.scenario.name}{dialect}{' hog' if self.hog else ''}"


class ErrorBudget(NamedTuple):
    """The largest error that passes; times in nanoseconds, shares as fractions.

    `beyond` is how far the truth may lie outside the bounds of a stamp. A number that is None is
    not judged.
    """

    ttft_p50_ns: float | None
    send_p50_ns: float | None
    beyond_p99_ns: float = MS / 5
    beyond_speed_p99: float = 0.005
    offered: float = 0.98


def budget(cell: SelftestCell, wake_ns: float) -> ErrorBudget:
    """The budget of a cell on a machine that wakes a sleeping reader in `wake_ns`.

    A read stamp is taken when the reader has woken, so it has twice that time on top. Beside a hog
    the client may be as late as it likes: its bounds have to say so, and nothing else is judged.
    """
    if cell.hog:
        return ErrorBudget(None, None, offered=0.0)
    late = 0.0 if cell.stamps == "kernel" else 2.0 * wake_ns
    return ErrorBudget(ttft_p50_ns=MS / 10 + late, send_p50_ns=MS / 5)


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
            if workers in BESIDE_AT:
                plan += [_cell(shape, workers, source, quick=quick, hog=True) for shape in BESIDE]
    return plan


def _cell(
    scenario: Scenario, workers: int, source: StampSource, *, quick: bool, hog: bool = False
) -> SelftestCell:
    rounds = 24 if workers == 1 else min(12, max(2, 512 // workers))
    tokens = 20 if workers == 1 else 60
    if quick:
        rounds = max(2, rounds // 2 if workers == 1 else rounds // 3)
    return SelftestCell(scenario, workers, workers * rounds, tokens, source, hog=hog)
