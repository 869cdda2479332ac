from __future__ import annotations

from decimal import Decimal

import msgspec

from lightgate.ledger.runs.run import BreakEven, Run
from lightgate.report.tables.layout import fit, table
from lightgate.report.tables.own_or_api import (
    OwnRow,
    folded_rows,
    own_columns,
    own_notes,
    own_rows,
)
from lightgate.report.tables.text import plain

HALF = BreakEven(
    hosted="own/m",
    api="groq/m",
    load="c=32",
    hosted_per_mtok=Decimal(1),
    tokens_per_month=Decimal(714_000_000),
    hosted_per_1k=Decimal("0.002"),
    api_per_1k=Decimal("0.004"),
    requests_per_month=Decimal(7_140_000),
    utilisation=0.5,
)
NEVER = msgspec.structs.replace(
    HALF, api="xai/n", utilisation=None, requests_per_month=None, note="never", models=("m", "n")
)
UNKNOWN = BreakEven(
    hosted="own/m", api="new/m", load="c=32", hosted_per_mtok=None, tokens_per_month=None
)


def run(*rows: BreakEven) -> Run:
    return Run(id="r", started="2026-11-16T00:00:00Z", break_even=rows)


def test_one_row_for_each_api_with_a_cost() -> None:
    rows = own_rows(run(HALF, NEVER, UNKNOWN))
    assert rows == [
        OwnRow("own/m at c=32", "groq/m", "$0.002", "$0.004", "50 % of its use", "7.14 million"),
        OwnRow("own/m at c=32", "xai/n *", "$0.002", "$0.004", "never", "·"),
    ]


def test_apis_that_a_machine_never_undercuts_are_one_row_in_a_terminal() -> None:
    costs = [("a/m", "0.001"), ("b/m", "0.0000001"), ("c/n", "0.0004")]
    never = [
        msgspec.structs.replace(NEVER, api=api, api_per_1k=Decimal(cost)) for api, cost in costs
    ]
    other = msgspec.structs.replace(NEVER, hosted="second/m")
    half, folded, second = folded_rows(run(HALF, *never, UNKNOWN, other))
    assert half == own_rows(run(HALF))[0]
    assert folded == OwnRow(
        "own/m at c=32", "3 others *", "$0.002", "$0.0000001 to $0.001",
        "never at this load: busy all day, it still costs 2.0 to 20,000 times as much", "·",
    )  # fmt: skip
    assert second.cheaper_from == "never"  # a single row stays what it is
    assert folded_rows(run(*never))[0].api == "all 3 *"
    assert len(folded_rows(run(*never[:2]))) == 2
    assert len(own_rows(run(HALF, *never))) == 4  # pages and programs have every pair


def test_who_is_left_out_and_which_models_differ_is_said_once() -> None:
    notes = own_notes(run(HALF, NEVER, UNKNOWN, UNKNOWN))
    assert notes[1] == "Not in the table, since their cost is unknown: new/m."
    assert notes[2].endswith("m and n.")
    assert own_notes(run()) == []


def test_a_long_name_and_load_are_folded_on_a_narrow_terminal() -> None:
    own = {"hosted": "sim-lambda-h100/mistral-7b", "load": "its busiest 5 minutes"}
    rows = own_rows(run(msgspec.structs.replace(HALF, api="sim-together/mixtral", **own)))
    parts = [str(table(part)) for part in fit(own_columns(rows), 80)]
    assert max(len(line) for part in parts for line in part.splitlines()) <= 80
    assert "sim-lambda-h100/mistral-7b at" in parts[0]
    assert str(table(next(iter(fit(own_columns(rows), 200))))).count("\n") == 1  # in one line


def test_the_terminal_shows_a_table() -> None:
    text = plain(run(HALF, NEVER, UNKNOWN))
    section = text[text.index("Own machine or API") :].splitlines()
    assert section[1].split("  ")[0] == "own machine"
    assert "50 % of its use" in section[2]
