"""How long answers are: what is expected of the next one, by the last ones of its kind.

The same model answers one key with a word and another with an essay, and long prompts otherwise
than short ones. So lengths are kept for each model, key and prompt size, and for the model as a
whole until those say something.
"""

from __future__ import annotations

from typing import Final

STEP: Final = 0.1  # of the newest answer in the expected length of the next
ENOUGH: Final = 3  # answers of a key and prompt size, from which on they speak for themselves
MOST: Final = 4096  # kinds; all are forgotten then


class AnswerLengths:
    """The tokens of the last answers, by model, key and prompt size."""

    __slots__ = ("_kinds", "_models")

    def __init__(self) -> None:
        self._models: dict[str, float] = {}
        self._kinds: dict[tuple[str, str, int], tuple[float, int]] = {}  # tokens, and answers

    def expected(self, model: str, key: str, size: int) -> int | None:
        """Return how many tokens the next answer has; None before the first."""
        tokens, count = self._kinds.get((model, key, size), (0.0, 0))
        if count >= ENOUGH:
            return max(1, round(tokens))
        whole = self._models.get(model)
        return None if whole is None else max(1, round(whole))

    def saw(self, model: str, key: str, size: int, tokens: int) -> None:
        """Take in the length of an answer."""
        kind = (model, key, size)
        if len(self._kinds) >= MOST and kind not in self._kinds:
            self._kinds.clear()
            self._models.clear()
        before, count = self._kinds.get(kind, (float(tokens), 0))
        # A plain mean at first, then one that forgets.
        step = max(STEP, 1.0 / (count + 1))
        self._kinds[kind] = (before + step * (tokens - before), min(count + 1, ENOUGH))
        whole = self._models.get(model, float(tokens))
        self._models[model] = whole + STEP * (tokens - whole)
