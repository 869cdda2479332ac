"""Each provider's batch API, as the simulator speaks it: submit, poll, collect, cancel, lose."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from batch_lab import KEY, TOOK_S, body
from lightgate.errors import AttemptError, HttpRefused, Malformed, RateLimited
from lightgate.provider.batch.exchange import BatchExchange
from lightgate.provider.batch.files import read_result, said_of, wall_s
from lightgate.provider.batch.job import JobState, JobStatus, surely_not_made
from lightgate.provider.batch.registry import FORMS
from lightgate.provider.catalogue import catalogue

if TYPE_CHECKING:
    from batch_lab import Lab


async def test_a_job_from_its_submission_to_its_results(lab: Lab, form: str) -> None:
    at = await lab(form)
    lines = at.lines()
    lines[2] = lines[2]._replace(body=body(form, model="nobody"))
    _, made = await at.submit(lines)
    assert made.state is JobState.RUNNING
    at.advance(TOOK_S)
    done = await at.api.poll(made.id)
    assert done.state is JobState.COMPLETED
    assert done.id == made.id
    results = await at.collect(done)
    assert set(results) == {line.id for line in lines}
    # A model is named by the job at Mistral and by the path at Gemini, so no line can miss it.
    good = {name for name, result in results.items() if result.end == "answer"}
    named = form in {"mistral", "gemini"}
    assert good == (set(results) if named else set(results) - {"t-2"})
    answer = json.loads(results["t-0"].body)
    counts = answer.get("usage") or answer["usageMetadata"]
    assert 4 in counts.values() or 5 in counts.values()
    if not named:
        assert (results["t-2"].end, results["t-2"].status) == ("error", 404)
        assert results["t-2"].message


async def test_a_cancelled_job_has_the_lines_that_were_done(lab: Lab, form: str) -> None:
    at = await lab(form)
    _, made = await at.submit(at.lines())
    at.advance(TOOK_S / 2)
    await at.api.cancel(made.id)
    over = await at.api.poll(made.id)
    assert over.state.over
    results = await at.collect(over)
    ends = sorted(result.end for result in results.values() if result.end == "answer")
    assert ends == ["answer", "answer"]
    rest = {result.end for result in results.values()} - {"answer"}
    assert rest <= {"cancelled"}  # Gemini's file has only what was done


async def test_an_expired_job_has_the_lines_that_were_done(lab: Lab, form: str) -> None:
    at = await lab(form, window_s=TOOK_S / 2)
    _, made = await at.submit(at.lines())
    at.advance(10 * TOOK_S)
    over = await at.api.poll(made.id)
    results = await at.collect(over)
    done = [result for result in results.values() if result.end == "answer"]
    if form == "gemini":  # an expired job of Gemini's delivers nothing
        assert (over.state, results) == (JobState.EXPIRED, {})
    else:
        assert len(done) == 2
        assert {result.end for result in results.values()} == {"answer", "expired"}
    if form != "anthropic":  # whose jobs only end
        assert over.state is JobState.EXPIRED


async def test_a_job_whose_answer_was_lost_is_found_again(lab: Lab, form: str) -> None:
    at = await lab(form, lost_every=2)
    _, other = await at.submit(at.lines("other"), "other")
    lines = at.lines("mine", 3)
    asked = await at.asked(lines, "mine")
    with pytest.raises(AttemptError) as lost:
        await at.api.submit(asked, lines)
    assert not surely_not_made(lost.value)
    (found,) = await at.api.find(asked)
    assert found.id != other.id
    at.advance(TOOK_S)
    results = await at.collect(await at.api.poll(found.id))
    assert set(results) == {"mine-0", "mine-1", "mine-2"}
    missing = asked._replace(tag="nobody", file="nothing", size=99)
    assert await at.api.find(missing) == []


async def test_a_submission_is_sent_once_also_on_a_connection_that_was_used_before(
    lab: Lab, form: str
) -> None:
    at = await lab(form, lost_every=2)
    await at.submit(at.lines("a"), "a")  # leaves a warm connection behind
    lines = at.lines("b")
    asked = await at.asked(lines, "b")
    with pytest.raises(AttemptError):
        await at.api.submit(asked, lines)
    jobs = at.server._batches[form].jobs
    assert jobs.made == 2


async def test_a_refusal_made_no_job(lab: Lab, form: str) -> None:
    at = await lab(form, refused_every=1)
    lines = at.lines()
    asked = await at.asked(lines)
    with pytest.raises(RateLimited) as refused:
        await at.api.submit(asked, lines)
    assert surely_not_made(refused.value)
    assert await at.api.find(asked) == []


async def test_single_lines_fail_without_the_others(lab: Lab, form: str) -> None:
    at = await lab(form, errors=0.5)
    lines = at.lines(count=40)
    _, made = await at.submit(lines)
    at.advance(TOOK_S)
    results = await at.collect(await at.api.poll(made.id))
    ends = [result.end for result in results.values()]
    assert len(ends) == 40
    assert 8 < ends.count("error") < 32
    bad = next(result for result in results.values() if result.end == "error")
    assert (bad.status, bool(bad.message)) == (500, True)


async def test_results_that_are_no_longer_kept_are_an_error(lab: Lab, form: str) -> None:
    at = await lab(form, keep_s=10)
    _, made = await at.submit(at.lines())
    at.advance(TOOK_S)
    done = await at.api.poll(made.id)
    at.advance(60)
    if form == "gemini":  # whose job then names no file at all
        assert (await at.api.poll(made.id)).results == ()
    with pytest.raises(HttpRefused) as gone:
        await at.collect(done)
    assert gone.value.code == 404


async def test_a_wrong_key_is_refused_and_not_repeated(lab: Lab, form: str) -> None:
    at = await lab(form)
    with pytest.raises(HttpRefused) as unknown:
        await at.api.poll("batches/none" if form == "gemini" else "none")
    assert unknown.value.code == 404
    assert KEY not in str(unknown.value)


async def test_a_file_with_a_bad_line_fails_as_a_whole(lab: Lab) -> None:
    for form in ("openai", "groq", "together", "mistral"):
        at = await lab(form)
        lines = at.lines()
        lines[1] = lines[0]
        _, made = await at.submit(lines)
        assert made.state is JobState.FAILED
        assert "twice" in made.error


async def test_results_are_fetched_from_the_provider_alone(lab: Lab) -> None:
    at = await lab("anthropic")
    elsewhere = JobStatus(
        id="j", state=JobState.COMPLETED, word="ended", results=("https://evil.example/x",)
    )
    with pytest.raises(Malformed, match=r"evil\.example"):
        await at.collect(elsewhere)


async def test_a_large_file_is_read_a_piece_at_a_time(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lightgate.provider.batch import exchange

    monkeypatch.setattr(exchange, "HELD", 2000)
    at = await lab("openai")
    _, made = await at.submit(at.lines(count=200))
    at.advance(TOOK_S)
    done = await at.api.poll(made.id)
    seen = 0
    async for result in at.api.results(done):
        assert result.end == "answer"
        seen += 1
    assert seen == 200
    lines = BatchExchange(at.client, at.target).lines(f"/openai/v1/files/{done.results[0]}/content")
    async for _ in lines:
        break  # a reader that leaves early
    await lines.aclose()


def test_the_catalogue_names_forms_that_are_there() -> None:
    offers = {row.batch.form for row in catalogue().values() if row.batch is not None}
    assert offers == set(FORMS)
    assert all(row.batch.source and row.batch.as_of for row in catalogue().values() if row.batch)


def test_errors_are_said_in_any_form() -> None:
    assert said_of({"object": "list", "data": [{"message": "a"}, {"message": "b"}]}) == "a; b"
    assert said_of([{"message": "a"}]) == "a"
    assert said_of([{"message": str(n)} for n in range(7)]) == "0; 1; 2; 3; 4 (and 2 more)"
    assert said_of({"type": "error", "error": {"message": "x"}}) == "x"
    assert (said_of("plain"), said_of(None), said_of(7)) == ("plain", "", "")


def test_times_are_numbers_or_texts() -> None:
    assert wall_s(1_700_000_000) == 1_700_000_000
    assert wall_s("2023-11-14T22:13:20Z") == 1_700_000_000
    assert (wall_s("soon"), wall_s(None), wall_s(True)) == (None, None, None)


def test_a_line_that_is_no_result_is_malformed() -> None:
    with pytest.raises(Malformed):
        read_result(b'{"no": "id"}')
    empty = read_result(b'{"custom_id":"a","response":null,"error":{"code":"x","message":"why"}}')
    assert (empty.end, empty.message) == ("error", "why")
