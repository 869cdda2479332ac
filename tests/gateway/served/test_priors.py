"""What is known of targets beforehand reaches the workers."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import msgspec
import pytest

from ledger.notes import T0
from ledger.store.test_seen import answer, cell, keep
from lightgate.config.load import parse_config
from lightgate.gateway.served.priors import gather_priors, priors_of
from lightgate.gateway.served.resolve import make_snapshot
from lightgate.gateway.served.served import Served
from lightgate.gateway.served.snapshot import (
    priors_differ,
    put_snapshot,
    read_snapshot,
    refresh_keys,
    refresh_priors,
)
from lightgate.ledger.runs.history import HISTORY, History
from lightgate.ledger.runs.run import Run
from lightgate.ledger.sqlite import FILE
from lightgate.ledger.store.keys import KeyTerms, new_key
from lightgate.ledger.store.store import Ledger
from lightgate.route.form.prior import DEFAULT, Prior
from lightgate.route.form.slo import ServiceLevels

if TYPE_CHECKING:
    from pathlib import Path

NOW = datetime.fromtimestamp(T0 / 1e9, UTC) + timedelta(hours=30)
LAB = '[providers.lab]\nbase_url = "http://127.0.0.1:9/v1"\napi_key = "none"\n'
CONFIG = (
    LAB
    + """
[providers.groq]
base_url = "http://127.0.0.1:9/v1"
api_key = "none"
[models.m]
targets = ["lab/s1", "lab/new", "groq/m"]
[models.alone]
targets = ["lab/lonely"]
[models.tiered]
policy = "cascade"
tiers = [{ upto = "simple", targets = ["lab/s1"] }, { targets = ["lab/dear"] }]
[priors.groq]
ttft = "123ms"
"""
)


def test_from_the_configuration_the_ledger_and_the_runs(tmp_path: Path) -> None:
    with Ledger.open("sqlite", tmp_path) as ledger:
        keep(ledger, tmp_path, [answer(f"x-{n}", 1, 100) for n in range(30)])
    with History(tmp_path / HISTORY) as history:
        history.append(Run(id="1", started=NOW.isoformat(), cells=(cell(1, 50.0),)), [])
    found = gather_priors(parse_config(CONFIG), tmp_path, NOW)
    assert {target: word.source for target, word in found.items()} == {
        "lab/s1": "traffic", "lab/new": "same alias", "groq/m": "config", "lab/lonely": "default",
        "lab/dear": "default",  # another tier is another model
    }  # fmt: skip
    assert found["groq/m"].prior.ttft_ms == 123.0
    assert found["groq/m"].prior.speed_tps == 200.0  # of the run
    assert found["lab/s1"].prior.ttft_ms == pytest.approx(100.0, rel=0.02)
    assert set(priors_of(found)) == {"lab/s1", "lab/new", "groq/m"}


def test_nothing_is_made_where_nothing_is(tmp_path: Path) -> None:
    found = gather_priors(parse_config(CONFIG), tmp_path / "none", NOW)
    assert found["lab/s1"].source == "default"
    assert not (tmp_path / "none").exists()


def test_a_broken_ledger_stops_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / FILE).write_bytes(b"not a database, and longer than a page is" * 1000)
    with caplog.at_level(logging.WARNING):
        found = gather_priors(parse_config(CONFIG), tmp_path, NOW)
    assert found["lab/s1"].source == "default"
    assert "priors are made without this source" in caplog.text


def test_a_house_believes_what_the_snapshot_says() -> None:
    config = parse_config(LAB + '[models.m]\ntargets = ["lab/a", "lab/b"]\n')
    prior = Prior(90.0, 200.0, 300.0, 250.0)
    served = Served(make_snapshot(config, (), {}, priors={"lab/a": prior}), {})
    assert served.priors == {"lab/a": prior, "lab/b": DEFAULT}


def test_the_service_levels_reach_the_router() -> None:
    text = LAB + '[models.m]\ntargets = ["lab/a"]\nslo = { ttft_p95 = "500ms", speed_p50 = 80 }\n'
    (alias,) = make_snapshot(parse_config(text), (), {}).aliases
    assert alias.slo == ServiceLevels(ttft_p95=500_000_000, speed_p50=80.0)


def test_other_priors_leave_the_rest_of_the_snapshot_alone(tmp_path: Path) -> None:
    config = parse_config(LAB + '[models.m]\ntargets = ["lab/a"]\n')
    put_snapshot(tmp_path, make_snapshot(config, (), {}))
    _, record = new_key(KeyTerms(name="ci"))
    refresh_keys(tmp_path, (record,))
    prior = Prior(90.0, 200.0, 300.0, 250.0)
    assert refresh_priors(tmp_path, {"lab/a": prior})
    found = read_snapshot(tmp_path)
    assert (found.priors, found.keys, found.aliases[0].name) == ({"lab/a": prior}, (record,), "m")
    assert not refresh_priors(tmp_path, {"lab/a": msgspec.structs.replace(prior, ttft_ms=95.0)})
    assert read_snapshot(tmp_path) == found


def test_workers_hear_of_what_matters() -> None:
    prior = Prior(100.0, 200.0, 300.0, 250.0)
    assert not priors_differ({"a": prior}, {"a": msgspec.structs.replace(prior, speed_tps=320.0)})
    assert priors_differ({"a": prior}, {"a": msgspec.structs.replace(prior, speed_tps=340.0)})
    assert priors_differ({"a": prior}, {"a": msgspec.structs.replace(prior, ttft_ms=80.0)})
    assert priors_differ({}, {"a": prior})
    assert not priors_differ({"a": prior}, {"a": prior})
