"""Gathers streams of chunks with choices: what chat and completions have in common."""

from __future__ import annotations

from typing import Any, Final

from lightgate.dialect.gather.folding import (
    Object,
    encoded,
    fold,
    keep,
    objects,
    placed,
    read,
    say,
    told,
)

# Padding against listeners, and what `usage` and `choices` are made of.
_NOT_KEPT: Final = frozenset({"choices", "usage", "object", "x_groq", "obfuscation"})


class ChunkGatherer:
    """The head of an answer, its choices by index and its last usage."""

    __slots__ = ("_choices", "_head", "_object", "_usage", "size")

    def __init__(self, kind: str) -> None:
        self._object = kind
        self._head: Object = {}
        self._choices: dict[int, Object] = {}
        self._usage: Any = None
        self.size = 0

    def event(self, name: bytes, data: bytes) -> None:  # noqa: ARG002 - these streams name none
        """Take one event."""
        chunk = read(data)
        if chunk is None:
            return
        for piece in objects(chunk.get("choices")):
            choice, size = placed(self._choices, piece)
            self.size += size
            self._take(choice, piece)
        self._facts(chunk)

    def whole(self) -> bytes:
        """The answer as one object."""
        choices = [self.chosen(place, one) for place, one in sorted(self._choices.items())]
        head = {"id": "", "object": self._object, **self._head}
        usage = {} if self._usage is None else {"usage": self._usage}
        return encoded({**head, "choices": choices, **usage})

    # What an endpoint does in its own way.

    def delta(self, choice: Object, said: Object) -> int:
        """Take what a piece of a choice says; return the bytes that it adds."""
        text = said.pop("text", None)
        return keep(choice, said) + (say(choice, "text", text) if isinstance(text, str) else 0)

    def chosen(self, place: int, choice: Object) -> Object:
        """The choice as a whole answer has it."""
        return {"index": place, **told(choice)}

    def _take(self, choice: Object, piece: Object) -> None:
        known = choice.get("finish_reason")
        finish = piece.pop("finish_reason", None)
        piece.pop("index", None)
        if "logprobs" in piece:
            self.size += fold(choice, {"logprobs": piece.pop("logprobs")})
        self.size += self.delta(choice, piece)
        # A mere stop takes back no other reason; a later word is better than none, or than a stop.
        if known is None or (known == "stop" and finish is not None):
            choice["finish_reason"] = finish

    def _facts(self, chunk: Object) -> None:
        head = self._head
        for name, value in chunk.items():
            if name not in _NOT_KEPT and head.get(name, chunk) != value:  # nearly all repeat it
                self.size += keep(head, {name: value})
        usage = chunk.get("usage")
        groq = chunk.get("x_groq")
        if isinstance(groq, dict):
            own = {name: value for name, value in groq.items() if name != "usage"}
            self.size += keep(self._head, {"x_groq": own} if own else {})
            usage = usage or groq.get("usage")
        if usage is not None:
            self._usage = usage
