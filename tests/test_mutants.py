"""The program that tries mutations: it judges nothing where it has no tests."""

from __future__ import annotations

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
