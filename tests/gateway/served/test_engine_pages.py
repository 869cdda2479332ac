"""Which pages of engines a gateway reads, as its configuration says."""

from __future__ import annotations

import pytest

from lightgate.config.load import parse_config
from lightgate.errors import ConfigError
from lightgate.gateway.served.resolve import make_snapshot
from lightgate.gateway.served.served import Served
from lightgate.provider.engine_follower import EnginePage

CONFIG = """
[providers.lab]
base_url = "http://10.0.0.7:8000/v1"
api_key = "none"
{}
[providers.other]
base_url = "http://10.0.0.8:8000/v1"
api_key = "none"
[models.m]
targets = ["lab/b", "other/b", "lab/a"]
"""


@pytest.mark.parametrize(
    ("line", "url"),
    [
        ("engine_metrics = true", "http://10.0.0.7:8000/metrics"),
        ('engine_metrics = "https://watch.example/vllm/metrics"', "https://watch.example/vllm/metrics"),
    ],
)  # fmt: skip
def test_the_page_of_a_provider(line: str, url: str) -> None:
    snapshot = make_snapshot(parse_config(CONFIG.format(line)), (), {})
    assert Served(snapshot, {}).engine_pages() == [EnginePage(url, ("lab/a", "lab/b"))]


@pytest.mark.parametrize("line", ["", "engine_metrics = false"])
def test_no_page_unless_it_is_asked_for(line: str) -> None:
    snapshot = make_snapshot(parse_config(CONFIG.format(line)), (), {})
    assert Served(snapshot, {}).engine_pages() == []


@pytest.mark.parametrize("value", ['"metrics"', '"ftp://h/metrics"', '"http://u:p@h/metrics"', "1"])
def test_an_address_that_is_none_is_refused(value: str) -> None:
    with pytest.raises(ConfigError):
        parse_config(CONFIG.format(f"engine_metrics = {value}"))
