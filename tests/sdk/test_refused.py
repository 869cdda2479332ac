"""Official SDKs through the gateway to providers that refuse: classes, words, ids, headers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from lightgate.config.load import parse_config
from lightgate.gateway.served.resolve import make_snapshot
from lightgate.gateway.served.snapshot import put_snapshot
from sdk.environment import HERE, run_in
from sdk.gate import worker
from sdk.refuser import Refuser, refusing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from subprocess import CompletedProcess

pytestmark = pytest.mark.sdk
PROVIDERS = ("openai", "anthropic", "gemini")
STRICT = ("mistral", "cohere", "together", "deepseek")
ID = "x-lightgate-provider-request-id"


class Stage(NamedTuple):
    """A gateway, and the refusing provider behind all of its names."""

    url: str
    refuser: Refuser

    def heard(self, provider: str) -> list[dict[str, str]]:
        return [names for path, names, _ in self.refuser.heard if path.startswith(f"/{provider}/")]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    data = tmp_path_factory.mktemp("refused")
    with refusing() as refuser:
        lines = [
            f'[providers.{name}]\nbase_url = "http://127.0.0.1:{refuser.port}/{name}/'
            f'{"v1beta" if name == "gemini" else "v1"}"\napi_key = "none"'
            for name in (*PROVIDERS, *STRICT)
        ]
        put_snapshot(data, make_snapshot(parse_config("\n".join(lines)), (), {}))
        with worker(data) as port:
            yield Stage(f"http://127.0.0.1:{port}", refuser)


@pytest.fixture(scope="module")
def runs() -> dict[str, CompletedProcess[str]]:
    return {}


@pytest.fixture
def cases(
    request: pytest.FixtureRequest,
    stage: Stage,
    require: Callable[[str], None],
    runs: dict[str, CompletedProcess[str]],
) -> dict[str, Any]:
    """What an SDK saw; each is run once."""
    sdk: str = request.node.name.split("_")[1]
    require(sdk)
    if sdk not in runs:
        runs[sdk] = run_in(sdk, HERE / f"refused_{sdk}.py", stage.url)
    assert runs[sdk].returncode == 0, runs[sdk].stderr
    seen: dict[str, Any] = json.loads(runs[sdk].stdout)
    return seen


def test_openai_knows_the_error_by_its_code(cases: dict[str, Any]) -> None:
    for provider in PROVIDERS:
        case = cases[f"long-{provider}"]
        assert (case["class"], case["status"]) == ("BadRequestError", 400)
        assert (case["code"], case["type"]) == ("context_length_exceeded", "invalid_request_error")
        assert case["param"] == "messages"
        assert case["id"] == case["headers"]["x-request-id"]
    case = cases["limited-openai"]
    assert (case["class"], case["code"], case["type"]) == (
        "RateLimitError", "rate_limit_exceeded", "tokens",
    )  # fmt: skip
    assert case["headers"]["retry-after"] == "3"
    assert case["headers"]["x-ratelimit-remaining-requests"] == "99"
    assert case["headers"][ID] == "req_provider"
    for provider in ("anthropic", "gemini"):
        assert cases[f"limited-{provider}"]["code"] == "rate_limit_exceeded"
    assert cases["limited-anthropic"]["headers"][ID] == "req_011"


def test_openai_reads_ids_and_limits_of_an_answer(cases: dict[str, Any], stage: Stage) -> None:
    case = cases["fine"]
    assert case["text"] == "Hi"
    assert case["id"] == case["headers"]["x-request-id"] != "req_provider"
    assert case["headers"][ID] == "req_provider"
    assert case["headers"]["x-ratelimit-remaining-requests"] == "99"
    for names in stage.heard("openai"):
        if names.get("openai-organization"):
            assert names["openai-project"] == "proj_1"
            assert names["idempotency-key"] == "once"
    assert any(names.get("openai-organization") == "org-1" for names in stage.heard("openai"))
    for provider in (*STRICT, "anthropic", "gemini"):
        for names in stage.heard(provider):
            assert not {"openai-organization", "openai-project", "idempotency-key"} & set(names)


def test_openai_is_answered_by_strict_providers(cases: dict[str, Any]) -> None:
    for provider in STRICT:
        case = cases[f"strict-{provider}"]
        assert case["text"] == "Hi", provider
        dropped = case["headers"].get("x-lightgate-dropped", "")
        assert ("stream_options" in dropped) == (provider in {"mistral", "cohere"})
    dropped = cases["strict-deepseek"]["headers"]["x-lightgate-dropped"]
    assert dropped == "response_format.json_schema.strict"


def test_anthropic_knows_the_error_by_its_sentence(cases: dict[str, Any], stage: Stage) -> None:
    for provider in PROVIDERS:
        case = cases[f"long-{provider}"]
        assert (case["class"], case["type"]) == ("BadRequestError", "invalid_request_error")
        assert "prompt is too long" in case["message"]
        assert case["id"] == case["headers"]["request-id"]
        case = cases[f"limited-{provider}"]
        assert (case["class"], case["type"]) == ("RateLimitError", "rate_limit_error")
    assert cases["limited-anthropic"]["headers"]["anthropic-ratelimit-requests-remaining"] == "7"
    case = cases["fine"]
    assert (case["text"], case["id"]) == ("Hi", case["headers"]["request-id"])
    assert case["headers"][ID] == "req_011"
    names = stage.heard("anthropic")[-1]
    assert names["anthropic-beta"] == "tools-1"
    assert "openai-beta" not in names


def test_google_knows_the_error_by_its_status(cases: dict[str, Any]) -> None:
    for provider in PROVIDERS:
        case = cases[f"long-{provider}"]
        assert (case["class"], case["code"], case["status"]) == (
            "ClientError", 400, "INVALID_ARGUMENT",
        )  # fmt: skip
        assert "exceeds the maximum number of tokens allowed" in case["message"]
        case = cases[f"limited-{provider}"]
        assert (case["code"], case["status"]) == (429, "RESOURCE_EXHAUSTED")
    assert cases["fine"]["text"] == "Hi"
