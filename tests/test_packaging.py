"""What a user installs: the wheel has all it needs and nothing else, and every part is pinned."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from lightgate import __version__
from lightgate.sim.world_file import shipped

ROOT = Path(__file__).parents[1]
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
# Text of the project; environments, caches and what git keeps for itself are not.
FOLDERS = ("src", "tests", "docs", "benchmarks", "requirements", ".ci")
TEXT = {".py", ".toml", ".md", ".txt", ".in", ".json", ".sse", ".yml", ".cfg", ""}


def project() -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return table


def names(lines: list[str]) -> set[str]:
    found = (re.match(r"[A-Za-z0-9][A-Za-z0-9._-]*", line.strip()) for line in lines)
    return {match[0].lower().replace("_", "-") for match in found if match}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """Built with the locked build backend, offline."""
    folder = tmp_path_factory.mktemp("dist")
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (path,) = folder.glob("*.whl")
    return zipfile.ZipFile(path)


def test_the_wheel_has_the_data_files(wheel: zipfile.ZipFile) -> None:
    inside = set(wheel.namelist())
    wanted = {"lightgate/py.typed", "lightgate/provider/catalogue.toml"}
    wanted |= {f"lightgate/sim/worlds/{name}.toml" for name in shipped()}
    wanted |= {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert wanted - inside == set()
    assert len(shipped()) >= 5
    for kind in ("worlds/", "console/static/", "assets/fonts/", "migrations/versions/", ".pem"):
        assert any(kind in name for name in inside), kind


def test_the_wheel_has_every_module_and_no_test(wheel: zipfile.ZipFile) -> None:
    inside = {name for name in wheel.namelist() if ".dist-info/" not in name}
    modules = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src").rglob("*.py")}
    assert modules - inside == set()
    assert [name for name in inside if not name.startswith("lightgate/")] == []
    assert [name for name in inside if "test_" in name or name.endswith(".pyc")] == []


def test_the_wheel_knows_its_version_licence_and_command(wheel: zipfile.ZipFile) -> None:
    facts = f"lightgate-{__version__}.dist-info"
    assert f"{facts}/licenses/LICENSE" in wheel.namelist()
    metadata = wheel.read(f"{facts}/METADATA").decode()
    assert f"\nVersion: {__version__}\n" in metadata
    assert "\nLicense-Expression: Apache-2.0 AND OFL-1.1\n" in metadata
    assert "lightgate = lightgate.__main__:main" in wheel.read(f"{facts}/entry_points.txt").decode()


def test_the_runtime_set_is_what_pyproject_asks_for() -> None:
    wanted = (ROOT / "requirements" / "run.in").read_text("utf-8").splitlines()
    assert names(project()["dependencies"]) == names(wanted)


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.stem)
def test_every_requirement_is_pinned_with_hashes(lock: Path) -> None:
    text = re.sub(r"\s*\\\n\s*", " ", lock.read_text("utf-8"))
    lines = [
        line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")
    ]
    assert lines
    for line in lines:
        assert re.fullmatch(
            r"[a-z0-9._-]+(\[[a-z0-9,-]+\])?==\S+( ; [^#]+)?( --hash=sha256:[0-9a-f]{64})+", line
        ), line


def test_there_is_a_lock_for_every_wish() -> None:
    wishes = {path.stem for path in (ROOT / "requirements").glob("*.in")}
    assert {lock.stem for lock in LOCKS} == wishes


def files() -> list[Path]:
    found = [path for path in ROOT.iterdir() if path.is_file()]
    for folder in FOLDERS:
        found += [path for path in (ROOT / folder).rglob("*") if path.is_file()]
    ours = (path for path in found if path.name != ".git")  # of a worktree: where its own folder is
    return [path for path in ours if path.suffix in TEXT and "__pycache__" not in path.parts]


def test_no_file_names_a_place_outside_the_project() -> None:
    # Spelled in two parts, so that this file does not find itself.
    marks = ["../" + "shared", "/" + "work/", "/opt/" + "pypi", "index-" + "url ="]
    marks += ["--find-" + "links", "/home/" + "user", "/root/" + "."]
    bad = [
        f"{path.relative_to(ROOT)}: {mark}"
        for path in files()
        for mark in marks
        # A folder of the project may have the name: there it follows another.
        if re.search(r"(?<!\w)" + re.escape(mark), path.read_text("utf-8", errors="replace"))
    ]
    assert bad == []
    assert len(files()) > 100


def test_no_lock_names_an_index() -> None:
    option = re.compile(r"^\s*(?:-i|--index-url|--extra-index-url|--trusted-host)\b", re.MULTILINE)
    for path in [*LOCKS, ROOT / "Makefile"]:
        assert option.findall(path.read_text("utf-8")) == []
