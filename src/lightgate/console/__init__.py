"""The control plane: carries journals into the ledger, and shows what is in it."""

from __future__ import annotations

from typing import Final

LEDGER_ENV: Final = "LIGHTGATE_LEDGER_URL"  # a URL may hold a password: never an argument
