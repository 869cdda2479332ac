"""Every table and key of `lightgate.toml`, with its default.

Importing this module loads pydantic: only code that holds a configuration does so.
"""

from __future__ import annotations

from datetime import date
from typing import Any, Final, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

from lightgate.config.notation import parse_duration
from lightgate.config.values import (
    CHECKS,
    ApiKey,
    Auth,
    AutoDuration,
    BaseUrl,
    Check,
    Dollars,
    Duration,
    Flag,
    Hedge,
    HourlyCost,
    LedgerUrl,
    Name,
    Policy,
    Positive,
    SentHeaders,
    SentQuery,
    Share,
    SharedUrl,
    TargetName,
    TargetOrProvider,
    WebOrigin,
    Whole,
)

_LEVELS: Final = ("simple", "medium", "complex")


class ConfigTable(BaseModel):
    """A table of the file: immutable, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class BreakerTable(ConfigTable):
    """The circuit breaker of a failing target; read by the gateway."""

    streak: Whole = Field(
        default=3, ge=1, description="hard failures in a row that open the breaker"
    )
    open: Duration = Field(
        default=parse_duration("5s"), description="first pause; doubles up to max_open"
    )
    max_open: Duration = Field(default=parse_duration("300s"), description="longest pause")

    @model_validator(mode="after")
    def _order(self) -> Self:
        if self.open > self.max_open:
            raise ValueError("open is longer than max_open")
        return self


class ProbesTable(ConfigTable):
    """The small requests of the gateway's own that keep the form of targets fresh."""

    on: Flag = Field(default=True, description="whether targets are probed at all")
    every: Duration = Field(
        default=parse_duration("10s"),
        description="how long a target must have been without a request before it is probed",
    )
    share: Share = Field(
        default=0.01, le=1, description="most that probes may cost, as a share of users' spend"
    )
    max_usd_per_day: Positive = Field(
        default=1.0, description="most that probes may cost in a day, in dollars"
    )


class ResponsesTable(ConfigTable):
    """The responses that are kept for `previous_response_id`; read by the gateway."""

    keep: Flag = Field(
        default=True, description="keep translated responses unless a request says store = false"
    )
    ttl: Duration = Field(
        default=parse_duration("24h"), description="how long after the last use of its conversation"
    )
    max_bytes: Whole = Field(
        default=256 * 1_048_576, ge=1_048_576, description="largest size of all that is kept"
    )


class BatchesTable(ConfigTable):
    """Files and batches that clients leave with the gateway; read by the gateway."""

    on: Flag = Field(default=True, description="serve /v1/files, /v1/batches, /v1/messages/batches")
    max_file_bytes: Whole = Field(
        default=200 * 1_048_576, ge=1024, le=1_073_741_824, description="largest file"
    )
    max_lines: Whole = Field(default=50_000, ge=1, le=1_000_000, description="lines of one batch")
    files_per_key: Whole = Field(default=1_000, ge=1, description="files of one key")
    bytes_per_key: Whole = Field(
        default=2_048 * 1_048_576, ge=1024, description="bytes of all files of one key"
    )
    max_bytes: Whole = Field(
        default=8_192 * 1_048_576, ge=1024, description="bytes of all files of all keys"
    )
    batches_per_key: Whole = Field(
        default=20, ge=1, description="batches of one key that are under way"
    )
    keep: Duration = Field(
        default=parse_duration("30d"), description="how long files and results are kept"
    )
    at_once: Whole = Field(
        default=16, ge=1, le=256, description="lines of all batches that are under way"
    )


class LimitsTable(ConfigTable):
    """What all clients of one worker may hold together; 0 is no limit; read by the gateway."""

    connections: Whole | None = Field(
        default=None, ge=1, description="open connections; by default what the open files allow"
    )
    connections_per_address: Whole = Field(default=0, ge=0, description="of them, from one address")
    requests: Whole = Field(default=0, ge=0, description="requests under way")
    requests_per_key: Whole = Field(default=0, ge=0, description="of them, with one key")
    body_bytes: Whole = Field(
        default=256 * 1_048_576,
        ge=0,
        description="bytes of request bodies; one key, or one address without keys, may hold half",
    )
    values: Whole = Field(
        default=100_000, ge=0, description="JSON objects and lists in one request body"
    )


class TracesTable(ConfigTable):
    """Traces for an OpenTelemetry collector; off without an endpoint; read by the gateway."""

    endpoint: str = Field(
        default="",
        pattern=r"^(https?://\S+)?$",
        description="URL of the collector, such as http://127.0.0.1:4318/v1/traces",
    )
    sample: Share = Field(default=1.0, le=1, description="share of traces, where no client decides")


