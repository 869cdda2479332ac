"""The engine of a job, in virtual time with made targets."""

from __future__ import annotations

import random
from collections import Counter
from datetime import datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from batch.desk import Desk, Made, failure, prompts
from lightgate.batch.share import LineAnswer, QuietHours
from lightgate.batch.virtual import EPOCH_NS
from lightgate.errors import UsageError
from lightgate.route.admission.headers import RateFact

if TYPE_CHECKING:
    from pathlib import Path

    from lightgate.batch.lines import BatchLine


def test_every_line_is_answered_once_and_paid_once(tmp_path: Path) -> None:
    desk = Desk(tmp_path, prompts(100))
    summary = desk.run()
    assert sorted(desk.ids()) == sorted(f"id-{n}" for n in range(100))
    assert (summary.answered, summary.failed, summary.open) == (100, 0, 0)
    assert summary.cost_usd == Decimal("0.0001")
    assert sum(one.exchange.cost_nano or 0 for one in desk.settled) == 100 * 1000
    assert {one.attempts[0].facts.source for one in desk.settled} == {"batch"}
    first = desk.results()[0]
    assert first["response"]["body"] == {"said": {"p": "prompt 0"}}
    assert desk.seconds < 30  # one after the other would take 100


def test_a_second_start_of_a_finished_job_sends_nothing(tmp_path: Path) -> None:
    desk = Desk(tmp_path, prompts(10))
    desk.run()
    sent = len(desk.made[0].asked)
    summary = desk.run()
    assert (summary.answered, summary.requests, summary.stopped) == (10, 0, "")
    assert len(desk.made[0].asked) == sent == 10


def test_bad_lines_are_in_the_errors_with_their_reasons(tmp_path: Path) -> None:
    text = (
        prompts(3) + b"\n{oops\n" + prompts(1) + b'\n{"custom_id": "x", "url": "/no", "body": {}}'
    )
    desk = Desk(tmp_path, text)
    summary = desk.run()
    assert (summary.answered, summary.failed) == (3, 3)
    errors = desk.results("errors")
    assert [(one["error"]["line"], one["error"]["code"]) for one in errors] == [
        (4, "invalid_json_line"),
        (5, "duplicate_custom_id"),
        (6, "invalid_url"),
    ]
    assert desk.run().failed == 3
    assert len(desk.results("errors")) == 3


def test_identical_lines_are_asked_once_and_answered_each(tmp_path: Path) -> None:
    desk = Desk(tmp_path, prompts(40, "the same"))
    summary = desk.run()
    assert len(desk.made[0].asked) == 1
    assert sorted(desk.ids()) == sorted(f"id-{n}" for n in range(40))
    assert len({one["id"] for one in desk.results()}) == 40
    assert (summary.copied, summary.cost_usd) == (39, Decimal("0.000001"))
    again = Desk(
        tmp_path, prompts(40, "the same") + b"\n" + prompts(41, "the same").split(b"\n")[-1]
    )
    assert again.run().answered == 41  # a later twin gets the answer from the file
    assert again.made[0].asked == []


def test_identical_lines_are_asked_each_where_that_is_wished(tmp_path: Path) -> None:
    desk = Desk(tmp_path, prompts(5, "the same"))
    desk.run(once=False)
    assert len(desk.made[0].asked) == 5


def test_a_failure_is_tried_again_and_at_another_target(tmp_path: Path) -> None:
    bad = Made("bad", 0.5, answers=lambda _line, _n: failure())
    good = Made("good", 1.0)
    desk = Desk(tmp_path, prompts(30), bad, good)
    summary = desk.run()
    assert (summary.answered, summary.failed) == (30, 0)
    assert summary.retries == len(bad.asked) > 0
    assert len(bad.asked) < 25  # held after failures in a row


def test_a_line_that_always_fails_is_in_the_errors_after_its_attempts(tmp_path: Path) -> None:
    def answers(line: BatchLine, _n: int) -> LineAnswer | None:
        return failure(status=0, kind="timeout") if line.custom_id == "id-3" else None

    desk = Desk(tmp_path, prompts(20), Made(answers=answers))
    summary = desk.run(attempts=3)
    assert (summary.answered, summary.failed) == (19, 1)
    assert Counter(desk.made[0].asked)["id-3"] == 3
    assert desk.results("errors")[0]["error"] == {"code": "timeout", "message": "It failed."}
    (settled,) = [one for one in desk.settled if len(one.attempts) > 1]
    assert len(settled.attempts) == 3


def test_what_is_wrong_with_a_line_is_not_tried_again(tmp_path: Path) -> None:
    def answers(line: BatchLine, _n: int) -> LineAnswer | None:
        if line.custom_id != "id-3":
            return None
        return LineAnswer(end="wrong", status=400, body=b'{"error": {}}', kind="client")

    desk = Desk(tmp_path, prompts(20), Made(answers=answers))
    assert desk.run().failed == 1
    assert Counter(desk.made[0].asked)["id-3"] == 1
    assert desk.results("errors")[0]["response"]["status_code"] == 400


