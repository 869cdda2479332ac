from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from lightgate.errors import LightgateError
from lightgate.sim.server.serve import SimOptions
from lightgate.sim.server.spawn import SimProcess

if TYPE_CHECKING:
    from pathlib import Path

ORPHAN = """
import os, sys
from lightgate.sim.server.serve import SimOptions
from lightgate.sim.server.spawn import SimProcess
sim = SimProcess(SimOptions(world="selftest"))
print(sim.facts.port, flush=True)
sys.stdin.read()
os._exit(0)
"""


def test_a_child_serves_until_it_is_closed() -> None:
    with SimProcess(SimOptions(world="selftest", seed=3, trouble=True)) as sim:
        assert (sim.facts.world, sim.facts.seed, sim.facts.pid) == ("selftest", 3, sim.pid)
        root = f"http://127.0.0.1:{sim.facts.port}"
        assert sim.url == root
        assert sim.facts.providers["lab"] == f"{root}/lab/v1"
        assert sim.facts.providers["lab-gemini"] == f"{root}/lab-gemini/v1beta"
        assert "refused" in sim.facts.trouble_ports
        line = http.client.HTTPConnection("127.0.0.1", sim.facts.port)
        line.request("GET", "/sim/world")
        assert json.load(line.getresponse())["seed"] == 3
        line.close()
        assert sim.close() == 0


def test_a_child_that_cannot_start_is_an_error(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(LightgateError, match="did not start"):
        SimProcess(SimOptions(world="atlantis"))
    assert "There is no world 'atlantis'." in capfd.readouterr().err
    taken = socket.create_server(("127.0.0.1", 0))
    with taken, pytest.raises(LightgateError, match="did not start"):
        SimProcess(SimOptions(world="selftest", port=taken.getsockname()[1]))
    assert "is in use by another program" in capfd.readouterr().err


def test_it_ends_with_its_parent() -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", ORPHAN], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert parent.stdin is not None
    assert parent.stdout is not None
    port = int(parent.stdout.readline())
    with socket.create_connection(("127.0.0.1", port)) as line:
        parent.stdin.close()
        assert parent.wait(100) == 0
        line.settimeout(20)
        assert line.recv(1) == b""  # the orphan has let go of the connection
    parent.stdout.close()


def test_bad_options_are_refused_in_a_sentence(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "lightgate.sim", '{"port": "x"}']
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=dict(os.environ)
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