class GatewayTable(ConfigTable):
    """The gateway's address, workers and files; read by the gateway."""

    host: str = Field(default="127.0.0.1", min_length=1, description="address to listen on")
    port: Whole = Field(default=8080, ge=0, le=65535, description="port; 0 takes a free one")
    workers: Whole = Field(default=1, ge=1, le=256, description="processes that serve requests")
    data: str = Field(
        default="./lightgate-data", min_length=1, description="folder for journals and ledger"
    )
    drain: Duration = Field(
        default=parse_duration("30s"), description="how long open streams may finish at the end"
    )
    max_body_bytes: Whole = Field(
        default=32 * 1_048_576, ge=1, le=1_073_741_824, description="largest request body"
    )
    keep_alive: Duration = Field(
        default=parse_duration("15s"),
        description="silence after which a stream gets an SSE comment",
    )
    auto: Flag = Field(
        default=False,
        description="a bare model name is routed over all keyed providers that have the model",
    )
    cors: tuple[WebOrigin, ...] = Field(
        default=(), description="origins of web pages that may use the gateway; none by default"
    )
    breaker: BreakerTable = Field(default_factory=BreakerTable, description="circuit breaker")
    limits: LimitsTable = Field(default_factory=LimitsTable, description="limits of a worker")
    probes: ProbesTable = Field(
        default_factory=ProbesTable, description="small requests of the gateway's own"
    )
    traces: TracesTable = Field(default_factory=TracesTable, description="traces by OTLP")
    responses: ResponsesTable = Field(
        default_factory=ResponsesTable, description="responses that are kept"
    )
    batches: BatchesTable = Field(
        default_factory=BatchesTable, description="files and batches that are kept"
    )


class LedgerTable(ConfigTable):
    """The ledger that keeps the records; read by the gateway."""

    url: LedgerUrl = Field(
        default="sqlite", description='"sqlite", "postgresql://…", or "env:NAME"'
    )
    retention: Duration = Field(
        default=parse_duration("30d"), description="how long single requests are kept"
    )


class SharedTable(ConfigTable):
    """The state that several machines share; read by the gateway."""

    url: SharedUrl = Field(
        default="",
        description='"": this machine shares nothing; or a Valkey or Redis server, such as'
        ' "redis://host:6379", "rediss://..." with TLS, or "env:NAME"',
    )


class ProviderTable(ConfigTable):
    """A provider: changes to a known one, or an endpoint of your own."""

    like: Name | None = Field(
        default=None,
        description="a provider of the catalogue that this one is, under another name: a second"
        " key, region or account",
    )
    base_url: BaseUrl | None = Field(
        default=None, description="base URL; needed for an unknown name"
    )
    dialect: Literal["openai", "anthropic", "gemini"] | None = Field(
        default=None, description="openai, anthropic or gemini; openai for an unknown name"
    )
    api_key: ApiKey | None = Field(
        default=None, description='"env:NAME" or "none"; the key itself is refused'
    )
    auth: Auth | None = Field(
        default=None,
        description='how the key travels: "bearer", "header:NAME" or the name alone, "query:NAME",'
        ' "none"; or what stands in for a key: "sigv4" (AWS), "google", "azure" (Entra ID)',
    )
    headers: SentHeaders = Field(
        default_factory=dict,
        description='further headers of every request; a value may be "env:NAME"',
    )
    query: SentQuery = Field(
        default_factory=dict,
        description="query parameters of every request, such as api-version; a value may be"
        ' "env:NAME"',
    )
    kinds: tuple[str, ...] = Field(
        default=(), description="endpoints it has, such as chat, responses and embedding"
    )
    quirks: dict[str, Any] = Field(
        default_factory=dict, description="how it deviates from its dialect, quirk by quirk"
    )
    hourly_cost: HourlyCost | None = Field(
        default=None,
        description="self-hosted: dollars per hour instead of token prices; of a machine that was"
        ' bought "30000/3y + 700W*0.30": price, years, watts, dollars per kilowatt hour',
    )
    abort_stops_billing: Flag | None = Field(
        default=None, description="whether closing a stream stops the bill"
    )
    engine_metrics: Flag | BaseUrl = Field(
        default=False,
        description="self-hosted: where its engine (vLLM, SGLang, llama.cpp, TGI) says what runs"
        " and what waits, for the router; true: /metrics on the host of base_url, or an address",
    )
    variables: dict[str, str] = Field(
        default_factory=dict,
        description="values for the variables of a templated base URL, and of what stands in for a"
        " key, such as AWS_PROFILE",
    )


