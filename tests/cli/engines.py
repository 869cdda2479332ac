"""Real engines as processes of their own, each in its own environment."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

HERE: Final = Path(__file__).parent
MODELS: Final = {"llama": "tiny", "mlx": "default_model"}  # engine: the name of its only model


def python_of(name: str) -> Path:
    """The interpreter of an engine's environment."""
    return HERE.parents[1] / f".venv-engine-{name}" / "bin" / "python"


def installed(name: str) -> bool:
    """Whether an engine's environment is there."""
    return python_of(name).exists()


@asynccontextmanager
async def engine(name: str, folder: Path) -> AsyncIterator[str]:
    """The base URL of a running engine; it ends with its standard input."""
    process = await asyncio.create_subprocess_exec(
        python_of(name), HERE / f"engine_{name}.py", folder,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={"PATH": os.environ.get("PATH", "")},
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with asyncio.timeout(150):
            yield (await process.stdout.readline()).decode().strip()
            process.stdin.close()
            await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
