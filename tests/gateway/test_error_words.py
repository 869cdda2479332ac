"""A provider's error reaches the client with its code, type and param, in the client's dialect."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from gateway.security.conftest import ENV, chunk, events, providers, whole
from sim.conftest import SAY

if TYPE_CHECKING:
    from gateway.conftest import Rig, Start
    from gateway.security.conftest import Upstream
    from sim.conftest import Answer

LONG = "This model's maximum context length is 8192 tokens, your messages resulted in 9000."
# The same refusal, as each family of providers says it.
TOO_LONG: dict[str, Any] = {
    "raw": {"error": {"message": LONG, "type": "invalid_request_error", "param": "messages",
                      "code": "context_length_exceeded"}},
    "rawant": {"type": "error", "error": {"type": "invalid_request_error",
                                          "message": "prompt is too long: 9000 tokens > 8192"}},
    "rawgem": {"error": {"code": 400, "status": "INVALID_ARGUMENT",
                         "message": "The input token count (9000) exceeds the maximum number of"
                                    " tokens allowed (8192)."}},
}  # fmt: skip


async def behind(start: Start, upstream: Upstream, models: str = "") -> Rig:
    return await start(providers(upstream.port) + models, env=ENV)


async def ask(rig: Rig, dialect: str, model: str, *, stream: bool = False) -> Answer:
    if dialect == "gemini":
        verb = "streamGenerateContent?alt=sse" if stream else "generateContent"
        contents = [{"role": "user", "parts": [{"text": "Hi"}]}]
        return await rig.ask(f"/v1beta/models/{model}:{verb}", {"contents": contents})
    body = {"model": model, "messages": SAY, "max_tokens": 9, "stream": stream}
    path = {"openai": "/v1/chat/completions", "anthropic": "/v1/messages"}[dialect]
    return await rig.ask(path, body)


def refusal(body: Any, status: bytes = b"400 Bad Request", fields: bytes = b"") -> Any:
    return whole(json.dumps(body).encode(), status=status, fields=fields)


@pytest.mark.parametrize("stream", [True, False])
async def test_openais_own_words_reach_an_openai_client(
    start: Start, upstream: Upstream, stream: bool
) -> None:
    rig = await behind(start, upstream)
    upstream.script = refusal(TOO_LONG["raw"])
    answer = await ask(rig, "openai", "raw/m", stream=stream)
    assert answer.status == 400
    error = answer.json["error"]
    assert (error["code"], error["param"], error["type"]) == (
        "context_length_exceeded", "messages", "invalid_request_error",
    )  # fmt: skip
    assert LONG in error["message"]


@pytest.mark.parametrize("provider", ["raw", "rawant", "rawgem"])
async def test_a_prompt_that_is_too_long_is_known_in_every_dialect(
    start: Start, upstream: Upstream, provider: str
) -> None:
    rig = await behind(start, upstream)
    upstream.script = refusal(TOO_LONG[provider])
    answers = {d: await ask(rig, d, f"{provider}/m") for d in ("openai", "anthropic", "gemini")}
    assert {answer.status for answer in answers.values()} == {400}
    chat = answers["openai"].json["error"]
    assert (chat["code"], chat["type"]) == ("context_length_exceeded", "invalid_request_error")
    messages = answers["anthropic"].json["error"]
    assert messages["type"] == "invalid_request_error"
    assert "prompt is too long" in messages["message"]
    google = answers["gemini"].json["error"]
    assert (google["code"], google["status"]) == (400, "INVALID_ARGUMENT")
    assert "exceeds the maximum number of tokens allowed" in google["message"]


@pytest.mark.parametrize(
    ("body", "status", "expected"),
    [
        (
            {"error": {"message": "m", "type": "tokens", "param": None,
                       "code": "rate_limit_exceeded"}},
            b"429 Slow down", (429, "rate_limit_exceeded", "tokens", None),
        ),
        (
            {"error": {"message": "m", "type": "insufficient_quota", "code": "insufficient_quota"}},
            b"429 No", (429, "insufficient_quota", "insufficient_quota", None),
        ),
        (
            {"error": {"message": "m", "type": "BadRequestError", "param": None, "code": 400}},
            b"400 No", (400, 400, "BadRequestError", None),
        ),
        (
            {"detail": [{"type": "extra_forbidden", "loc": ["body", "user"], "msg": "m"}]},
            b"422 No", (422, "extra_forbidden", "invalid_request_error", "user"),
        ),
        (
            {"error": {"message": "m", "type": "server_error", "code": "overloaded"}},
            b"503 No", (503, "overloaded", "server_error", None),
        ),
        # About the gateway's own key: the client's is not wrong.
        (
            {"error": {"message": "m", "type": "invalid_request_error", "code": "invalid_api_key"}},
            b"401 No", (502, "http_error", "server_error", None),
        ),
        ("gone", b"500 No", (502, "http_error", "server_error", None)),
    ],
)  # fmt: skip
async def test_code_type_and_param_stay_in_the_same_dialect(
    start: Start, upstream: Upstream, body: Any, status: bytes, expected: tuple[Any, ...]
) -> None:
    rig = await behind(start, upstream)
    upstream.script = refusal(body, status)
    answer = await ask(rig, "openai", "raw/m")
    error = answer.json["error"]
    assert (answer.status, error["code"], error["type"], error["param"]) == expected


async def test_types_of_anthropic_and_google_stay_in_their_dialects(
    start: Start, upstream: Upstream
) -> None:
    rig = await behind(start, upstream)
    upstream.script = refusal(
        {"type": "error", "error": {"type": "request_too_large", "message": "m"}}, b"413 No"
    )
    answer = await ask(rig, "anthropic", "rawant/m")
    assert (answer.status, answer.json["error"]["type"]) == (413, "request_too_large")
    upstream.script = refusal(
        {"error": {"code": 400, "status": "FAILED_PRECONDITION", "message": "m"}}
    )
    answer = await ask(rig, "gemini", "rawgem/m")
    assert (answer.status, answer.json["error"]["status"]) == (400, "FAILED_PRECONDITION")


QUOTA = [
    {"@type": "type.googleapis.com/google.rpc.QuotaFailure",
     "violations": [{"quotaId": "GenerateRequestsPerMinute", "quotaValue": "10"}]},
    {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "22s"},
]  # fmt: skip


async def test_googles_details_reach_a_client_of_its_dialect(
    start: Start, upstream: Upstream
) -> None:
    rig = await behind(start, upstream)
    error = {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "m", "details": QUOTA}
    upstream.script = refusal({"error": error}, b"429 Slow")
    answer = await ask(rig, "gemini", "rawgem/m")
    assert answer.json["error"]["details"] == QUOTA
    assert "details" not in (await ask(rig, "openai", "rawgem/m")).json["error"]
    for odd in ([{"a": ENV["GEM_KEY"]}], [{"a": "x" * 300}] * 40, "text", [[[[[[[[[[1]]]]]]]]]]):
        upstream.script = refusal({"error": error | {"details": odd}}, b"429 Slow")
        answer = await ask(rig, "gemini", "rawgem/m")
        assert answer.status == 429
        assert ENV["GEM_KEY"] not in answer.body.decode()
        assert len(answer.body) < 6000


async def test_words_are_cleaned_of_keys_and_bounded(start: Start, upstream: Upstream) -> None:
    rig = await behind(start, upstream)
    key = ENV["RAW_KEY"]
    said = {"message": f"bad {key}", "type": key, "param": f"x.{key}", "code": "c" * 500}
    upstream.script = refusal({"error": said})
    answer = await ask(rig, "openai", "raw/m")
    assert key not in answer.body.decode()
    error = answer.json["error"]
    assert error["type"] == "***"
    assert error["param"] == "x.***"
    assert len(error["code"]) <= 64


BROKEN = {"message": "Overloaded now", "type": "overloaded_error", "code": "engine_overloaded"}


@pytest.mark.parametrize("dialect", ["openai", "anthropic", "gemini"])
async def test_an_error_inside_a_stream_keeps_its_words(
    start: Start, upstream: Upstream, dialect: str
) -> None:
    rig = await behind(start, upstream)
    upstream.script = events(
        chunk("Hello"), b"data: %b\n\n" % json.dumps({"error": BROKEN}).encode()
    )
    answer = await ask(rig, dialect, "raw/m", stream=True)
    assert answer.status == 200
    last = json.loads(answer.events[-1][1])["error"]
    assert "Overloaded now" in last["message"]
    if dialect == "openai":
        assert (last["code"], last["type"]) == ("engine_overloaded", "overloaded_error")
    elif dialect == "anthropic":
        assert last["type"] == "overloaded_error"
    else:
        assert (last["code"], last["status"]) == (503, "UNAVAILABLE")


async def test_of_several_failures_all_are_told_and_the_last_gives_the_words(
    start: Start, upstream: Upstream
) -> None:
    models = '[models.two]\ntargets = ["lab/plain!status:503", "raw/m"]\npolicy = "ordered"\n'
    rig = await behind(start, upstream, models + 'hedge = "off"\n')
    upstream.script = refusal(TOO_LONG["raw"])
    answer = await ask(rig, "openai", "two")
    assert answer.status == 400
    error = answer.json["error"]
    assert error["code"] == "context_length_exceeded"
    assert "lab/plain!status:503 answered 503: " in error["message"]
    assert LONG in error["message"]