class SloTable(ConfigTable):
    """The service levels that a target must meet to be eligible; read by the gateway."""

    ttft_p50: Duration | None = Field(default=None, description="time to first token, median")
    ttft_p95: Duration | None = Field(default=None, description="time to first token, 95 %")
    ttft_p99: Duration | None = Field(default=None, description="time to first token, 99 %")
    ttfa_p50: Duration | None = Field(
        default=None, description="time to first answer token, median"
    )
    ttfa_p95: Duration | None = Field(default=None, description="time to first answer token, 95 %")
    e2e_p50: Duration | None = Field(default=None, description="whole answer, median")
    e2e_p95: Duration | None = Field(default=None, description="whole answer, 95 %")
    speed_p5: Positive | None = Field(
        default=None, description="tokens per second while decoding, slow 5 %"
    )
    speed_p50: Positive | None = Field(
        default=None, description="tokens per second while decoding, median"
    )
    speed_total_p50: Positive | None = Field(
        default=None, description="tokens per second in total, median"
    )


class CacheTable(ConfigTable):
    """Whether equal requests may be answered from memory; read by the gateway."""

    mode: Literal["off", "exact", "any"] = Field(
        default="off", description="off, exact (temperature 0 only) or any (every temperature)"
    )
    ttl: Duration = Field(default=parse_duration("1h"), description="how long an answer is kept")
    pace: Literal["instant", "recorded"] = Field(
        default="instant", description="how a kept stream is given: instant or recorded"
    )
    store: Literal["memory", "ledger", "shared"] = Field(
        default="ledger",
        description="where answers are kept: memory; ledger, on disk too; shared, for all machines"
        " in the store of shared.url",
    )


_TWICE: Final = (
    'a target is named twice; with one target, hedge = "auto" starts a second attempt at it on'
    " another connection, and retries asks it again"
)


class TierTable(ConfigTable):
    """One step of a cascade; read by the gateway."""

    upto: Literal["simple", "medium", "complex"] | None = Field(
        default=None,
        description="hardest request here: simple, medium, complex; left out in the last tier",
    )
    targets: tuple[TargetName, ...] = Field(min_length=1, description="targets of this tier")

    @model_validator(mode="after")
    def _once(self) -> Self:
        if len(set(self.targets)) != len(self.targets):
            raise ValueError(_TWICE)
        return self


class ModelTable(ConfigTable):
    """A model that clients ask for, its targets and its policy; read by the gateway."""

    targets: tuple[TargetName, ...] = Field(default=(), description="candidates, provider/model")
    policy: Policy = Field(
        default="chat", description=f"how a target is chosen: {', '.join(get_args(Policy))}"
    )
    weights: tuple[Share, ...] = Field(
        default=(),
        description='shares of the targets with policy "weighted"; 0: a fallback; equal if absent',
    )
    hedge: Hedge = Field(
        default="auto",
        description='when a second one is started: "off", "auto", "p75" to "p99", or a duration;'
        " with one target at that target, and only if it is set here",
    )
    race: Whole = Field(
        default=1,
        ge=1,
        le=8,
        description="targets started at once, for keys that may race (and where there are no keys)",
    )
    ttft_timeout: AutoDuration = Field(default=None, description='first-token deadline, or "auto"')
    timeout: Duration = Field(default=parse_duration("120s"), description="whole request")
    idle_timeout: Duration = Field(
        default=parse_duration("60s"), description="longest silence in a stream"
    )
    retries: Whole = Field(default=0, ge=0, le=10, description="on the same target")
    max_tokens: Whole | None = Field(
        default=None, ge=1, description="cap, also where the client names none"
    )
    trim: Flag = Field(
        default=False,
        description="leave out doubled system text and trailing white space outside code",
    )
    concise: Flag = Field(default=False, description="ask for a short answer in the system text")
    untranslatable: Literal["drop", "refuse"] = Field(
        default="drop",
        description="what becomes of a field that a target cannot be told and the answer does not"
        " hang on: drop (named in x-lightgate-dropped) or refuse",
    )
    slo: SloTable | None = Field(default=None, description="service levels that a target must meet")
    cache: CacheTable | None = Field(default=None, description="answers from memory")
    tiers: tuple[TierTable, ...] = Field(default=(), description="steps of a cascade")
    verify: tuple[Check, ...] = Field(
        default=(),
        description="checks that send an answer one tier up when it fails one:"
        f" {', '.join(CHECKS)}, or your own",
    )
    ahead: Duration | None = Field(
        default=None,
        description="how long after a request's start the next tier starts beside one whose answer"
        " is checked; without it, only once that one has failed",
    )

    learned_bounds: Flag = Field(
        default=False,
        description="learn from the checks which requests a tier is too small for, and start those"
        " one tier higher",
    )

    @model_validator(mode="after")
    def _shares(self) -> Self:
        if len(set(self.targets)) != len(self.targets):
            raise ValueError(_TWICE)
        if self.weights and self.policy != "weighted":
            raise ValueError('weights belong to policy "weighted"')
        if self.weights and len(self.weights) != len(self.targets):
            raise ValueError("weights needs one number for each target")
        if self.weights and not any(self.weights):
            raise ValueError("weights needs a number above 0")
        return self

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.policy == "cascade":
            if not self.tiers:
                raise ValueError('policy "cascade" needs tiers')
            if any(tier.upto is None for tier in self.tiers[:-1]):
                raise ValueError("every tier but the last needs upto")
            order = [_LEVELS.index(tier.upto) for tier in self.tiers[:-1] if tier.upto is not None]
            if order != sorted(set(order)) or _LEVELS[-1] in [t.upto for t in self.tiers[:-1]]:
                raise ValueError("every tier takes harder requests than the one before it")
            if self.ahead is not None and not self.verify:
                raise ValueError("ahead needs verify: without checks no answer waits")
            if self.learned_bounds and not self.verify:
                raise ValueError("learned_bounds needs verify: it learns from the checks")
        elif self.verify or self.ahead is not None or self.learned_bounds:
            set_here = {"verify": self.verify, "ahead": self.ahead is not None}
            name = next((name for name, there in set_here.items() if there), "learned_bounds")
            raise ValueError(f'{name} belongs to policy "cascade"')
        elif self.tiers:
            raise ValueError('tiers belong to policy "cascade"')
        elif not self.targets:
            raise ValueError("a model needs targets")
        return self


