"""The program that tries mutations: it judges nothing where it has no tests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def test_a_package_whose_tests_cannot_be_collected_is_named_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    for name in ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "PYTEST_XDIST_TESTRUNUID"):
        monkeypatch.delenv(name, raising=False)  # the program is not part of this run of tests
    from mutation.reach import NoTestsError, Tree, reach

    tree, kept = Tree(tmp_path / "tree"), tmp_path / "kept"
    tests = tree.root / "tests" / "clock"
    tests.mkdir(parents=True)
    tree.source.mkdir(parents=True)
    (tree.root / "benchmarks").symlink_to(BENCHMARKS)
    (tests / "conftest.py").write_text("import no_such_library\n")
    (tests / "test_it.py").write_text("def test_it():\n    pass\n")
    with pytest.raises(NoTestsError, match=r"tests/clock .*No module named 'no_such_library'"):
        reach(tree, ["clock"], kept, 1, stale=False)
    assert list(kept.iterdir()) == []


def test_what_a_file_of_outcomes_says_was_noticed_is_left_out_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    import mutants

    place = ("wire", "wire/sse.py", "lines", 7)
    rows = [
        mutants.Outcome(*place, 3, "a < b", "a <= b", "noticed", "tests/wire/test_sse.py", True),
        mutants.Outcome(*place, 4, "1", "2", "unnoticed", "40 tests", True),
        mutants.Outcome(*place, 5, "1", "0", "not tried", "no time", True),
    ]
    file = tmp_path / "outcomes.json"
    file.write_text(json.dumps([row._asdict() for row in rows]), "utf-8")
    known = mutants.noticed_before(file)
    assert known == {("wire/sse.py", 3, "a < b", "a <= b"): rows[0]}
    assert mutants.noticed_before(None) == {}


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        (["noticed"] * 9 + ["unnoticed"], 0),
        (["noticed"] * 8 + ["unnoticed"], 6),
        (["noticed"] * 9 + ["unnoticed", "not tried"], 7),
        (["noticed", "not judged", "accepted"], 0),
    ],
)
def test_a_run_that_was_cut_short_is_not_told_as_one_that_holds(
    verdicts: list[str],
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    import mutants

    rows = [
        mutants.Outcome("wire", "wire/sse.py", "lines", 7, at, "1", "2", verdict, "", False)
        for at, verdict in enumerate(verdicts)
    ]
    assert mutants.told(rows, 1.0) == code
    shown = capsys.readouterr().out.splitlines()
    total = next(line.split() for line in shown if line.startswith("all"))
    assert [int(cell) for cell in total[1:7]] == [
        verdicts.count("noticed") + verdicts.count("unnoticed"),
        *(
            verdicts.count(verdict)
            for verdict in ("noticed", "unnoticed", "accepted", "not judged", "not tried")
        ),
    ]


def test_every_accepted_mutation_is_there_and_is_named_by_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    import mutants

    accepted = mutants.rules().accepted
    assert len(accepted.rows) > 100
    assert accepted.wrong(BENCHMARKS.parent / "src" / "lightgate") == []


def test_a_reason_for_one_mutation_is_none_for_another_with_the_same_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    from mutation.accepted import Accepted, Row
    from mutation.operators import listed, mutation

    source = "def f(a, b):\n    return a + b, a + b\n"
    (tmp_path / "it.py").write_text(source)
    text = ("it.py:f", "a + b", "a - b")

    def accepted_of(*places: int) -> Accepted:
        return Accepted([Row(text, places)])

    def taken(accepted: Accepted) -> list[int]:
        """Which of the two differences are accepted, from the left."""
        made = [(named, mutation(source, named.number)) for named in listed("it.py", source)]
        sums = [(named, one) for named, one in made if one.after == "a - b"]
        return [at for at, (named, one) in enumerate(sums, 1) if accepted.has(named, source)]

    assert taken(accepted_of(2)) == [2]
    assert taken(accepted_of(1, 2)) == [1, 2]
    assert taken(accepted_of()) == []  # it may be any of them
    for good in ((1,), (2,), (1, 2)):
        assert accepted_of(*good).wrong(tmp_path) == []
    for bad in ((), (3,), (1, 3)):
        assert accepted_of(*bad).wrong(tmp_path) == [Row(text, bad)]
    gone = Row(("it.py:f", "a * b", "a / b"), ())
    twice = [Row(text, (1,)), Row(text, (2,))]
    assert Accepted([gone]).wrong(tmp_path) == [gone]
    assert Accepted(twice).wrong(tmp_path) == twice
