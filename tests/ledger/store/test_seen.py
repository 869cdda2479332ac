from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from ledger.notes import T0, Called, attempt_note, marks, settled
from lightgate.clock.outcome import Outcome
from lightgate.clock.tokens import Usage, count
from lightgate.ledger.journal.journal import Journal
from lightgate.ledger.journal.ship import Shipper
from lightgate.ledger.runs.history import HISTORY, History
from lightgate.ledger.runs.run import CellSummary, Estimate, Metric, Run
from lightgate.ledger.store.lengths import answer_lengths
from lightgate.ledger.store.seen import ENOUGH, seen_in_runs, seen_in_traffic
from lightgate.ledger.store.store import Ledger

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lightgate.ledger.journal.notes import Settled

S = 1_000_000_000
HOUR_NS = 3600 * S
NOW = datetime.fromtimestamp(T0 / S, UTC) + timedelta(hours=30)


@pytest.fixture
def ledger(tmp_path: Path, ledger_url: str) -> Iterator[Ledger]:
    with Ledger.open(ledger_url, tmp_path) as opened:
        yield opened


def keep(ledger: Ledger, folder: Path, notes: list[Settled]) -> None:
    journal = Journal(folder / "journal", 0)
    for note in notes:
        journal.write(note)
    journal.close()
    Shipper(ledger, folder / "journal").drain(50)


def answer(made: str, hour: int, first_ms: int, gap_ms: int = 10, **about: Any) -> Settled:
    """Four tokens, some hours after T0."""
    wall_ns = T0 + hour * HOUR_NS
    note = attempt_note(made, marks(4, first_ms, gap_ms), wall_ns=wall_ns, **about)
    return settled(made, note, wall_ns=wall_ns)


def test_the_newest_hours_count_until_there_is_enough(ledger: Ledger, tmp_path: Path) -> None:
    old = [answer(f"old-{n}", 1, 900) for n in range(20)]
    new = [answer(f"new-{n}", 5 + n % 2, 100 + n) for n in range(ENOUGH)]
    keep(ledger, tmp_path, old + new)
    seen = seen_in_traffic(ledger, NOW)["lab/s1"]
    assert seen.n == ENOUGH
    assert seen.ttft_ms == pytest.approx(199, rel=0.02)
    assert seen.ttft_p95_ms == pytest.approx(289, rel=0.02)
    assert seen.speed_tps == pytest.approx(100.0, rel=0.02)
    assert 22 * 3600 <= seen.age_s <= 24 * 3600


def test_losers_probes_failures_and_few_answers_say_nothing(ledger: Ledger, tmp_path: Path) -> None:
    failed = attempt_note("f", called=Called(outcome=Outcome.TIMEOUT))
    keep(
        ledger,
        tmp_path,
        [
            *(answer(f"lost-{n}", 1, 100, won=False, target="a/lost") for n in range(9)),
            *(answer(f"probe-{n}", 1, 100, source="probe", target="a/probed") for n in range(9)),
            *(settled(f"f-{n}", msgspec.structs.replace(
                failed, facts=msgspec.structs.replace(failed.facts, id=f"f-{n}", target="a/down"),
            )) for n in range(9)),
            *(answer(f"few-{n}", 1, 100, target="a/few") for n in range(2)),
        ],
    )  # fmt: skip
    assert seen_in_traffic(ledger, NOW) == {}


def test_what_is_a_month_old_is_forgotten(ledger: Ledger, tmp_path: Path) -> None:
    keep(ledger, tmp_path, [answer(f"x-{n}", 0, 100) for n in range(5)])
    assert seen_in_traffic(ledger, NOW)["lab/s1"].n == 5
    assert seen_in_traffic(ledger, NOW + timedelta(days=30)) == {}
    hour = datetime.fromtimestamp(T0 // HOUR_NS * 3600, UTC)  # of the answers
    assert seen_in_traffic(ledger, hour + timedelta(days=30))["lab/s1"].n == 5
    assert seen_in_traffic(ledger, hour + timedelta(days=30, hours=1)) == {}


def metric(name: str, *pairs: tuple[float, float | None], n: int = 40) -> Metric:
    return Metric(name=name, quantiles=tuple(Estimate(q=q, n=n, value=v) for q, v in pairs))


DOUBTFUL = (
    Metric(name="ttft_ms", quantiles=(Estimate(q=0.5, n=40, value=9.0, doubtful=True),)),
    metric("speed_tps", (0.5, 200.0)),
)


def cell(concurrency: int, ttft: float, **changes: Any) -> CellSummary:
    plain = CellSummary(
        target="groq/m", load=f"c={concurrency}", concurrency=concurrency,
        metrics=(
            metric("ttft_ms", (0.5, ttft), (0.95, 3 * ttft)),
            metric("speed_tps", (0.5, 200.0), (0.05, 150.0)),
        ),
    )  # fmt: skip
    return msgspec.structs.replace(plain, **changes)


def test_the_last_run_counts_at_its_least_load(tmp_path: Path) -> None:
    before, lately = (NOW - timedelta(days=d) for d in (9, 2))
    with History(tmp_path / HISTORY) as history:
        history.append(Run(id="1", started=before.isoformat(), cells=(cell(1, 50.0),)), [])
        cells = (cell(8, 300.0), cell(2, 100.0), cell(1, 9.0, metrics=DOUBTFUL))
        bare = cell(1, 1.0, target="groq/bare", metrics=(metric("ttft_ms", (0.5, 1.0)),))
        history.append(Run(id="2", started=lately.isoformat(), cells=(*cells, bare)), [])
        found = seen_in_runs(history, NOW)
        assert list(found) == ["groq/m"]
        seen = found["groq/m"]
        assert (seen.ttft_ms, seen.ttft_p95_ms, seen.n) == (100.0, 300.0, 40)
        assert (seen.speed_tps, seen.speed_slow_tps) == (200.0, 150.0)
        assert seen.age_s == timedelta(days=2).total_seconds()
        assert seen_in_runs(history, NOW + timedelta(days=40)) == {}


def spoke(made: str, tokens: int, finish: str = "stop", **changes: Any) -> Settled:
    stamps = marks(4, 100, 10)
    counted = count(stamps, Usage(tokens_in=12, tokens_out=tokens))
    note = attempt_note(made, stamps, Called(tokens=counted, finish_reason=finish))
    return settled(made, note, **changes)


def test_lengths_by_model_and_key(ledger: Ledger, tmp_path: Path) -> None:
    notes = [spoke(f"a-{n}", n + 1, key_id="k-1") for n in range(100)]
    notes += [spoke(f"b-{n}", 500, "MAX_TOKENS", key_id=None) for n in range(3)]
    notes += [spoke("hit", 900, model_asked="other", wall_ns=T0 - 40 * 24 * HOUR_NS)]
    keep(ledger, tmp_path, notes)
    found = answer_lengths(ledger, timedelta(days=7), NOW)
    assert [(row.model, row.key_id, row.n, row.cut) for row in found] == [
        ("fast", None, 103, 3), ("fast", "k-1", 100, 0),
    ]  # fmt: skip
    every, one = found
    assert (one.p50, one.p99, one.longest) == (50, 99, 100)
    assert (every.p50, every.p99, every.longest) == (52, 500, 500)
    assert one.targets == ("lab/s1",)
    assert one.speed_p50 is not None
