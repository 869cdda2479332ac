"""Every setting of the gateway and of a model reaches the snapshot that workers are told."""

from __future__ import annotations

from lightgate.config.load import parse_config
from lightgate.gateway.served.resolve import make_snapshot
from lightgate.gateway.served.snapshot import (
    BatchTerms,
    KeptTerms,
    LoadTerms,
    ProbeTerms,
    WorkerTerms,
)
from lightgate.route.form.slo import ServiceLevels
from lightgate.route.health.breaker import Rules
from lightgate.route.plan.alias import Alias
from lightgate.route.prompt.cache_key import CacheRule

S = 1_000_000_000
LAB = """
[providers.lab]
base_url = "http://127.0.0.1:9/v1"
api_key = "none"
"""
GATEWAY = """
[gateway]
keep_alive = "3s"
max_body_bytes = 7
cors = ["https://a.test"]
auto = true
[gateway.breaker]
streak = 9
open = "2s"
max_open = "7s"
[gateway.responses]
keep = false
ttl = "5s"
max_bytes = 2097152
[gateway.batches]
on = false
max_file_bytes = 2001
max_lines = 3
files_per_key = 4
bytes_per_key = 5005
max_bytes = 6006
batches_per_key = 7
keep = "8s"
at_once = 9
[gateway.probes]
on = false
every = "4s"
share = 0.5
max_usd_per_day = 0.25
[gateway.limits]
connections = 11
connections_per_address = 12
requests = 13
requests_per_key = 14
body_bytes = 15
values = 16
"""


def test_what_holds_for_all_clients() -> None:
    made = make_snapshot(parse_config(LAB + GATEWAY), (), {})
    assert made.auto
    assert made.terms == WorkerTerms(
        keep_alive_ns=3 * S,
        max_body_bytes=7,
        cors=("https://a.test",),
        breaker=Rules(streak=9, open_ns=2 * S, max_open_ns=7 * S),
        responses=KeptTerms(keep=False, ttl_ns=5 * S, max_bytes=2_097_152),
        batches=BatchTerms(
            on=False,
            max_file_bytes=2001,
            max_lines=3,
            files_per_key=4,
            bytes_per_key=5005,
            max_bytes=6006,
            batches_per_key=7,
            keep_ns=8 * S,
            at_once=9,
        ),
        probes=ProbeTerms(on=False, every_ns=4 * S, share=0.5, day_nano=250_000_000),
        limits=LoadTerms(
            connections=11,
            connections_per_address=12,
            requests=13,
            requests_per_key=14,
            body_bytes=15,
            values=16,
        ),
    )
    plain = make_snapshot(parse_config(LAB), (), {})
    # Probes come sooner by the file's default than by that of a worker that was told nothing.
    assert plain.terms == WorkerTerms(probes=ProbeTerms(every_ns=10 * S))
    assert not plain.auto


MODELS = """
[models.many]
targets = ["lab/a", "lab/b"]
policy = "weighted"
weights = [3, 1]
ttft_timeout = "2s"
timeout = "9s"
idle_timeout = "4s"
retries = 3
max_tokens = 77
hedge = "off"
race = 2
trim = true
concise = true
untranslatable = "refuse"
slo = { ttft_p95 = "900ms" }
cache = { mode = "any", ttl = "6s", pace = "recorded", store = "memory" }
[models.steps]
policy = "cascade"
tiers = [
    { upto = "medium", targets = ["lab/a"] },
    { targets = ["lab/b", "lab/a"] },
]
verify = ["not_truncated"]
ahead = "1s"
learned_bounds = true
"""


def test_what_holds_for_a_model() -> None:
    many, steps = make_snapshot(parse_config(LAB + MODELS), (), {}).aliases
    assert many == Alias(
        name="many",
        targets=("lab/a", "lab/b"),
        weights=(3.0, 1.0),
        policy="weighted",
        ttft_timeout_ns=2 * S,
        timeout_ns=9 * S,
        idle_timeout_ns=4 * S,
        retries=3,
        max_tokens=77,
        hedge="off",
        self_hedge=True,
        race=2,
        trim=True,
        concise=True,
        untranslatable="refuse",
        slo=ServiceLevels(ttft_p95=900_000_000),
        cache=CacheRule(mode="any", ttl_ns=6 * S, pace="recorded", store="memory"),
    )
    assert steps == Alias(
        name="steps",
        targets=("lab/a", "lab/b"),
        policy="cascade",
        hedge=steps.hedge,
        tiers=(("medium", ("lab/a",)), (None, ("lab/b", "lab/a"))),
        verify=("not_truncated",),
        ahead_ns=S,
        learned_bounds=True,
    )
