from __future__ import annotations

import resource
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

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
