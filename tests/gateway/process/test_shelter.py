from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from lightgate.gateway.process.shelter import keep_private, most_connections, raise_descriptors

PROGRAM = """
import os, pathlib, resource, sys
from lightgate.gateway.process.shelter import keep_private, raise_descriptors
resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
print(*raise_descriptors())
data = pathlib.Path(sys.argv[1])
assert keep_private(data) == []
(data / "fresh").write_text("")
for path in (data, data / "ledger.sqlite", data / "journal", data / "fresh"):
    print(oct(path.stat().st_mode & 0o777))
"""


def test_a_folder_is_closed_to_others_and_the_limit_of_files_is_raised(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "ledger.sqlite").write_text("")
    (tmp_path / "ledger.sqlite").chmod(0o644)
    (tmp_path / "journal").mkdir(mode=0o755)
    (tmp_path / "elsewhere").symlink_to("/etc/hostname")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, check=True
    )
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    assert done.stdout.split() == ["256", str(hard), "0o700", "0o600", "0o700", "0o600"]


def test_a_folder_behind_a_link_is_closed_as_well(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o755)
    (tmp_path / "data").symlink_to("real")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.replace('data / "ledger.sqlite", data / "journal", ', ""),
         str(tmp_path / "data")], capture_output=True, text=True, check=True
    )  # fmt: skip
    assert done.stdout.split()[2:] == ["0o700", "0o600"]


@pytest.mark.parametrize(
    ("soft", "most"), [(1024, 480), (66, 1), (68, 2), (67, 1), (64, 1), (10, 1), (4096, 2016)]
)
def test_every_connection_may_need_one_to_a_provider(
    monkeypatch: pytest.MonkeyPatch, soft: int, most: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, 100_000))
    assert most_connections() == most


@pytest.mark.parametrize(
    ("limits", "wanted"),
    [
        ((256, 4096), (4096, 4096)),
        ((256, resource.RLIM_INFINITY), (1_048_576, resource.RLIM_INFINITY)),
        ((2_000_000, resource.RLIM_INFINITY), (2_000_000, resource.RLIM_INFINITY)),
    ],
)
@pytest.mark.parametrize("refused", [None, OSError, ValueError])
def test_the_limit_of_files_is_raised_as_far_as_the_system_lets(
    monkeypatch: pytest.MonkeyPatch,
    limits: tuple[int, int],
    wanted: tuple[int, int],
    refused: type[Exception] | None,
) -> None:
    now = limits

    def put(which: int, asked: tuple[int, int]) -> None:
        nonlocal now
        assert which == resource.RLIMIT_NOFILE
        assert asked == wanted
        if refused is not None:
            raise refused
        now = asked

    monkeypatch.setattr(resource, "getrlimit", lambda _: now)
    monkeypatch.setattr(resource, "setrlimit", put)
    assert raise_descriptors() == (limits[0], limits[0] if refused else wanted[0])


def test_what_cannot_be_closed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(os, "umask", asked.append)
    (tmp_path / "open").write_text("")
    (tmp_path / "closed").write_text("")
    (tmp_path / "gone").write_text("")
    for name, mode in (("open", 0o640), ("closed", 0o600), ("gone", 0o644)):
        (tmp_path / name).chmod(mode)
    tmp_path.chmod(0o701)
    touched: list[tuple[str, int]] = []

    def chmod(path: Path, mode: int) -> None:
        touched.append((path.name, mode))
        if path.name == "gone":
            raise FileNotFoundError
        if path.name == "open":
            raise PermissionError

    monkeypatch.setattr(Path, "chmod", chmod)
    assert keep_private(tmp_path) == [tmp_path / "open"]
    assert asked == [0o077]
    assert sorted(touched[1:]) == [("gone", 0o600), ("open", 0o600)]
    assert touched[0] == (tmp_path.name, 0o700)
