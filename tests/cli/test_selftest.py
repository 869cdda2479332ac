from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from lightgate.bench.selftest.result import CellResult
from lightgate.wire.link.stamper import best_source

if TYPE_CHECKING:
    from cli.conftest import Ran, Run

SPREADS = ("send_ms", "ttft_ms", "speed", "e2e_ms")


async def test_a_small_cell(run: Run) -> None:
    done: Ran = await run(
        "selftest", "--quick", "--scenario", "s1", "--concurrency", "2",
        "--stamps", best_source(), "--no-pin", "--json",
    )  # fmt: skip
    # A busy machine may miss the budget; that is what the other exit code is for.
    assert done.code in {0, 6}
    document = json.loads(done.out)
    assert set(document) == {"ok", "cells", "peak_rss_mb"}
    assert document["ok"] == (done.code == 0)
    assert document["peak_rss_mb"] > 1
    (cell,) = document["cells"]
    assert set(cell) == set(CellResult.__struct_fields__)
    assert (cell["scenario"], cell["concurrency"], cell["stamps"]) == ("S1", 2, best_source())
    assert (cell["requests"], cell["lost"], cell["unmeasured"]) == (8, 0, 0)
    assert (cell["wrong_kinds"], cell["wrong_tokens"], cell["wrong_outcomes"]) == (0, 0, [])
    assert cell["tokens"] == 8 * 60
    for name in SPREADS:
        assert set(cell[name]) == {"n", "p50", "p99", "max"}
        assert cell[name]["n"] == 8
    assert bool(cell["misses"]) == (done.code == 6)


async def test_the_table_and_the_verdict(run: Run) -> None:
    done: Ran = await run(
        "selftest", "--quick", "--scenario", "S1", "--concurrency", "2", "--stamps", "read"
    )
    assert done.code in {0, 6}
    head, row, *_ = done.out.splitlines()
    assert head.split()[:3] == ["scenario", "streams", "stamps"]
    assert row.split()[:4] == ["S1", "2", "read", "8"]
    assert row.split()[-1] in ({"ok", "time"} if done.code == 0 else {"MISSED"})
    ending = "holds its error budget" if done.code == 0 else "The error budget was missed"
    assert ending in done.err


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--concurrency", ""], "--concurrency ''"),
        (["--concurrency", "0"], "--concurrency '0'"),
        (["--concurrency", "1,x"], "--concurrency '1,x'"),
        (["--concurrency", "5000"], "--concurrency '5000'"),
        (["--scenario", "S99"], "There is no scenario 'S99'."),
        (["--scenario", "S1", "--scenario", "S9"], "There is no scenario 'S9'."),
        (["--scenario", "slow", "--concurrency", "1"], "slow"),
        (["--stamps", "gps"], "--stamps"),
    ],
)
async def test_wrong_words(run: Run, args: list[str], said: str) -> None:
    done: Ran = await run("selftest", *args)
    assert (done.code, done.out) == (2, "")
    assert said in done.sentence
