"""OpenAI embeddings: unit vectors that depend on the text alone."""

from __future__ import annotations

import base64
import zlib
from typing import TYPE_CHECKING

import numpy as np
from msgspec.json import encode

if TYPE_CHECKING:
    from collections.abc import Sequence

DIMENSIONS = 64


def embeddings(model: str, inputs: Sequence[str], tokens_in: int, style: tuple[str, int]) -> bytes:
    """The list object; `style` is the encoding (float or base64) and the number of dimensions."""
    encoding, dimensions = style
    data = []
    for index, text in enumerate(inputs):
        rng = np.random.Generator(np.random.PCG64(zlib.crc32(text.encode())))
        vector = rng.standard_normal(dimensions).astype(np.float32)
        vector /= np.linalg.norm(vector)
        value: object = [round(float(x), 7) for x in vector]
        if encoding == "base64":
            value = base64.b64encode(vector.tobytes()).decode()
        data.append({"object": "embedding", "index": index, "embedding": value})
    usage = {"prompt_tokens": tokens_in, "total_tokens": tokens_in}
    return encode({"object": "list", "data": data, "model": model, "usage": usage})
