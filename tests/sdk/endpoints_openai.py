"""Drives the openai SDK's calls beside chat through a gateway and prints what it made of them."""

from __future__ import annotations

from typing import Any

import openai  # type: ignore[import-not-found]  # only in the SDK's own environment

from sdk import through

WORDS = "Tell me what a lighthouse is for, and who keeps it."
TARGETS = ("openai/plain", "anthropic/plain", "gemini/plain", "lab/plain")


def count(client: Any, model: str) -> dict[str, Any]:
    raw = client.responses.input_tokens.with_raw_response.count(model=model, input=WORDS)
    return {"tokens": raw.parse().input_tokens, "source": raw.headers["x-lightgate-count-source"]}


def talk(client: Any, model: str) -> dict[str, Any]:
    """Two turns by id, the first asked for again, its items listed, then deleted."""
    first = client.responses.create(model=model, input=WORDS, max_output_tokens=12)
    asked = {"model": model, "input": "And then?", "previous_response_id": first.id}
    with client.responses.stream(**asked, max_output_tokens=12) as stream:
        stream.until_done()
        second = stream.get_final_response()
    again = client.responses.retrieve(first.id)
    items = list(client.responses.input_items.list(first.id))
    client.responses.delete(first.id)
    try:
        client.responses.retrieve(first.id)
    except openai.NotFoundError as error:
        gone = error.status_code
    return {
        "same": again.output_text == first.output_text != "",
        "tokens": [first.usage.input_tokens, second.usage.input_tokens],
        "text": second.output_text,
        "items": [item.content[0].text for item in items],
        "gone": gone,
    }


def embed(client: Any, model: str) -> dict[str, Any]:
    """By default, which is base64 on the wire, and as numbers."""
    asked = {"model": model, "input": [WORDS, "Sea."], "dimensions": 16}
    packed = client.embeddings.create(**asked)
    plain = client.embeddings.create(**asked, encoding_format="float")
    return {
        "packed": [row.embedding for row in packed.data],
        "plain": [row.embedding for row in plain.data],
        "tokens": packed.usage.prompt_tokens,
    }


def speak(client: Any, model: str) -> dict[str, Any]:
    """Speech as it comes, and as one piece."""
    asked = {"model": model, "voice": "alloy", "input": WORDS}
    pieces = []
    with client.audio.speech.with_streaming_response.create(**asked) as answer:
        kind = answer.headers["content-type"]
        for piece in answer.iter_bytes(4096):
            pieces.append(piece)  # noqa: PERF402 - one by one, as a player takes them
    whole = client.audio.speech.create(**asked).read()
    return {"type": kind, "size": len(b"".join(pieces)), "same": b"".join(pieces) == whole}


def transcribe(client: Any, model: str) -> dict[str, Any]:
    """A transcript as JSON, as text, as events; and a translation."""
    recording = ("a.wav", bytes(range(256)) * 250, "audio/wav")
    heard = client.audio.transcriptions.create(model=model, file=recording)
    text = client.audio.transcriptions.create(model=model, file=recording, response_format="text")
    events = list(client.audio.transcriptions.create(model=model, file=recording, stream=True))
    other = client.audio.translations.create(model=model, file=recording)
    return {
        "lengths": [len(heard.text), len(text.rstrip("\n")), len(events[-1].text), len(other.text)],
        "pieces": "".join(event.delta for event in events[:-1]) == events[-1].text,
    }


def main() -> None:
    url, keys = through.facts()
    client = openai.OpenAI(base_url=f"{url}/v1", api_key=keys["open"], max_retries=0)
    cases = through.Cases()
    for model in TARGETS:
        cases.take(f"count-{model}", count, client, model)
        cases.take(f"talk-{model}", talk, client, model)
        if model != "anthropic/plain":
            cases.take(f"embed-{model}", embed, client, model)
    for model in ("openai/plain", "speaking"):
        cases.take(f"speak-{model}", speak, client, model)
        cases.take(f"transcribe-{model}", transcribe, client, model)
    cases.take("speak-lab/plain", speak, client, "lab/plain")
    cases.print()


if __name__ == "__main__":
    main()
