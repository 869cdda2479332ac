"""OpenAI embeddings: unit vectors that depend on the text alone."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Sequence

import numpy as np

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
    return json.dumps({"object": "list", "data": data, "model": model, "usage": usage}).encode()
