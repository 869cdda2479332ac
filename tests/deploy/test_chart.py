"""The Helm chart, rendered by helm itself and held against the schemas of Kubernetes."""

from __future__ import annotations

import json
import tomllib
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from helm_schema import FILE as SCHEMA
from helm_schema import written
from lightgate import __version__
from lightgate.config.load import parse_config
from lightgate.config.model import Config
from lightgate.console.meter_list import METERS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CHART = SCHEMA.parent
KUBERNETES = "1.33.0"
# Everything on, with values that TOML and YAML write differently.
FULL: dict[str, Any] = {
    "replicas": 3,
    "config": {
        "gateway": {"workers": 4, "drain": "20s", "breaker": {"open": "5s"}, "cors": ["https://a"]},
        "ledger": {"url": "sqlite", "retention": "30d"},
        "providers": {
            "lab-2": {
                "base_url": "http://lab:9001/v1",
                "api_key": "env:LAB_KEY",
                "hourly_cost": 2.69,
                "headers": {"X-Team": 'say "hi" & <go>'},
            }
        },
        "models": {
            "fast": {
                "targets": ["lab-2/m"],
                "retries": 0,
                "max_tokens": 1048576,
                "slo": {"ttft_p95": "500ms"},
            },
            "smart": {
                "policy": "cascade",
                "tiers": [{"upto": "simple", "targets": ["lab-2/a"]}, {"targets": ["lab-2/b"]}],
            },
        },
    },
    "ingress": {"enabled": True, "host": "llm.example.org", "tlsSecret": "tls"},
    "autoscaling": {"enabled": True},
    "metrics": {"serviceMonitor": {"enabled": True}},
    "networkPolicy": {"clients": [{"podSelector": {"matchLabels": {"may": "ask"}}}]},
    "podAnnotations": {"a": "b"},
}
STORES = {"ledger": {"url": "postgresql://u@db/l"}, "shared": {"url": "redis://v:6379/0"}}


def with_stores(values: dict[str, Any]) -> dict[str, Any]:
    return {**values, "config": {**values.get("config", {}), **STORES}}


@pytest.fixture
def rendered(helm: Callable[..., str]) -> Callable[[dict[str, Any]], list[dict[str, Any]]]:
    """Render the chart with values; its documents."""

    def render(values: dict[str, Any]) -> list[dict[str, Any]]:
        text = helm("template", "gate", str(CHART), "--namespace", "llm", "--kube-version",
                    KUBERNETES, "--values", "-", text=json.dumps(values))  # fmt: skip
        return [one for one in yaml.safe_load_all(text) if one]

    return render


def kind(documents: list[dict[str, Any]], name: str) -> dict[str, Any]:
    (found,) = [one for one in documents if one["kind"] == name]
    return found


def pod(documents: list[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = kind(documents, "StatefulSet")["spec"]["template"]["spec"]
    return found


def test_helm_lints_it(helm: Callable[..., str]) -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", str(CHART))


@pytest.mark.parametrize("values", [{}, with_stores(FULL)], ids=["default", "full"])
def test_kubernetes_takes_every_document(
    rendered: Callable[..., Any], tool: Callable[..., str], values: dict[str, Any], tmp_path: Path
) -> None:
    documents = [one for one in rendered(values) if one["kind"] != "ServiceMonitor"]  # not its own
    file = tmp_path / "all.yaml"
    file.write_text(yaml.safe_dump_all(documents))
    told = tool("kubernetes-validate", "--strict", "--kubernetes-version", "1.33", str(file))
    assert told.count("passed") >= len(documents) >= 5


def test_kubernetes_would_refuse_a_wrong_one(tool: Callable[..., str], tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    wrong = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": {"prots": 1}}
    file.write_text(yaml.safe_dump(wrong))
    tool("kubernetes-validate", "--strict", "--kubernetes-version", "1.33", str(file), fails=True)


def test_the_configuration_arrives_as_it_was_given(rendered: Callable[..., Any]) -> None:
    text = kind(rendered({**FULL, "replicas": 1, "autoscaling": {"enabled": False}}), "Secret")[
        "stringData"
    ]["lightgate.toml"]
    told = tomllib.loads(text)
    for table, members in FULL["config"].items():
        assert {name: told[table][name] for name in members} == members
    assert parse_config(text).gateway.workers == 4
    parse_config(kind(rendered({}), "Secret")["stringData"]["lightgate.toml"])


def test_the_schema_is_that_of_the_configuration() -> None:
    """`cd tests && ../.venv/bin/python -m helm_schema` writes it."""
    assert SCHEMA.read_text() == written()
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert set(values) == set(json.loads(SCHEMA.read_text())["properties"]) - {"global"}
    assert set(values["config"]) == set(Config.model_fields)
    assert yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"] == __version__


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"config": {"gateway": {"prt": 1}}}, "prt"),
        ({"config": {"gateway": {"workers": "many"}}}, "workers"),
        ({"config": {"models": {"a": {"race": 99}}}}, "race"),
        ({"replcas": 2}, "replcas"),
        ({"networkPolicy": {"egressPorts": [0]}}, "egressPorts"),
        ({"replicas": 2}, "config.ledger.url"),
        ({"autoscaling": {"enabled": True}}, "config.shared.url"),
        ({"ingress": {"enabled": True}}, "ingress.host is needed"),
    ],
)
def test_wrong_values_are_refused(
    helm: Callable[..., str], values: dict[str, Any], said: str
) -> None:
    told = helm("template", "gate", str(CHART), "--kube-version", KUBERNETES, "--values", "-",
                text=json.dumps(values), fails=True)  # fmt: skip
    assert said in told


def test_nothing_in_the_pod_may_do_more_than_it_must(rendered: Callable[..., Any]) -> None:
    spec = pod(rendered({}))
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["automountServiceAccountToken"] is False
    for container in (*spec["containers"], *spec["initContainers"]):
        context = container["securityContext"]
        assert context["readOnlyRootFilesystem"] is True
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}
    (gateway,) = spec["containers"]
    assert gateway["livenessProbe"]["httpGet"]["path"] == "/health/live"
    assert gateway["readinessProbe"]["httpGet"]["path"] == "/health/ready"


def test_a_node_has_time_to_drain_and_to_ship(rendered: Callable[..., Any]) -> None:
    from lightgate.cli.processes import AFTER_DRAIN_S, BATCHES_STOP_S, CONSOLE_STOP_S
    from lightgate.config.notation import parse_duration

    after_s = 5 + AFTER_DRAIN_S + CONSOLE_STOP_S + BATCHES_STOP_S
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    default = values["config"]["gateway"]["drain"]
    for drain in (default, "31s", "2m", "1.5m", "90500ms", "400us", "1h"):
        drained = {} if drain is default else {"config": {"gateway": {"drain": drain}}}
        grace_s = pod(rendered(drained))["terminationGracePeriodSeconds"]
        needed = after_s + parse_duration(drain) / 1e9
        assert needed <= grace_s <= max(75, needed + 60), drain


def test_the_autoscaler_goes_by_a_metric_of_ours(rendered: Callable[..., Any]) -> None:
    (metric,) = kind(rendered(with_stores(FULL)), "HorizontalPodAutoscaler")["spec"]["metrics"]
    assert metric["pods"]["metric"]["name"] in {meter.name for meter in METERS}
    assert "replicas" not in kind(rendered(with_stores(FULL)), "StatefulSet")["spec"]
