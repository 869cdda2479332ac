"""What makes a target fast or slow before anything is measured: size, quantisation, hardware.

The size and the quantisation are read from the model's name, as providers write them there; the
hardware is the catalogue's. What neither says stays unknown: nothing is guessed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from lightgate.provider.catalogue import Provider

_SIZE: Final = re.compile(r"(?<![a-z0-9.])((?:[0-9]+x)?[0-9]+(?:\.[0-9]+)?)b(?![a-z0-9])")
_FORMS: Final = "fp4|fp8|fp16|bf16|nvfp4|mxfp4|int4|int8|awq|gptq|q[2-8](?:_[a-z0-9]+)*"
_QUANTISATION: Final = re.compile(rf"(?<![a-z0-9])({_FORMS})(?![a-z0-9])")


def drivers(provider: Provider, model: str) -> dict[str, str]:
    """The known drivers of a target, by name: size, quantisation, hardware, operator."""
    name = model.lower()
    size, form = _SIZE.search(name), _QUANTISATION.search(name)
    found = {
        "size": f"{size[1]}B" if size is not None else "",
        "quantisation": form[1] if form is not None else "",
        "hardware": provider.hardware,
        "operator": "" if provider.local else provider.title,
    }
    return {key: value for key, value in found.items() if value}