def test_failed_lines_alone_are_taken_again(tmp_path: Path) -> None:
    broken = [True]

    def answers(line: BatchLine, _n: int) -> LineAnswer | None:
        odd = int(line.custom_id[3:]) % 2
        return LineAnswer(end="wrong", status=400, kind="client") if odd and broken[0] else None

    desk = Desk(tmp_path, prompts(10), Made(answers=answers))
    assert desk.run().failed == 5
    broken[0] = False
    desk.made[0].asked.clear()
    summary = desk.run(retry_failed=True)
    assert (summary.answered, summary.failed) == (10, 0)
    assert len(desk.made[0].asked) == 5
    assert sorted(desk.ids()) == sorted(f"id-{n}" for n in range(10))


def test_refusals_are_waited_for_and_cost_no_attempt(tmp_path: Path) -> None:
    def answers(_line: BatchLine, n: int) -> LineAnswer | None:
        if n % 3:
            return None
        return LineAnswer(end="refused", status=429, again=True, wait_s=1.0)

    desk = Desk(tmp_path, prompts(60), Made(answers=answers))
    summary = desk.run(attempts=1)
    assert (summary.answered, summary.failed) == (60, 0)
    assert summary.refused > 0
    assert summary.retries == 0


def test_a_stated_limit_is_kept(tmp_path: Path) -> None:
    stated = (RateFact("requests", 300.0, 299.0, 0.2, None),)

    def answers(_line: BatchLine, _n: int) -> LineAnswer | None:
        return LineAnswer(end="ok", status=200, tokens_out=5, rates=stated)

    desk = Desk(tmp_path, prompts(200), Made(seconds=0.1, answers=answers))
    desk.run()
    assert 195 / 4.75 - 2 <= desk.seconds <= 200 / 4.75 + 2


def test_a_key_that_is_refused_stops_the_job_and_no_line_fails(tmp_path: Path) -> None:
    refused = failure("credentials", 401, useless=True)
    desk = Desk(tmp_path, prompts(50), Made(answers=lambda _line, _n: refused))
    summary = desk.run()
    assert (summary.stopped, summary.reason) == ("credentials", "It failed.")
    assert (summary.answered, summary.failed, summary.open) == (0, 0, 50)
    assert len(desk.made[0].asked) <= 4


def test_a_useless_target_leaves_the_work_to_the_others(tmp_path: Path) -> None:
    refused = failure("payment", 402, useless=True)
    dead = Made("dead", answers=lambda _line, _n: refused)
    desk = Desk(tmp_path, prompts(50), dead, Made("alive"))
    assert desk.run().answered == 50


def test_a_target_that_was_never_reached_is_given_up(tmp_path: Path) -> None:
    away = failure("connect", 0, free=True)
    desk = Desk(tmp_path, prompts(50), Made(answers=lambda _line, _n: away))
    summary = desk.run()
    assert summary.stopped == "unreachable"
    assert (summary.failed, summary.open) == (0, 50)


def test_an_outage_in_between_is_waited_for(tmp_path: Path) -> None:
    def answers(_line: BatchLine, n: int) -> LineAnswer | None:
        return failure("connect", 0, free=True) if 20 < n < 60 else None

    desk = Desk(tmp_path, prompts(50), Made(answers=answers))
    summary = desk.run(attempts=2)
    assert (summary.answered, summary.failed) == (50, 0)


def test_the_most_cost_is_never_passed(tmp_path: Path) -> None:
    desk = Desk(tmp_path, prompts(50), Made(cost=1000))
    summary = desk.run(max_cost_nano=20_500)
    assert summary.stopped == "cost"
    assert (summary.answered, summary.open) == (20, 30)
    assert summary.cost_usd == Decimal("0.00002")
    assert desk.run().answered == 50


def test_by_cost_the_cheapest_does_it_all(tmp_path: Path) -> None:
    cheap, dear = Made("cheap", 5.0, cost=10), Made("dear", 0.1, cost=100)
    Desk(tmp_path, prompts(60), cheap, dear).run(by="cost")
    assert len(dear.asked) == 0


def test_by_time_all_take_part_and_the_slow_one_not_at_the_end(tmp_path: Path) -> None:
    quick, slow = Made("quick", 0.5), Made("slow", 20.0)
    desk = Desk(tmp_path, prompts(300), quick, slow)
    desk.run()
    assert len(quick.asked) > 200
    assert 0 < len(slow.asked) < 20
    assert desk.seconds < 45


def test_a_deadline_takes_the_dear_target_only_where_it_must(tmp_path: Path) -> None:
    def dear_share(folder: str, seconds: float) -> tuple[int, float | None]:
        (tmp_path / folder).mkdir()
        cheap, dear = Made("cheap", 2.0, cost=10), Made("dear", 2.0, cost=100)
        cheap_lane = cheap.lane

        def few() -> object:
            lane = cheap_lane()
            lane.gates._most = 2.0  # one answer a second
            return lane

        cheap.lane = few  # type: ignore[method-assign, assignment]
        desk = Desk(tmp_path / folder, prompts(400), cheap, dear)
        summary = desk.run(by="cost", deadline_ns=round(seconds * 10**9))
        return len(dear.asked), summary.deadline_missed_s

    assert dear_share("far", 2000.0) == (0, None)
    near, missed = dear_share("near", 200.0)
    assert 150 <= near <= 360
    assert missed is None


