"""The schema of the chart's values: that of `lightgate.toml` under `config`, and the chart's own.

python -m helm_schema, in this folder, writes it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from lightgate.config.model import Config

FILE: Final = Path(__file__).parents[1] / "deploy" / "helm" / "lightgate" / "values.schema.json"
TEXT: Final = {"type": "string"}
FLAG: Final = {"type": "boolean"}
ANY_MAP: Final = {"type": "object"}
ANY_LIST: Final = {"type": "array"}
# A quantity of Kubernetes: a number, or text such as 512Mi.
QUANTITY: Final = {"type": ["string", "number"]}
QUANTITIES: Final = {"type": "object", "additionalProperties": QUANTITY}


def count(minimum: int, maximum: int | None = None) -> dict[str, Any]:
    """A whole number within bounds."""
    most = {} if maximum is None else {"maximum": maximum}
    return {"type": "integer", "minimum": minimum, **most}


def table(**members: Any) -> dict[str, Any]:
    """An object with these members and no others."""
    return {"type": "object", "additionalProperties": False, "properties": members}


def port() -> dict[str, Any]:
    """The number of a TCP port."""
    return count(1, 65535)


def schema() -> dict[str, Any]:
    """The whole schema, as helm reads it."""
    config = _plain(Config.model_json_schema())
    parts = config.pop("$defs")
    own = table(
        image=table(
            repository={"type": "string", "minLength": 1},
            tag=TEXT,
            pullPolicy={"enum": ["Always", "IfNotPresent", "Never"]},
        ),
        imagePullSecrets=ANY_LIST,
        replicas=count(1, 1000),
        config=config,
        secrets=table(existingSecret={"type": "string", "minLength": 1}),
        persistence=table(enabled=FLAG, size=QUANTITY, storageClass=TEXT),
        service=table(
            type={"enum": ["ClusterIP", "NodePort", "LoadBalancer"]},
            port=port(),
            annotations=ANY_MAP,
        ),
        ingress=table(enabled=FLAG, className=TEXT, annotations=ANY_MAP, host=TEXT, tlsSecret=TEXT),
        autoscaling=table(
            enabled=FLAG,
            minReplicas=count(1, 1000),
            maxReplicas=count(1, 1000),
            inFlightPerNode=count(1),
            scaleDownSeconds=count(0, 3600),
        ),
        podDisruptionBudget=table(enabled=FLAG, maxUnavailable=QUANTITY),
        networkPolicy=table(
            enabled=FLAG,
            clients=ANY_LIST,
            monitoring=ANY_LIST,
            egressPorts={"type": "array", "items": port(), "minItems": 1},
        ),
        metrics=table(serviceMonitor=table(enabled=FLAG, interval=TEXT)),
        resources=table(requests=QUANTITIES, limits=QUANTITIES),
        podAnnotations=ANY_MAP,
        nodeSelector=ANY_MAP,
        tolerations=ANY_LIST,
        spread=FLAG,
    )
    own["properties"]["global"] = ANY_MAP  # that helm adds to every chart
    return {"$schema": "http://json-schema.org/draft-07/schema#", **own, "$defs": parts}


def _plain(part: Any) -> Any:
    """A schema without titles and descriptions: helm shows neither, and words change often."""
    if isinstance(part, dict):
        said = {"title", "description"}
        kept = {k: v for k, v in part.items() if k not in said or not isinstance(v, str)}
        return {name: _plain(value) for name, value in kept.items()}
    return [_plain(one) for one in part] if isinstance(part, list) else part


def written() -> str:
    """The text of the file."""
    return json.dumps(schema(), indent=1) + "\n"


if __name__ == "__main__":
    FILE.write_text(written())
