"""The environments of the SDKs, and how a program is run in one."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def python_of(sdk: str) -> Path:
    return ROOT / f".venv-sdk-{sdk}" / "bin" / "python"


def run_in(sdk: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a file with its arguments, or `-c` and a text."""
    return subprocess.run(
        [python_of(sdk), *words],
        capture_output=True, text=True, timeout=110, check=False, env=bare_env(),
    )  # fmt: skip


def bare_env() -> dict[str, str]:
    """No proxy, no key and no setting of the developer's shell may reach an SDK."""
    env = {"PATH": os.environ.get("PATH", ""), "HOME": os.environ.get("HOME", "")}
    return env | {"PYTHONPATH": str(HERE.parent)}
