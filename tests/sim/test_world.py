from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest

from lightgate.clock.load import band
from lightgate.errors import ConfigError, UsageError
from lightgate.sim.world_file import load, parse, shipped

if TYPE_CHECKING:
    from pathlib import Path

GOOD: dict[str, Any] = {
    "name": "w",
    "title": "t",
    "source": "s",
    "providers": {"p": {"models": {"m": {"exact": {"ttft_ms": 1, "gap_ms": 1}}}}},
}


def changed(path: str, value: Any) -> dict[str, Any]:
    tree = copy.deepcopy(GOOD)
    node = tree
    *parents, last = path.split(".")
    for name in parents:
        node = node.setdefault(name, {})
    node[last] = value
    return tree


def test_the_shipped_worlds_load_and_cite_their_source() -> None:
    assert shipped() == (
        "limits-2026",
        "production-2024",
        "providers-2026",
        "queues-2026",
        "selftest",
        "tables-2025",
        "weather-2026",
    )
    for name in shipped():
        world = load(name)
        assert world.name == name
        assert len(world.source) > 40


def test_tables_2025_is_the_published_table() -> None:
    world = load("tables-2025")
    flat = {
        (name, point.load): (*point.ttft_ms, *point.tps)
        for name, maker in world.providers.items()
        for model in maker.models.values()
        for point in model.curve
    }
    assert len(flat) == 15
    assert list(flat["groq", 32]) == [610, 2400, 140, 105]
    assert list(flat["replicate", 1]) == [620, 1100, 65, 55]
    assert list(flat["generalcompute", 8]) == [210, 310, 285, 255]
    assert world.weather is None


def test_weather_2026_is_tables_2025_under_a_sky() -> None:
    calm, rough = load("tables-2025"), load("weather-2026")
    assert rough.providers == calm.providers
    assert rough.weather is not None
    assert (rough.weather.bad_ttft, rough.weather.bad_fail) == (5.0, 0.05)


@pytest.mark.parametrize(
    ("provider", "grade"),
    [("groq", 1), ("anthropic", 2), ("openai", 3), ("google", 4), ("vertex", 5)],
)
def test_production_2024_has_the_published_grades(provider: str, grade: int) -> None:
    for model in load("production-2024").providers[provider].models.values():
        (point,) = model.curve
        tokens = model.shape.tokens
        assert tokens == 200
        total_s = point.ttft_ms[0] / 1e3 + tokens / point.tps[0]
        assert band(tokens / total_s) == grade


def test_a_provider_may_be_like_another(tmp_path: Path) -> None:
    tree = changed("providers.q", {"like": "p", "dialect": "gemini"})
    world = parse(tree, "w")
    assert world.providers["q"].dialect == "gemini"
    assert world.providers["q"].models == world.providers["p"].models


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        'name="w"\ntitle="t"\nsource="s"\n'
        "[providers.p.models.m]\nexact={ttft_ms=1,gap_ms=[1,2]}\nprice={input=1.5,output=2}\n",
        encoding="utf-8",
    )
    model = load(str(path)).providers["p"].models["m"]
    assert model.price is not None
    assert str(model.price.input) == "1.5"
    assert model.exact is not None
    assert model.exact.gap_ms == (1, 2)


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("providers.p.slotz", 3, "slotz"),
        ("providers.p.dialect", "cohere", "cohere"),
        ("providers.p.models", {}, "has no models"),
        ("providers.p.models.m.exact", None, ""),
        ("providers.p.models.m.curve", [{"load": 1, "ttft_ms": [1, 2], "tps": [2, 1]}], "either"),
        ("providers.p.faults", [{"name": "flood"}], "no fault 'flood'"),
        ("providers.p.faults", [{"name": "refused"}], "not one of a request"),
        ("providers.p.faults", [{"name": "reset", "arg": "soon"}], "does not take 'soon'"),
        ("providers.a b", {"models": {}}, "letters"),
        ("providers.q", {"like": "nobody"}, "like"),
        ("extends", "nowhere", "not shipped"),
    ],
)
def test_what_is_wrong_is_said(path: str, value: Any, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(changed(path, value), "w.toml")
    assert "w.toml" in caught.value.message
    assert says in caught.value.message
    assert caught.value.exit_code == 3


@pytest.mark.parametrize(
    "curve",
    [
        [
            {"load": 8, "ttft_ms": [1, 2], "tps": [2, 1]},
            {"load": 1, "ttft_ms": [1, 2], "tps": [2, 1]},
        ],
        [{"load": 1, "ttft_ms": [3, 2], "tps": [2, 1]}],
        [{"load": 1, "ttft_ms": [1, 2], "tps": [1, 2]}],
        [{"load": 0, "ttft_ms": [1, 2], "tps": [2, 1]}],
    ],
)
def test_a_curve_must_make_sense(curve: list[dict[str, Any]]) -> None:
    with pytest.raises(ConfigError):
        parse(changed("providers.p.models", {"m": {"curve": curve}}), "w")


def test_every_problem_is_listed() -> None:
    tree = changed("providers.p.models", {"m": {}, "n": {}})
    with pytest.raises(ConfigError) as caught:
        parse(tree, "w")
    assert len(caught.value.problems) == 2


def test_an_unknown_name_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="no world 'atlantis'") as caught:
        load("atlantis")
    assert "tables-2025" in caught.value.hint


def test_bad_toml_is_a_config_error(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text("name = ", encoding="utf-8")
    with pytest.raises(ConfigError, match="is not TOML"):
        load(str(path))
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="cannot be read"):
        load(str(path))
