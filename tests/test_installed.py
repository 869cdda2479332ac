"""Lightgate as a user has it: installed from its wheel or with pipx, in a folder of their own.

Nothing of this tree may be needed: the programs run in empty folders, with another interpreter.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from deploy.dockerfile import words
from lightgate import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[1]
PIPX = ROOT / ".venv-pipx" / "bin" / "pipx"
UV = ROOT / ".venv-uv" / "bin" / "uv"
REQUIRE_ALL = "LIGHTGATE_REQUIRE_ALL"
UNREACHABLE = ("NewConnectionError", "NameResolutionError", "ConnectTimeoutError")
INSTALL_S = 400  # a package index may be slow
QUICK = ("--concurrency", "1", "--requests", "12", "--prompt-tokens", "64", "--max-tokens", "8")


def run(*words: str | Path, folder: Path, seconds: float = 100) -> str:
    """Run a program in a folder, without anything of the developer's shell."""
    env = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "LANG": "C.UTF-8"}
    done = subprocess.run(
        words, cwd=folder, env=env, capture_output=True, text=True, timeout=seconds, check=False
    )
    assert done.returncode == 0, f"{words}: {done.stderr}"
    return done.stdout


def install(*words: str | Path, **more: str) -> None:
    """Run an installer with the package index of this machine."""
    done = subprocess.run(
        words, cwd=ROOT, env={**os.environ, **more},
        capture_output=True, text=True, timeout=INSTALL_S, check=False,
    )  # fmt: skip
    if any(mark in done.stderr for mark in UNREACHABLE) and not os.environ.get(REQUIRE_ALL):
        pytest.skip("The package index cannot be reached from here.")
    assert done.returncode == 0, f"{words}: {done.stderr[-2000:]}"


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`lightgate` of a fresh environment: the locked dependencies and the wheel."""
    home = tmp_path_factory.mktemp("wheel")
    install(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(home))
    (wheel,) = home.glob("*.whl")
    install(sys.executable, "-m", "venv", "--without-pip", str(home / "env"))
    fill(home / "env", "--require-hashes", "-r", ROOT / "requirements" / "run.txt")
    fill(home / "env", "--no-deps", wheel)
    return home / "env" / "bin" / "lightgate"


def fill(env: Path, *words: str | Path) -> None:
    """Install into an environment: with uv, or with pip where uv is missing or has no index.

    pipx, below, installs with pip.
    """
    python = str(env / "bin" / "python")
    if UV.exists():
        by_uv = [UV, "-q", "pip", "install", "--python", python, *words]
        if not subprocess.run(by_uv, cwd=ROOT, capture_output=True, check=False).returncode:
            return
    pip = (sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", "--python", python)
    install(*pip, "install", "--no-compile", *words)


@contextmanager
def serving(command: Path, folder: Path, *args: str) -> Iterator[dict[str, Any]]:
    """`lightgate up` on free ports; gives the addresses that it printed."""
    ports = ("--port", "0", "--console-port", "0", "--log", "json")
    with subprocess.Popen(
        [command, "up", *ports, *args],
        cwd=folder, env={"PATH": "/usr/bin:/bin", "HOME": str(folder)},
        stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        said: dict[str, Any] = {}
        try:
            for line in process.stderr:
                said = json.loads(line)
                if "gateway" in said:
                    break
            assert "gateway" in said
            yield said
        finally:
            process.terminate()
            process.stderr.read()
            assert process.wait(60) == 0


def get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=60) as answer:  # noqa: S310 - our own loopback
        content: bytes = answer.read()
    return content


def test_it_runs_from_an_empty_folder_and_from_its_own_files(command: Path, tmp_path: Path) -> None:
    assert (
        json.loads(run(command, "version", "--json", folder=tmp_path))["lightgate"] == __version__
    )
    where = "import lightgate, sys; print(lightgate.__file__); print(sys.path)"
    told = run(command.parent / "python", "-c", where, folder=tmp_path)
    assert str(command.parents[1]) in told.splitlines()[0]
    assert str(ROOT) not in told
    assert "providers-2026" in run(command, "sim", "--worlds", folder=tmp_path)
    assert "openai/gpt-4o " in run(command, "prices", "openai/gpt-4o", folder=tmp_path)
    assert list(tmp_path.iterdir()) == []  # looking leaves nothing behind


def test_the_demo_serves_its_pages_and_is_benched(command: Path, tmp_path: Path) -> None:
    with serving(command, tmp_path, "--demo") as said:
        page = get(said["console"]).decode()
        for name in ("console.css", "board.js", "icon.svg"):
            assert f"/static/{name}" in page
            assert get(f"{said['console']}static/{name}")
        target = f"demo={said['gateway']}#demo"
        shown = run(command, "bench", target, *QUICK, "--out", "run", folder=tmp_path)
        assert "c=1, by TTFT p50" in shown
        assert b"<html" in get(f"{said['console']}report")
        assert "Speed by target" in run(command, "report", "--by", "target", folder=tmp_path)
    made = {path.name for path in (tmp_path / "run").iterdir()}
    assert {"run.json", "attempts.jsonl", "summary.csv", "report.html"} <= made
    assert (tmp_path / "lightgate-data" / "ledger.sqlite").exists()
    pictures = list((tmp_path / "run").rglob("*.png"))
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in pictures)
    run(command, "report", "--out", "speed.png", folder=tmp_path)
    assert (tmp_path / "speed.png").read_bytes().startswith(b"\x89PNG")


def test_it_runs_as_the_image_runs_it(command: Path) -> None:
    """The steps of the Dockerfile without docker: another user, a read-only root, one volume."""
    inside = ROOT / "tests" / "deploy"
    namespace = ("unshare", "--mount", "--pid", "--fork", "--net")
    try:
        subprocess.run([*namespace, "true"], check=True, capture_output=True, timeout=60)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("This machine does not let a test make namespaces.")
    done = subprocess.run(
        [*namespace, "sh", inside / "as_image.sh", command.parents[1], sys.base_prefix,
         "python3", "-c", (inside / "in_image.py").read_text(), json.dumps(words())],
        env={**os.environ, "LIGHTGATE_FIRST_KEY": "lg-" + secrets.token_urlsafe(32),
             "LIGHTGATE_CONSOLE_SECRET": secrets.token_urlsafe(32)},
        capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert found["writable"] == []
    assert found["user"] == 10001
    assert "is now" in found["keys"][0]
    assert "was already" in found["keys"][1]
    assert '"a key is needed"' in found["serving"]
    assert found["models"] == [200, 401, 401]  # the key, the console's secret, none
    assert found["metrics"] == [401, 200, 401]
    assert (found["healthy"], found["exit"]) == (0, 0)
    assert found["unhealthy"] != 0  # once it has stopped


@pytest.mark.usefixtures("command")  # one after the other: both fetch the same packages
def test_pipx_installs_the_tree(tmp_path: Path, missing: Callable[[str], None]) -> None:
    if not PIPX.exists():
        missing("There is no .venv-pipx: `make test` makes it.")
    places = {"PIPX_HOME": str(tmp_path / "home"), "PIPX_BIN_DIR": str(tmp_path / "bin")}
    install(PIPX, "install", "--pip-args=--no-compile", ROOT, **places)
    command = tmp_path / "bin" / "lightgate"
    empty = tmp_path / "empty"
    empty.mkdir()
    assert json.loads(run(command, "version", "--json", folder=empty))["lightgate"] == __version__
    assert "providers-2026" in run(command, "sim", "--worlds", folder=empty)
