"""One change in a golden body at a time: what comes of it is what came of it before."""

from __future__ import annotations

import pytest

from dialect.translate.changes import CHANGES, LINES


@pytest.mark.parametrize("name", LINES)
def test_a_change_does_what_it_did(name: str) -> None:
    golden = (CHANGES / f"{name}.txt").read_text("utf-8").splitlines()
    now = list(LINES[name]())
    assert [line for line, was in zip(now, golden, strict=True) if line != was][:20] == []
