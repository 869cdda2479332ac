"""Gathers a stream of OpenAI completions."""

from __future__ import annotations

from lightgate.dialect.gather.chunks import ChunkGatherer


class CompletionsGatherer(ChunkGatherer):
    """A choice is its text and its log probabilities: the pieces of both go on."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("text_completion")
