"""docs/reference/http.md says what the data plane does, and all of it."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from lightgate import errors
from lightgate.config.model import ModelTable
from lightgate.gateway.admit import overrides
from lightgate.gateway.exchange import exchange
from lightgate.gateway.request import endpoint, passed
from lightgate.gateway.request.weight import TooManyValues
from lightgate.gateway.served import asked, keys, price, served
from lightgate.gateway.spend import denial
from lightgate.provider.cloud.signer import NoToken
from lightgate.route.health.breaker import Rules
from lightgate.route.plan import course
from lightgate.wire.door import chunked, connection, inbound, intake

DOCS = Path(__file__).parents[1] / "docs"
PAGE = (DOCS / "reference" / "http.md").read_text("utf-8")
GATEWAY = Path(served.__file__).parents[1]
SOURCE = "\n".join(path.read_text("utf-8") for path in sorted(GATEWAY.rglob("*.py")))
UPSTREAM = {"user-agent"}  # headers that providers get, not clients


def rows(heading: str) -> list[list[str]]:
    """The cells of a section's rows that begin with a name in code type, without the marks."""
    section = PAGE.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    return [[cell.replace("`", "") for cell in line[2:-2].split(" | ")] for line in lines]


ENDPOINTS = rows("Endpoints")


@pytest.mark.parametrize("row", ENDPOINTS, ids=lambda row: row[0])
def test_every_row_is_an_endpoint(row: list[str]) -> None:
    path, methods, dialect, _ = row
    target = path.replace("{model}", "lab/plain").replace("{id}", "0198f2").encode()
    found = endpoint.find(target)
    assert found is not None
    assert b", ".join(found.methods).decode() == methods
    if found.endpoint.verb not in {"live", "ready", "root"}:
        assert found.endpoint.dialect == dialect
    if found.endpoint.verb == "call":
        stream = "stream" in path or None if "{model}" not in path else "stream" in path
        assert found.endpoint.stream is (True if found.endpoint.sound == "speech" else stream)


def test_every_endpoint_has_its_row() -> None:
    fixed = [path.decode() for path in (*endpoint._CALLS, *endpoint._READS, *endpoint._STORES)]
    assert sorted(path for path, *_ in ENDPOINTS if "{" not in path) == sorted(fixed)
    for stored in endpoint._STORED_VERBS:
        name, _, action = stored.decode().rpartition("/")
        if stored.decode() in {"files", "batches", "messages/batches"}:
            name, action = stored.decode(), ""
        path = f"/v1/{name}/{{id}}/{action}".removesuffix("/")
        assert path in [row[0] for row in ENDPOINTS]
    for version in ("v1", "v1beta"):
        for verb in (*map(bytes.decode, endpoint._VERBS), "streamGenerateContent?alt=sse"):
            assert f"/{version}/models/{{model}}:{verb}" in [path for path, *_ in ENDPOINTS]
    array = endpoint.find(b"/v1/models/lab/plain:streamGenerateContent")
    assert array is not None
    assert array.endpoint.array


def test_every_request_header_has_its_row() -> None:
    known = set(re.findall(r'name == b"([a-z-]+)"', inspect.getsource(overrides._override)))
    headers = {f"x-lightgate-{name}" for name in known}
    headers |= {name.decode() for name in (*keys._PLAIN, *passed.FIELDS)}
    headers |= set(re.findall(r'header\(b"([a-z-]+)"\)', SOURCE))
    headers |= set(re.findall(r'name == b"([a-z-]+)"', inspect.getsource(overrides.read_headers)))
    headers |= set(re.findall(r'name == b"([a-z]+)"', inspect.getsource(keys)))
    assert {name for name, *_ in rows("Request headers")} == headers


def test_every_response_header_has_its_row() -> None:
    written = set(re.findall(r'(?:b"|f"|\\n|%b)([a-z]+(?:-[a-z]+)+|allow|age): ', SOURCE))
    assert {name for name, *_ in rows("Response headers")} == written - UPSTREAM


def labels(root: type[errors.LightgateError]) -> dict[str, int]:
    found = {root.label: root.status}
    for kind in root.__subclasses__():
        found |= labels(kind)
    return found


def test_every_code_has_its_row() -> None:
    documented = {cells[0]: cells[1] for cells in rows("Errors") if not cells[0].isdigit()}
    attempts = labels(errors.AttemptError)
    for label in ("attempt", "cancelled"):  # the root itself; and a client that left reads nothing
        del attempts[label]
    said = set(re.findall(r'code="([a-z_]+)"', SOURCE))
    said |= set(re.findall(r'reason="([a-z]+)"', inspect.getsource(denial)))
    said |= {errors.UsageError.label, asked.ModelUnknown.label, NoToken.label, TooManyValues.label}
    assert set(documented) == said | set(attempts)
    for label, status in attempts.items():
        assert documented[label] == str(status), label


def test_every_status_before_a_dialect_has_its_row() -> None:
    modules = (chunked, connection, inbound, intake)
    source = "\n".join(inspect.getsource(module) for module in modules)
    raised = set(re.findall(r"(?:RequestError|_refuse)\(\s*([0-9]+)", source))
    assert {cells[0] for cells in rows("Errors") if cells[0].isdigit()} == raised


def test_the_guide_to_failures_has_the_deadlines_and_defaults_of_the_code() -> None:
    guide = (DOCS / "guides" / "failures.md").read_text("utf-8")
    rules, model = Rules(), ModelTable(targets=("a/b",))
    seconds = {
        "connect": exchange.CONNECT_S,
        "`ttft_timeout`": course.AUTO_TTFT_NS / 1e9,
        "`idle_timeout`": model.idle_timeout / 1e9,
        "`timeout`": model.timeout / 1e9,
    }
    table = guide.split("\n## Deadlines\n\n", 1)[1].split("\n\n")[0].splitlines()[2:]
    found = {line.split(" | ")[0][2:]: line.split(" | ")[1] for line in table}
    assert {name: cell.split(": ")[-1] for name, cell in found.items()} == {
        name: f"{value:g} s" for name, value in seconds.items()
    }
    assert model.ttft_timeout is None  # auto
    assert (rules.streak, rules.open_ns, rules.max_open_ns) == (3, 5 * 10**9, 300 * 10**9)
    assert f"or {price.USUAL_ANSWER} |" in guide
