from __future__ import annotations

import json
import platform
from typing import TYPE_CHECKING

from lightgate import __version__
from lightgate.cli.main import main

if TYPE_CHECKING:
    import pytest


def test_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert lines["lightgate"] == __version__
    assert lines["loop"].startswith("uvloop ")
    assert set(lines) == {"lightgate", "python", "loop", "parser", "platform"}


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["lightgate"] == __version__
    assert facts["python"].endswith(platform.python_version())