def test_a_job_that_is_stopped_finishes_what_it_began(tmp_path: Path) -> None:
    desk = Desk(tmp_path, prompts(100), Made(seconds=2.0))
    summary = desk.run(until_s=3.0)
    assert summary.stopped == "interrupted"
    assert 0 < summary.answered == len(desk.made[0].asked) < 100
    assert desk.run().answered == 100
    assert len(desk.made[0].asked) == 100


def test_a_job_that_is_cut_sends_what_was_under_way_again(tmp_path: Path) -> None:
    desk = Desk(tmp_path, prompts(100), Made(seconds=2.0))
    first = desk.run(until_s=3.0, cut=True)
    under_way = len(desk.made[0].asked) - first.answered
    assert under_way > 0
    second = desk.run()
    assert (second.answered, second.resent) == (100, under_way)
    assert Counter(desk.ids()) == Counter(f"id-{n}" for n in range(100))


def test_fifty_cuts_at_random_instants_lose_and_repeat_nothing(tmp_path: Path) -> None:
    dice = random.Random(5)  # noqa: S311 - dice of a test
    text = prompts(150) + b"\n" + prompts(200, "twin").split(b"\n", 150)[-1] + b"\n{bad"
    desk = Desk(tmp_path, text, Made("a", 0.7), Made("b", 1.1))
    for _ in range(50):
        desk.run(until_s=dice.uniform(0.0, 2.0), cut=True)
    summary = desk.run()
    assert (summary.answered, summary.failed) == (200, 1)
    assert Counter(desk.ids()) == Counter(f"id-{n}" for n in range(200))
    paid = sum(one.exchange.cost_nano or 0 for one in desk.settled)
    assert summary.cost_usd == Decimal(paid) / 10**9


def test_nothing_is_sent_outside_of_the_quiet_hours(tmp_path: Path) -> None:
    begins = datetime.fromtimestamp(EPOCH_NS / 10**9) + timedelta(hours=2)  # noqa: DTZ006
    quiet = QuietHours(begins.time(), (begins + timedelta(hours=1)).time())
    desk = Desk(tmp_path, prompts(5))
    desk.run(quiet=quiet)
    assert 7200 <= desk.seconds <= 7210


def test_quiet_hours_over_midnight_and_within_a_day() -> None:
    night, noon = QuietHours.parse("22:00-06:00"), QuietHours.parse("12:00-13:30")
    day = datetime(2026, 5, 1, 12, 30)  # noqa: DTZ001 - the user's hours
    assert night.wait_s(day) == 9.5 * 3600
    assert night.wait_s(day.replace(hour=23)) == 0
    assert night.wait_s(day.replace(hour=5)) == 0
    assert noon.wait_s(day) == 0
    assert noon.wait_s(day.replace(hour=13)) == 22.5 * 3600
    for wrong in ("22:00", "22:00-22:00", "x-y"):
        with pytest.raises(ValueError, match=r"."):
            QuietHours.parse(wrong)


def test_a_full_disk_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lightgate.batch import journal

    whole, calls = journal._Appended.append, [0]

    def append(self: journal._Appended, data: bytes) -> None:
        calls[0] += 1
        if 20 < calls[0] < 30:
            raise OSError(28, "No space left on device")
        whole(self, data)

    monkeypatch.setattr(journal._Appended, "append", append)
    desk = Desk(tmp_path, prompts(30))
    assert desk.run().answered == 30
    assert Counter(desk.ids()) == Counter(f"id-{n}" for n in range(30))
    assert "No space left" in desk.told[0]
    assert len(desk.told) == 1  # not once for each answer that waits


def test_a_file_may_grow_while_it_is_read(tmp_path: Path) -> None:
    desk = Desk(tmp_path, prompts(5))
    desk.grown = b'\n{"custom_id": "late", "prompt": "and this"}\n'
    summary = desk.run()
    assert (summary.answered, summary.lines, summary.open) == (6, 6, 0)


def test_a_changed_file_ends_the_job(tmp_path: Path) -> None:
    Desk(tmp_path, prompts(5)).run()
    with pytest.raises(UsageError, match="the file has changed"):
        Desk(tmp_path, prompts(5, "other {}")).run()


def test_results_in_anthropic_s_form(tmp_path: Path) -> None:
    text = b'{"custom_id": "a", "params": {"model": "m"}}\n'
    text += b'{"custom_id": "b", "params": {"model": "m"}}'
    desk = Desk(tmp_path, text)
    desk.run(anthropic=True)
    assert [(one["custom_id"], one["result"]["type"]) for one in desk.results()] == [
        ("a", "succeeded"),
        ("b", "succeeded"),
    ]
