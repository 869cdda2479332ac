"""The part of a test that runs inside: start the image's command, ask it, stop it, say what came.

Its argument is JSON: `command` and `healthcheck` of the Dockerfile. It prints JSON.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
from pathlib import Path


def writable(place: str) -> bool:
    """Whether a file can be made in a folder."""
    try:
        (Path(place) / "x").touch()
    except OSError:
        return False
    return True


def status(port: int, path: str, secret: str = "") -> int:
    """The status of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {"authorization": f"Bearer {secret}"} if secret else {}
    connection.request("GET", path, headers=headers)
    return connection.getresponse().status


def main() -> None:
    """Run once."""
    words = json.loads(sys.argv[1])
    own = (sys.executable, "-m", "lightgate")
    first = (*own, "keys", "create", "--name", "first", "--from-env", "LIGHTGATE_FIRST_KEY")
    told = [subprocess.run(first, capture_output=True, text=True, check=True) for _ in "12"]
    found = {
        "writable": [place for place in ("/", "/tmp", "/mnt", "/mnt/env") if writable(place)],
        "user": os.getuid(),
        "keys": [one.stderr for one in told],
    }
    with subprocess.Popen([*own, *words["command"]], stderr=subprocess.PIPE, text=True) as up:
        assert up.stderr is not None
        found["serving"] = next((line for line in up.stderr if '"Serving"' in line), "")
        check = (sys.executable, *words["healthcheck"][1:])
        found["healthy"] = subprocess.run(check, check=False, timeout=60).returncode
        found["models"] = [status(8080, "/v1/models", key) for key in secrets()]
        found["metrics"] = [status(8081, "/metrics", key) for key in secrets()]
        up.send_signal(signal.SIGTERM)
        up.stderr.read()
        found["exit"] = up.wait(60)
    found["unhealthy"] = subprocess.run(
        check, check=False, timeout=60, stderr=subprocess.DEVNULL
    ).returncode
    print(json.dumps(found))  # noqa: T201 - read by the test


def secrets() -> tuple[str, str, str]:
    """The key, the console's secret, and none."""
    return os.environ["LIGHTGATE_FIRST_KEY"], os.environ["LIGHTGATE_CONSOLE_SECRET"], ""


if __name__ == "__main__":
    main()
