"""Counts of a request's tokens, in the three forms, and Gemini's embeddings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.json import encode

from lightgate.sim.dialects.openai import vector_of

if TYPE_CHECKING:
    from lightgate.sim.answer.request import SimRequest


class CountRenderer:
    """One count; it says how long the simulator takes the prompt to be, as usage does."""

    content_type = b"application/json"  # counts are never streamed

    def __init__(self, request: SimRequest) -> None:
        self._request = request

    def beat(self, kind: int, first: int, tokens: int) -> bytes:  # noqa: ARG002 - the protocol's
        """Nothing: an answer that is not streamed has no beats of its own."""
        return b""

    def whole(self) -> bytes:
        """The count in the dialect's words."""
        count, kind = self._request.tokens_in, self._request.kind
        if kind == "countTokens":
            details = [{"modality": "TEXT", "tokenCount": count}]
            return encode({"totalTokens": count, "promptTokensDetails": details})
        if kind == "input_tokens":
            return encode({"object": "response.input_tokens", "input_tokens": count})
        return encode({"input_tokens": count})

    def usage(self, *, streamed: bool = False) -> dict[str, object] | None:  # noqa: ARG002 - the protocol's
        """Nothing: a count costs nothing."""
        return None


class GeminiEmbeddingRenderer(CountRenderer):
    """The vectors of embedContent and batchEmbedContents."""

    def __init__(self, request: SimRequest, inputs: tuple[str, ...]) -> None:
        super().__init__(request)
        self._inputs = inputs

    def whole(self) -> bytes:
        """One embedding, or a list of them."""
        size = self._request.dimensions
        found = [{"values": vector_of(text, size).tolist()} for text in self._inputs]
        if self._request.kind == "embedContent":
            return encode({"embedding": found[0] if found else None})
        return encode({"embeddings": found})
