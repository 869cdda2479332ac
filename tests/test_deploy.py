"""The files of deploy/: metrics and labels in them exist, and other people's tools take them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from lightgate.console.meter_list import METERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[1]
RULES = ROOT / "deploy" / "prometheus" / "alerts.yml"
TESTS = ROOT / "deploy" / "prometheus" / "alerts_test.yml"
DASHBOARD = ROOT / "deploy" / "grafana" / "lightgate.json"
OWN = ROOT / ".debian" / "usr" / "bin" / "promtool"  # that `make test` puts there
SCRAPED = {"instance", "job"}  # labels that Prometheus adds
LABELS = {"up": SCRAPED}
for meter in METERS:
    parts = ("_bucket", "_sum", "_count") if meter.kind == "histogram" else ("",)
    for part in parts:
        LABELS[meter.name + part] = {
            *meter.labels,
            *SCRAPED,
            *(["le"] if part == "_bucket" else []),
        }
VARIABLES = {"$__rate_interval": "5m", "$__range": "6h", "$provider": ".*"}


def alerts() -> list[dict[str, Any]]:
    return [
        rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]
    ]


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    return [panel for panel in found if panel["type"] != "row"]


def expressions() -> Iterator[tuple[str, str, str]]:
    """Where each expression stands, the expression, and the text that shows its labels."""
    for rule in alerts():
        yield rule["alert"], rule["expr"], json.dumps(rule["annotations"])
    for panel in panels():
        for target in panel["targets"]:
            yield panel["title"], target["expr"], target["legendFormat"]


def metrics_of(expression: str) -> set[str]:
    bare = re.sub(r"\{[^}]*\}|\b(?:by|ignoring|on|without) \([^)]*\)", "", expression)
    return set(re.findall(r"\b(?:lightgate_|gen_ai_)\w+|\bup\b", bare))


def labels_of(expression: str, shown: str) -> set[str]:
    matched = re.findall(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"", expression)
    grouped = re.findall(r"(?:by|ignoring|on|without)\s*\(([^)]*)\)", expression)
    written = re.findall(r"\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}", shown)
    words = (word.strip() for group in grouped for word in group.split(","))
    return {*matched, *written, *(word for word in words if word)}


@pytest.mark.parametrize(("place", "expression", "shown"), list(expressions()))
def test_every_metric_and_label_exists(place: str, expression: str, shown: str) -> None:
    used = metrics_of(expression)
    assert used, place
    assert used <= LABELS.keys(), place
    known = set().union(*(LABELS[name] for name in used))
    assert labels_of(expression, shown) <= known, place


def test_the_readers_of_expressions_read_them() -> None:
    text = 'sum by (le, a) (rate(lightgate_x_bucket{b=~"$c", d!="e"}[5m])) / ignoring (f) gen_ai_y'
    assert metrics_of(text) == {"lightgate_x_bucket", "gen_ai_y"}
    assert labels_of(text, "{{ $labels.g }} {{h}}") == {"le", "a", "b", "d", "f", "g", "h"}


def test_values_of_labels_exist() -> None:
    """States, outcomes and the like are words of the code, not of the one who wrote the rule."""
    from typing import get_args

    from lightgate.clock.outcome import Outcome
    from lightgate.gateway.exchange.load import LAG_BOUNDS_NS
    from lightgate.route.health.breaker import State

    known = {
        "state": set(get_args(State)), "outcome": {outcome.value for outcome in Outcome},
        "result": {"ok", "failed"}, "won": {"true", "false"}, "job": {"lightgate"},
        "le": {str(bound / 1e9) for bound in LAG_BOUNDS_NS}, "gen_ai_provider_name": {"$provider"},
    }  # fmt: skip
    for place, expression, _ in expressions():
        for label, values in re.findall(r"(\w+)(?:=~|!~|!=|=)\"([^\"]*)\"", expression):
            assert set(values.split("|")) <= known[label], place


def test_every_alert_has_its_test() -> None:
    names = [rule["alert"] for rule in alerts()]
    cases = yaml.safe_load(TESTS.read_text())["tests"]
    assert [case["name"] for case in cases] == names
    for case in cases:
        (expected,) = case["alert_rule_test"]
        assert expected["alertname"] == case["name"]
        assert expected["exp_alerts"], case["name"]


@pytest.fixture
def promtool(missing: Callable[[str], None]) -> Callable[..., str]:
    """Run Prometheus' own tool; what it said."""
    program = str(OWN) if OWN.exists() else shutil.which("promtool")
    if program is None:
        missing("promtool is not installed: `make test` fetches it where apt-get is there")

    def run(*arguments: str, text: str = "") -> str:
        done = subprocess.run(
            [str(program), *arguments], cwd=RULES.parent, input=text, capture_output=True,
            text=True, check=False, timeout=60,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


def test_promtool_takes_the_rules_and_the_configuration(promtool: Callable[..., str]) -> None:
    assert f"{len(alerts())} rules found" in promtool("check", "config", "prometheus.yml")


def test_every_alert_fires(promtool: Callable[..., str]) -> None:
    assert "SUCCESS" in promtool("test", "rules", TESTS.name)


def test_promtool_takes_every_expression_of_the_dashboard(
    promtool: Callable[..., str], tmp_path: Path
) -> None:
    found: list[dict[str, str]] = []
    for panel in panels():
        for target in panel["targets"]:
            expression = target["expr"]
            for name, value in VARIABLES.items():
                expression = expression.replace(name, value)
            found.append({"record": f"panel:{len(found)}", "expr": expression})
    rules = tmp_path / "rules.yml"
    rules.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": found}]}))
    assert f"{len(found)} rules found" in promtool("check", "rules", str(rules))


def test_grafanas_own_types_take_the_dashboard(missing: Callable[[str], None]) -> None:
    """Nothing is lost on the way through the dashboard model of Grafana's SDK."""
    try:
        from grafana_foundation_sdk.cog.encoder import JSONEncoder
        from grafana_foundation_sdk.models.dashboard import Dashboard
    except ImportError:
        missing("grafana-foundation-sdk is not installed: `make test` installs it")
        raise
    given = json.loads(DASHBOARD.read_text())
    read = json.loads(JSONEncoder().encode(Dashboard.from_json(given)))
    assert lost(given, read) == []


def lost(given: Any, read: Any, place: str = "") -> list[str]:
    """What is not in a copy, or is something else there."""
    if isinstance(given, dict):
        gone = [f"{place}/{name}" for name in given if name not in read]
        kept = (name for name in given if name in read)
        return gone + [x for name in kept for x in lost(given[name], read[name], f"{place}/{name}")]
    if isinstance(given, list) and len(given) == len(read):
        pairs = enumerate(zip(given, read, strict=True))
        return [x for at, (one, other) in pairs for x in lost(one, other, f"{place}/{at}")]
    return [] if given == read else [place]


def test_panels_have_a_place_of_their_own() -> None:
    taken: set[tuple[int, int]] = set()
    ids = [panel["id"] for panel in json.loads(DASHBOARD.read_text())["panels"]]
    assert len(ids) == len(set(ids))
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken
        assert max(x for x, _ in cells) < 24
        taken |= cells
