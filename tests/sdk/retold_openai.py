"""Reads the golden answers with the openai SDK, from its own environment."""

from __future__ import annotations

import json
import sys
from typing import Any

import openai  # type: ignore[import-not-found]  # only in the SDK's own environment
import pydantic
from openai.types.chat import (  # type: ignore[import-not-found]  # same
    ChatCompletion,
    ChatCompletionChunk,
)
from openai.types.responses import (  # type: ignore[import-not-found]  # same
    Response,
    ResponseStreamEvent,
)

from sdk.retold import goldens, invalid, served

CUT = (openai.LengthFinishReasonError, openai.ContentFilterFinishReasonError)
SAY = [{"role": "user", "content": "Say something."}]


def likely(entries: Any) -> Any:
    return [
        [e.token, e.logprob, [[t.token, t.logprob] for t in e.top_logprobs]] for e in entries or ()
    ]


def completion(done: Any) -> dict[str, Any]:
    (choice,) = done.choices
    extra = choice.message.model_extra or {}
    signed = extra.get("reasoning_details") or []
    return {
        "text": choice.message.content or "",
        "reasoning": extra.get("reasoning_content", ""),
        "refusal": choice.message.refusal or "",
        "signature": "".join(detail["signature"] for detail in signed),
        "calls": [
            [call.id, call.function.name, json.loads(call.function.arguments)]
            for call in choice.message.tool_calls or ()
        ],
        "logprobs": likely(choice.logprobs and choice.logprobs.content),
        "finish": choice.finish_reason,
        "usage": done.usage.model_dump(exclude_unset=True),
    }


def response(done: Any) -> dict[str, Any]:
    heard: dict[str, Any] = {"text": done.output_text, "reasoning": "", "refusal": ""}
    heard |= {"signature": "", "calls": [], "logprobs": []}
    for item in done.output:
        if item.type == "reasoning":
            heard["reasoning"] += "".join(part.text for part in item.summary)
            heard["signature"] += item.encrypted_content or ""
        elif item.type == "function_call":
            heard["calls"].append([item.call_id, item.name, json.loads(item.arguments)])
        else:
            for part in item.content:
                heard["refusal"] += part.refusal if part.type == "refusal" else ""
                heard["logprobs"] += likely(part.logprobs) if part.type == "output_text" else []
    why = done.incomplete_details
    heard["finish"] = f"{done.status}: {why.reason}" if why else done.status
    return heard | {"usage": done.usage.model_dump(exclude_unset=True)}


def chat(client: Any, model: str) -> Any:
    options = {"include_usage": True}
    with client.chat.completions.stream(
        model=model, messages=SAY, stream_options=options
    ) as stream:
        try:
            streamed = completion(stream.get_final_completion())
        except CUT:  # how the SDK says that an answer broke off
            streamed = completion(stream.current_completion_snapshot)
    whole = completion(client.chat.completions.create(model=model, messages=SAY))
    return {"stream": streamed, "whole": whole}


def responses(client: Any, model: str) -> Any:
    """The accumulator wants a completed response; one that was cut off is in its last event."""
    with client.responses.stream(model=model, input="Say something.") as stream:
        last = [event for event in stream][-1]  # noqa: C416 - the stream must be read to its end
    whole = response(client.responses.create(model=model, input="Say something."))
    return {"stream": response(last.response), "whole": whole}


def main() -> None:
    answers = sys.argv[1]
    event = pydantic.TypeAdapter(ResponseStreamEvent).validate_python
    checks = {
        "openai-chat": (chat, ChatCompletionChunk.model_validate, ChatCompletion.model_validate),
        "openai-responses": (responses, event, Response.model_validate),
    }
    with served(answers) as base:
        client = openai.OpenAI(base_url=f"{base}/v1", api_key="test", max_retries=0)
        found = {
            model: read(client, model) | {"invalid": invalid(answers, model, one, whole)}
            for target, (read, one, whole) in checks.items()
            for model in goldens(answers, target)
        }
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
