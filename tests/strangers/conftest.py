"""The lab and the fence that all strangers share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from strangers.fence import Fence, fence
from strangers.lab import StrangersLab, strangers_lab

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StrangersLab]:
    with strangers_lab(tmp_path_factory.mktemp("strangers")) as running:
        yield running


@pytest.fixture(scope="session")
def outside() -> Iterator[Fence]:
    with fence() as refusing:
        yield refusing
