"""The tables of a world: its simulated providers, their models, answers, weather and faults.

A world names providers; a provider names models; a model has either a curve (lognormal TTFT and
speed by load) or an exact script.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Literal

import msgspec

Family = Literal["openai", "anthropic", "gemini"]
UsageStyle = Literal["auto", "absent", "finish", "separate", "late", "every", "fused"]


class WorldTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table of a world file; an unknown key is an error."""


class LoadPoint(WorldTable, frozen=True):
    """A model at one load: p50 and p95 of TTFT in ms, p50 and slow p95 of tokens per second."""

    load: int
    ttft_ms: tuple[float, float]
    tps: tuple[float, float]


class Exact(WorldTable, frozen=True):
    """A script without chance: TTFT and the time per token in ms (a pair: uniform between them)."""

    ttft_ms: float
    gap_ms: float | tuple[float, float]


class Stall(WorldTable, frozen=True):
    """One pause after this share of the tokens, in every n-th stream or in a share of them."""

    ms: float
    at: float = 0.5
    share: float = 0.0
    every: int = 0
    phase: int = 0


class AnswerShape(WorldTable, frozen=True):
    """The shape of an answer: its chunks, segments and contents."""

    tokens: int | None = None  # natural length; None: as long as the request allows
    ends: Literal["length", "stop"] = "length"  # why it ends where it is as long as that
    chunk: int = 1  # tokens per SSE event
    first: int = 1  # tokens in the first burst
    events: int = 1  # SSE events per segment
    head_ms: float = 0.0  # when the status line goes out
    role_ms: float | None = None  # when the role chunk goes out; None: with the first token
    tail_ms: float = 0.0  # from the last token to the finish chunk
    reasoning: float = 0.0  # share of the tokens that are visible reasoning
    hidden: float = 0.0  # share of the tokens that are reasoning only seen in the usage
    reasoning_field: Literal["reasoning_content", "reasoning"] = "reasoning_content"
    answer: Literal["text", "tool", "mixed"] = "text"
    usage: UsageStyle = "auto"
    usage_late_ms: float = 40.0
    line_end: Literal["lf", "crlf", "cr"] = "lf"
    comments: bool = False  # a comment before every event
    wide: bool = False  # multi-byte text: four characters and ten bytes a token
    split_ms: float | None = None  # send the first half of a character this much earlier
    stall: Stall | None = None


class Weather(WorldTable, frozen=True):
    """The weather: failures and slow spells by chance; durations in seconds, shares per request."""

    good_mean_s: float = 1800.0
    bad_mean_s: float = 180.0
    bad_ttft: float = 5.0
    bad_tps: float = 0.6
    bad_stall: float = 5.0
    bad_fail: float = 0.05
    stall: float = 0.01
    mid_stall: float = 0.005
    stall_median_s: float = 4.0
    stall_sigma: float = 0.7
    fail: float = 0.005
    fail_s: float = 0.15
    hang: float = 0.001
    shock_every_s: float = 7200.0
    shock_mean_s: float = 180.0
    shock_ttft: float = 2.0


class WorldRate(WorldTable, frozen=True):
    """Limits over requests and tokens: so many a second, so many at once.

    Where `headers` are sent, every answer states the limits of a minute, in the dialect's words.
    """

    per_s: float
    burst: int = 1
    tokens_per_s: float = 0.0  # of prompts and answers; 0: no such limit
    tokens_burst: int = 0
    headers: bool = False


class WorldCache(WorldTable, frozen=True):
    """A prompt cache: beginnings of prompts in whole blocks, kept for a while after their last use.

    A prompt that is all cached has its TTFT shortened by the share `saves`, a part of it by as much
    less.
    """

    block: int = 16  # tokens
    least: int = 0  # tokens; a shorter beginning does not count
    saves: float = 0.8
    keep_s: float = 300.0
    blocks: int = 100_000  # kept at most


class FaultRule(WorldTable, frozen=True):
    """A fault by name for every n-th request (n % every == phase) or a share of them."""

    name: str
    arg: str = ""
    every: int = 0
    phase: int = 0
    share: float = 0.0


class WorldBatch(WorldTable, frozen=True):
    """A batch API: its form, when its jobs finish and what becomes of their lines.

    The time of a whole job is lognormal; its lines finish one after the other until then. Shares
    are of lines, drawn by their numbers.
    """

    form: Literal["openai", "groq", "together", "mistral"] | None = None  # None: the dialect's own
    finish_s: tuple[float, float] = (420.0, 3600.0)  # p50 and p90 of the time of a job
    window_s: float = 86_400.0  # what is not finished then expires
    cancel_s: float = 0.0  # from a cancel to its end; lines finish meanwhile
    keep_s: float = 2_592_000.0  # how long results are kept after the end
    price: float = 0.5  # share of the usual price
    errors: float = 0.0  # share of lines that end in an error
    stuck: float = 0.0  # share of lines that never finish
    lost_every: int = 0  # every n-th job is made, and the answer that says so is lost
    refused_every: int = 0  # every n-th submission is refused with 429
    most_lines: int = 50_000


class WorldPrice(WorldTable, frozen=True):
    """Dollars per million tokens."""

    input: Decimal
    output: Decimal


class ScriptedCall(WorldTable, frozen=True):
    """A call of a tool by its name on offer; `*` is whichever is demanded or offered first."""

    tool: str
    arguments: dict[str, Any] = {}


class ScriptedTurn(WorldTable, frozen=True):
    """One answer word for word: the first call whose tool is on offer, else the text."""

    calls: tuple[ScriptedCall, ...] = ()
    say: str = ""  # empty: the text of the last turn
    echo: bool = False  # the text is the prompt


class WorldModel(WorldTable, frozen=True):
    """One model of a provider: a curve or an exact script, and the shape of its answers."""

    curve: tuple[LoadPoint, ...] = ()
    exact: Exact | None = None
    shape: AnswerShape = AnswerShape()
    turns: tuple[ScriptedTurn, ...] = ()  # by the number of tool results so far; empty: made up
    faults: tuple[FaultRule, ...] = ()
    price: WorldPrice | None = None


class WorldProvider(WorldTable, frozen=True):
    """One simulated provider."""

    title: str = ""
    dialect: Family = "openai"
    key: str | None = None  # None: any key is welcome
    load: int | None = None  # None: as many as are in flight
    slots: int | None = None  # None: no queue
    rate: WorldRate | None = None
    cache: WorldCache | None = None  # None: every prompt is read anew
    weather: Weather | None = None
    faults: tuple[FaultRule, ...] = ()
    batch: WorldBatch | None = None  # None: it has no batch API
    hourly_cost: Decimal | None = None
    models: dict[str, WorldModel] = {}


class World(WorldTable, frozen=True):
    """A set of simulated providers; `source` says where its numbers come from."""

    name: str
    title: str
    source: str
    providers: dict[str, WorldProvider]
    weather: Weather | None = None
