"""docs/reference/console-api.md has every path of the console's API, with every parameter."""

from __future__ import annotations

import re
from pathlib import Path

from lightgate.console.app import ORDERS
from lightgate.console.site.endpoints import ENDPOINTS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "console-api.md"


def test_every_path_and_parameter_has_its_row() -> None:
    sections = re.split(r"^## ", PAGE.read_text("utf-8"), flags=re.MULTILINE)[1:]
    found = {section.splitlines()[0].strip("`"): section for section in sections}
    assert set(found) == {route.path for route in ENDPOINTS} | {
        "/api/openapi.json",
        "/api/live",
        "Orders",
    }
    for route in ENDPOINTS:
        row = re.compile(r"^\| `(\w+)` \| (?:`([^`]*)`)? ?\|", re.MULTILINE)
        rows = row.findall(found[route.path])
        assert rows == [(one.name, one.default) for one in route.parameters]
    orders = re.findall(r"^\| `([A-Z]+) ([^`]+)` \|", found["Orders"], re.MULTILINE)
    assert orders == [(one.method, one.path) for one in ORDERS]
