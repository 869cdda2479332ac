"""Parameters that several endpoints have: a period, names of targets, owners of requests."""

from __future__ import annotations

from typing import Final

from lightgate.console.api.question import Parameter
from lightgate.console.api.sums import SIZES


def period(default: str) -> tuple[Parameter, ...]:
    """Start and end of a period, with its usual start."""
    times = "RFC 3339, or an age like -15m, -24h or -14d, or now"
    return (
        Parameter("from", "time", f"start of the period: {times}", default),
        Parameter("to", "time", f"end of the period: {times}", "now"),
    )


NAMES: Final = (
    Parameter("model", "names", "models of targets; may be repeated"),
    Parameter("provider", "names", "providers; may be repeated"),
    Parameter("target", "names", "targets, provider/model; may be repeated"),
)
OWNERS: Final = (
    Parameter("key", "names", "virtual keys, by name or id; may be repeated"),
    Parameter("tag", "names", "tags, one of which a request has; may be repeated"),
    Parameter(
        "size", "choice",
        "tokens of the prompt: s up to 300, m up to 3,000, l up to 30,000, xl above",
        choices=("", *SIZES),
    ),
)  # fmt: skip
