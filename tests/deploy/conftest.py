"""Programs that others made, which read the files of deploy/."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / ".venv-deploy" / "bin"
HELM = ROOT / ".node-helm" / "node_modules" / ".bin" / "helm"


def said(program: Path, arguments: tuple[str, ...], *, text: str, fails: bool) -> str:
    """Run a program; what it said. It must end well, or not, as the test expects."""
    done = subprocess.run(
        [str(program), *arguments], cwd=ROOT, input=text, capture_output=True, text=True,
        check=False, timeout=100,
    )  # fmt: skip
    assert (done.returncode != 0) is fails, done.stdout + done.stderr
    return done.stdout + done.stderr if fails else done.stdout


@pytest.fixture
def tool(missing: Callable[[str], None]) -> Callable[..., str]:
    """Run a program of .venv-deploy."""

    def run(name: str, *arguments: str, text: str = "", fails: bool = False) -> str:
        if not (TOOLS / name).exists():
            missing(f"There is no {name} in .venv-deploy: `make test` makes it.")
        return said(TOOLS / name, arguments, text=text, fails=fails)

    return run


@pytest.fixture
def helm(missing: Callable[[str], None]) -> Callable[..., str]:
    """Run helm."""

    def run(*arguments: str, text: str = "", fails: bool = False) -> str:
        if not HELM.exists():
            missing("There is no helm in .node-helm: `make test` fetches it.")
        return said(HELM, arguments, text=text, fails=fails)

    return run
