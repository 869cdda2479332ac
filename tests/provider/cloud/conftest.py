from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from provider.cloud.authority import keepers_ended

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _ended(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with keepers_ended(monkeypatch):
        yield
