"""How the tables came to be what they are: one file a step, run when a ledger is opened."""

from typing import Final

HEAD: Final = "0003"  # the newest step; steps are numbered in their order
