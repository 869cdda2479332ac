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
# The weight of the next answer after so many: a plain mean at first, then one that forgets.
_STEPS: Final = tuple(max(STEP, 1.0 / (count + 1)) for count in range(round(1 / STEP)))


class _Length:
    """The expected tokens of one kind, and of how many answers that is the mean."""

    __slots__ = ("answers", "tokens")

    def __init__(self, tokens: float) -> None:
        self.tokens = tokens
        self.answers = 1


class AnswerLengths:
    """The tokens of the last answers, by model, key and prompt size."""

    __slots__ = ("_kinds", "_models")

    def __init__(self) -> None:
        self._models: dict[str, float] = {}
        self._kinds: dict[tuple[str, str, int], _Length] = {}

    def expected(self, model: str, key: str, size: int) -> int | None:
        """Return how many tokens the next answer has; None before the first."""
        known = self._kinds.get((model, key, size))
        if known is not None and known.answers >= ENOUGH:
            return max(1, round(known.tokens))
        whole = self._models.get(model)
        return None if whole is None else max(1, round(whole))

    def saw(self, model: str, key: str, size: int, tokens: int) -> None:
        """Take in the length of an answer."""
        kind = (model, key, size)
        known = self._kinds.get(kind)
        if known is None:
            if len(self._kinds) >= MOST:
                self._kinds.clear()
                self._models.clear()
            self._kinds[kind] = _Length(float(tokens))
        else:
            count = known.answers
            known.tokens += _STEPS[count] * (tokens - known.tokens)
            if count < len(_STEPS) - 1:
                known.answers = count + 1
        models = self._models
        whole = models.get(model)
        models[model] = float(tokens) if whole is None else whole + STEP * (tokens - whole)