class ServiceTierTable(ConfigTable):
    """Your own price of one target under a service tier, in dollars per million tokens."""

    input: Dollars = Field(description="prompt tokens")
    output: Dollars = Field(description="answer tokens")
    cached: Dollars | None = Field(default=None, description="prompt tokens read from the cache")
    cache_write: Dollars | None = Field(
        default=None, description="prompt tokens written to the cache"
    )


class PriceTable(ConfigTable):
    """Your own price of one target, in dollars per million tokens."""

    input: Dollars = Field(description="prompt tokens")
    output: Dollars = Field(description="answer tokens")
    cached: Dollars | None = Field(default=None, description="prompt tokens read from the cache")
    cache_write: Dollars | None = Field(
        default=None, description="prompt tokens written to the cache"
    )
    batch_input: Dollars | None = Field(default=None, description="prompt tokens in a batch")
    batch_output: Dollars | None = Field(default=None, description="answer tokens in a batch")
    characters: Dollars | None = Field(
        default=None, description="a million characters that are spoken"
    )
    audio_hour: Dollars | None = Field(default=None, description="an hour of a recording")
    input_audio: Dollars | None = Field(
        default=None, description="prompt tokens of sound; else as `input`"
    )
    output_audio: Dollars | None = Field(default=None, description="answer tokens of sound")
    output_image: Dollars | None = Field(default=None, description="answer tokens of pictures")
    calls: dict[str, Dollars] = Field(
        default_factory=dict,
        description="a thousand calls of a tool that the provider carries out itself, by kind",
    )
    tiers: dict[str, ServiceTierTable] = Field(
        default_factory=dict, description="prices under a service tier, by its name"
    )
    as_of: date | None = Field(default=None, description="the day from which the price is known")


class PriorTable(ConfigTable):
    """The speed of a target as known before its first request; read by the gateway."""

    ttft: Duration | None = Field(default=None, description="time to first token, median")
    ttft_p95: Duration | None = Field(
        default=None, description="time to first token, 95 %; needs ttft"
    )
    speed: Positive | None = Field(
        default=None, description="tokens per second while decoding, median"
    )

    @model_validator(mode="after")
    def _some(self) -> Self:
        if self.ttft is None and self.speed is None:
            raise ValueError("a prior needs ttft or speed")
        if self.ttft_p95 is not None and (self.ttft is None or self.ttft_p95 < self.ttft):
            raise ValueError("ttft_p95 needs a ttft that is not longer")
        return self


class Config(ConfigTable):
    """The whole file."""

    gateway: GatewayTable = Field(default_factory=GatewayTable, description="the gateway")
    ledger: LedgerTable = Field(default_factory=LedgerTable, description="where records are kept")
    shared: SharedTable = Field(default_factory=SharedTable, description="what machines share")
    providers: dict[Name, ProviderTable] = Field(default_factory=dict, description="by name")
    models: dict[str, ModelTable] = Field(
        default_factory=dict, description="by the name clients use"
    )
    prices: dict[TargetName, PriceTable] = Field(default_factory=dict, description="by target")
    priors: dict[TargetOrProvider, PriorTable] = Field(
        default_factory=dict, description="by target, or by provider for all of its models"
    )
