"""`up` greets before a slow provider has told its models: the log names one later."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lightgate.cli.launch import Launch, UpOptions
from lightgate.gateway.process.prepare import ServedNames

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def up(tmp_path: Path) -> Launch:
    (tmp_path / "lightgate.toml").write_text(
        '[providers.lab]\nbase_url = "http://127.0.0.1:9/v1"\napi_key = "none"\n'
    )
    return Launch(UpOptions(config_file=tmp_path / "lightgate.toml", data=tmp_path / "data"))


def late(up: Launch, *models: str | None) -> None:
    for model in models:
        up._served = ServedNames(providers=("lab",), model=model, names=2)
        up._tell_late_list()


def test_a_list_that_comes_late_is_told_once(up: Launch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    late(up, "before")  # the greeting will say it
    up._served = ServedNames(providers=("lab",), model="guessed", names=107)
    up._greet()
    late(up, "guessed", None, "real", "real")
    assert caplog.messages[-1] == (
        "The providers' lists of models have come: 2 names are served, such as real"
    )
    assert sum("have come" in line for line in caplog.messages) == 1


def test_where_no_model_was_known_the_first_is_told(
    up: Launch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    up._greet()
    late(up, "real")
    assert "such as real" in caplog.text
