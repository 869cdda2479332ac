"""Every form of batch API at a simulator in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from batch_lab import FORMS, laboratory

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from batch_lab import Lab


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
async def lab() -> AsyncIterator[Lab]:
    async with laboratory() as make:
        yield make
