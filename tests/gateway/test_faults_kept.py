"""What is kept and shared while things go wrong: whole answers only, each tenant's own."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from gateway.faulted import ROWS, Field, Row
from lightgate.ledger.store.keys import KeyTerms
from lightgate.route.observe import Observer
from lightgate.route.plan.course import RetryBudget
from lightgate.route.plan.hedge import HedgeBudgets
from sim.conftest import SAY

if TYPE_CHECKING:
    from gateway.conftest import Start

CACHE = 'cache = {{ mode = "exact", ttl = "1h", store = "memory" }}'
CUT = {"finish:content_filter"}  # complete by its framing, and not the model's own end


def on_requests() -> list[Row]:
    """Without those whose answers are too large to be kept whatever they are."""
    large = {"huge-event:1048576", "huge-event:4100000"}
    return [row for row in ROWS if not row.target.startswith("broken/") and row.fault not in large]


def alias(name: str, targets: list[str], more: str = "") -> str:
    return (
        f'[models.{name}]\ntargets = {json.dumps(targets)}\npolicy = "ordered"\nhedge = "off"\n'
        f'timeout = "1500ms"\nidle_timeout = "800ms"\n{more}{CACHE}\n'
    )


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("race", [1, 2])
async def test_only_whole_answers_are_kept(
    start: Start, monkeypatch: pytest.MonkeyPatch, race: int, stream: bool
) -> None:
    """Every fault, alone and against itself; what failed is asked for again."""
    monkeypatch.setattr(Observer, "failed", lambda self, *end: self.forms.ended(end[0]))
    monkeypatch.setattr(RetryBudget, "may", lambda *_: True)
    monkeypatch.setattr(HedgeBudgets, "may", lambda *_: True)
    rows = on_requests()
    prices, models = [], []
    for number, row in enumerate(rows):
        fault = row.target.partition("!")[2]
        targets = [row.target, f"lab/hidden!{fault}"][:race]
        models.append(alias(f"m{number}", targets, f"race = {race}\n"))
        prices += [f'[prices."{target}"]\ninput = 1\noutput = 2\n' for target in targets]
    config = "".join(models + list(dict.fromkeys(prices)))
    field = await Field.open(start, config)
    rig = field.rig

    async def twice(number: int) -> tuple[int, list[str]]:
        words = []
        for _ in range(2):
            answer = await rig.chat(
                f"m{number}", headers=field.headers, temperature=0, stream=stream
            )
            words.append(answer.headers["x-lightgate-cache"])
        return number, words

    for first in range(0, len(rows), 12):
        batch = range(first, min(first + 12, len(rows)))
        for number, words in await asyncio.gather(*(twice(number) for number in batch)):
            row = rows[number]
            inside = stream or race > 1  # a race is streamed inside
            whole = row.outcome(stream=inside) == "ok" and row.fault not in CUT
            assert words[0] == "miss", row
            assert words[1] == ("hit" if whole else "miss"), row
    await field.at_peace()


async def test_a_thousand_of_two_tenants_make_one_race_each(start: Start) -> None:
    """Five hundred askers of each, all at once, all the same words."""
    terms = {name: KeyTerms(name=name, may_race=True) for name in ("a", "b")}
    targets = ["lab/plain!silence:0.1", "lab/plain!silence:0.2"]
    rig = await start(alias("kept", targets, "race = 2\n"), terms=terms)
    body = {"model": "kept", "messages": SAY, "max_tokens": 12, "stream": True, "temperature": 0}
    raw = json.dumps(body).encode()
    lines = [await rig.line() for _ in range(1000)]
    for place, line in enumerate(lines):
        name = "ab"[place % 2]
        line.send(
            "POST", "/v1/chat/completions", raw, {"authorization": f"Bearer {rig.keys[name]}"}
        )
    answers = await asyncio.gather(*(line.answer() for line in lines))
    for line in lines:
        await line.close()
    await rig.until(lambda: len(rig.settled()) == 1000)
    asked = [note for note in rig.settled() if note.attempts]
    assert len(asked) == 2
    assert all(len(note.attempts) == 2 for note in asked)
    assert asked[0].exchange.key_id != asked[1].exchange.key_id
    said = [{answer.chunks[0]["id"] for answer in answers[place::2]} for place in (0, 1)]
    assert [len(ids) for ids in said] == [1, 1]
    assert said[0] != said[1]
