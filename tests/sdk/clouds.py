"""Runs in .venv-sdk-clouds: what the clouds' own software would send, and whether it agrees.

python clouds.py verify FILE    the signatures that botocore makes of the requests in a file
python clouds.py shapes         the requests that the vendors' clients make, as JSON
"""

from __future__ import annotations

import base64
import importlib
import json
import sys
from pathlib import Path
from typing import Any

MESSAGES = [{"role": "user", "content": "Hi"}]


def verify(requests: list[dict[str, Any]]) -> list[str]:
    """The signature of each request by botocore, for the date and the headers that it names."""
    from botocore.auth import SigV4Auth  # type: ignore[import-not-found]
    from botocore.awsrequest import AWSRequest  # type: ignore[import-not-found]
    from botocore.credentials import Credentials  # type: ignore[import-not-found]

    found = []
    for asked in requests:
        signer = SigV4Auth(Credentials(*asked["credentials"]), asked["service"], asked["region"])
        request = AWSRequest(
            method=asked["method"],
            url=asked["url"],
            headers=asked["headers"],
            data=base64.b64decode(asked["body"]),
        )
        request.context["timestamp"] = asked["headers"]["x-amz-date"]
        canonical = signer.canonical_request(request)
        found.append(signer.signature(signer.string_to_sign(request, canonical), request))
    return found


class Caught:
    """A transport that answers 500 and keeps what it was asked."""

    def __init__(self) -> None:
        httpx2 = importlib.import_module("httpx2")
        self.requests: list[dict[str, Any]] = []
        self.client = httpx2.Client(transport=httpx2.MockTransport(self._answer))
        self._answer_with = httpx2.Response

    def _answer(self, request: Any) -> Any:
        self.requests.append(
            {
                "method": request.method,
                "url": str(request.url),
                "headers": {name.lower(): value for name, value in request.headers.items()},
                "body": json.loads(request.content),
            }
        )
        return self._answer_with(500, json={"error": {"message": "no"}})


def shapes() -> dict[str, Any]:
    """One request of each client."""
    import anthropic  # type: ignore[import-not-found]
    import openai  # type: ignore[import-not-found]

    found: dict[str, Any] = {}

    def ask(name: str, make: Any, call: Any) -> None:
        caught = Caught()
        client = make(caught.client)
        try:
            call(client)
        except (anthropic.APIError, openai.APIError):
            found[name] = caught.requests[0]

    def message(client: Any) -> Any:
        return client.messages.create(
            model="claude-x", max_tokens=9, messages=MESSAGES, stream=True
        )

    def chat(client: Any) -> Any:
        return client.chat.completions.create(model="gpt-4o", messages=MESSAGES, stream=True)

    ask(
        "bedrock-mantle",
        lambda http: anthropic.AnthropicBedrockMantle(
            aws_access_key="AKID", aws_secret_key="secret", aws_session_token="session",
            aws_region="us-east-1", http_client=http, max_retries=0,
        ),
        message,
    )  # fmt: skip
    ask(
        "vertex",
        lambda http: anthropic.AnthropicVertex(
            region="europe-west1", project_id="proj", access_token="tok", http_client=http,
            max_retries=0,
        ),
        message,
    )  # fmt: skip
    azure = {"azure_endpoint": "https://res.openai.azure.com", "api_version": "2024-10-21"}
    ask(
        "azure",
        lambda http: openai.AzureOpenAI(**azure, api_key="k", http_client=http, max_retries=0),
        chat,
    )
    ask(
        "azure-entra",
        lambda http: openai.AzureOpenAI(
            **azure, azure_ad_token="tok", http_client=http, max_retries=0
        ),
        chat,
    )
    return found


if __name__ == "__main__":
    if sys.argv[1] == "verify":
        answer: Any = verify(json.loads(Path(sys.argv[2]).read_text("utf-8")))
    else:
        answer = shapes()
    sys.stdout.write(json.dumps(answer))
