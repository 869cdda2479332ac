"""A client of soak.py that nobody here wrote: the official SDK of OpenAI, in its own environment.

    .venv-sdk-openai/bin/python benchmarks/soak_sdk.py --port PORT --seed N

Asks for chats and responses, streamed and whole, in four threads, without retries of its own, until
its standard input ends. Prints a line of JSON for each request: what was asked, and what came. The
key is in LIGHTGATE_SOAK_KEY.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import threading
import time
from typing import Any

import openai  # type: ignore[import-not-found]  # of another environment

THREADS = 4
LIMIT_S = 45.0
_say = threading.Lock()


def chat(client: Any, asked: dict[str, Any], prompt: str) -> None:
    """One chat, whose answer must be its prompt."""
    made = client.chat.completions.with_raw_response.create(
        model=asked["model"],
        messages=[{"role": "user", "content": prompt}],
        max_tokens=1200,
        stream=asked["streamed"],
        extra_headers={"x-request-id": asked["id"]},
        **({"stream_options": {"include_usage": True}} if asked["streamed"] else {}),
    )
    asked["gate_id"], asked["status"] = made.headers.get("x-lightgate-id", ""), 200
    answer = made.parse()
    if not asked["streamed"]:
        choice, usage = answer.choices[0], answer.usage
        said, finish = choice.message.content, choice.finish_reason
    else:
        said, finish, usage = "", None, None
        for chunk in answer:
            usage = chunk.usage or usage
            for choice in chunk.choices:
                said += choice.delta.content or ""
                finish = choice.finish_reason or finish
    whole = said == prompt and finish == "stop"
    asked["how"] = "whole" if whole else "wrong"
    asked["detail"] = "" if whole else f"{len(said)} of {len(prompt)} letters, finish {finish}"
    asked["usage"] = [usage.prompt_tokens, usage.completion_tokens] if usage else None


def response(client: Any, asked: dict[str, Any], prompt: str) -> None:
    """The same with the endpoint for responses, whole."""
    made = client.responses.with_raw_response.create(
        model=asked["model"], input=prompt, max_output_tokens=1200,
        extra_headers={"x-request-id": asked["id"]},
    )  # fmt: skip
    asked["gate_id"], asked["status"] = made.headers.get("x-lightgate-id", ""), 200
    answer = made.parse()
    whole = answer.output_text == prompt and answer.status == "completed"
    asked["how"] = "whole" if whole else "wrong"
    asked["detail"] = "" if whole else f"{len(answer.output_text)} letters, {answer.status}"
    asked["usage"] = [answer.usage.input_tokens, answer.usage.output_tokens]


def ask(client: Any, asked: dict[str, Any], dice: random.Random) -> None:
    """One request, and how it ended in the SDK's own words."""
    prompt = "-".join([asked["id"]] * dice.randint(3, 60))
    try:
        (chat if asked["dialect"] == "chat" else response)(client, asked, prompt)
    except openai.APITimeoutError as error:
        asked["how"], asked["detail"] = "hung", str(error)
    except openai.APIConnectionError as error:
        cause = repr(error.__cause__)
        asked["how"] = "connect" if "refused" in cause else "broken"
        asked["detail"] = cause[:120]
    except openai.APIStatusError as error:
        asked["how"], asked["status"] = "refused", error.status_code
        asked["code"] = str(error.code or error.type)
        asked["retry_after"] = "retry-after" in error.response.headers
        asked["gate_id"] = error.response.headers.get("x-lightgate-id", "")
    except openai.APIError as error:  # an error event inside a stream
        asked["how"], asked["code"] = "event", str(error.code)
    except Exception as error:  # noqa: BLE001 - httpx's own, where a stream breaks off
        broken = type(error).__module__.startswith("http")
        asked["how"] = "broken" if broken else "wrong"
        asked["detail"] = repr(error)[:200]


def work(port: int, number: int, seed: int, over: threading.Event) -> None:
    """One thread: ask until it is over."""
    dice = random.Random(seed * THREADS + number)  # noqa: S311 - a mix of requests
    client = openai.OpenAI(
        base_url=f"http://127.0.0.1:{port}/v1",
        api_key=os.environ["LIGHTGATE_SOAK_KEY"],
        max_retries=0,
        timeout=LIMIT_S,
    )
    count = 0
    while not over.is_set():
        count += 1
        asked: dict[str, Any] = {
            "id": f"sdk{seed}-{number}-{count:06d}", "kind": "openai SDK",
            "model": dice.choice(("plain", "pair", "claude", "gem", "hedged")),
            "dialect": dice.choice(("chat", "chat", "responses")), "key": "main",
            "streamed": False, "began": time.monotonic(), "how": "hung",
        }  # fmt: skip
        asked["streamed"] = asked["dialect"] == "chat" and dice.random() < 0.6
        ask(client, asked, dice)
        asked["ended"] = time.monotonic()
        with _say:
            sys.stdout.write(json.dumps(asked) + "\n")
            sys.stdout.flush()
        over.wait(0.2 if asked["how"] == "whole" else 0.7)


def main() -> None:
    parser = argparse.ArgumentParser(description="OpenAI's SDK as a client of soak.py.")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    over = threading.Event()
    threads = [
        threading.Thread(target=work, args=(options.port, number, options.seed, over))
        for number in range(THREADS)
    ]
    for thread in threads:
        thread.start()
    sys.stdin.read()
    over.set()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
