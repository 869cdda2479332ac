"""A rolling upgrade of two nodes behind nginx, under load: how many requests fail.

    python benchmarks/rolling.py [--requests 4000] [--rounds 1] [--upgrade] [--restart] [--json]

Two `lightgate up` over upstream.py stand behind the nginx of deploy/nginx/lightgate.conf (ports and
folders replaced, nothing else). Half of the clients open a connection for each request, half keep
theirs. Meanwhile `lightgate reload` replaces one node's processes after the other's; with --upgrade
between two installed versions. With --restart the nodes are stopped and started instead, and nginx
is told nothing. A request fails if its connection breaks or its answer is no whole
200. Exit code 6 if one does.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import overhead
import restart

from lightgate.gateway.process.lock import read_state

if TYPE_CHECKING:
    from collections.abc import Iterator

CONF = overhead.HERE.parent / "deploy" / "nginx" / "lightgate.conf"
NODES = 2
WORKERS = 1
PAUSE_S = 0.5
READY_S = 120.0  # for a node to start, also on a busy machine
WHOLE = """
daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log stderr crit; {user}
events {{ worker_connections 4096; }}
http {{
  access_log off;
  client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  include {folder}/lightgate.conf;
}}
"""


class Node:
    """One `lightgate up` with a data folder of its own."""

    def __init__(self, folder: Path, upstream: int, python: str) -> None:
        self.port, console = overhead.free_port(), overhead.free_port()
        folder.mkdir()
        text = overhead.CONFIG.format(port=self.port, folder=folder)
        text += overhead.MODEL.format(policy="ordered")
        text += "".join(overhead.PROVIDER.format(n=n, upstream=upstream) for n in range(1, 6))
        (folder / "lightgate.toml").write_text(text, "ascii")
        self.data = folder / "data"
        flags = ["--config", str(folder / "lightgate.toml"), "--console-port", str(console)]
        self._command = [python, "-m", "lightgate", "up", *flags, "--no-demo"]
        self.subject = overhead.Subject("lightgate", self.port, self._command)

    def start(self) -> None:
        """Start it again."""
        self.subject = overhead.Subject("lightgate", self.port, self._command)


class Balancer:
    """The nginx of deploy/, with the ports of this run."""

    def __init__(self, folder: Path, nodes: list[Node]) -> None:
        self.port = overhead.free_port()
        self._folder, self._nodes = folder, nodes
        self._write()
        user = "user root;" if os.geteuid() == 0 else ""
        (folder / "nginx.conf").write_text(WHOLE.format(folder=folder, user=user), "ascii")
        program = overhead.nginx_program()
        self._words = [program, "-c", str(folder / "nginx.conf"), "-p", str(folder), "-e", "stderr"]
        self.subject = overhead.Subject("nginx", self.port, self._words)

    def _write(self) -> None:
        """Write its configuration."""
        text = CONF.read_text("ascii")
        servers = iter(self._nodes)

        def server(found: re.Match[str]) -> str:
            return f"server 127.0.0.1:{next(servers).port}{found[1]};"

        text = re.sub(r"server 10\.0\.0\.\d+:8080([^;]*);", server, text)
        text = text.replace("listen 80;", f"listen 127.0.0.1:{self.port};")
        (self._folder / "lightgate.conf").write_text(text, "ascii")


async def replaced(node: Node, python: str, *, upgrade: bool) -> None:
    """Replace the processes of a node."""
    more = ["--upgrade"] if upgrade else []
    reload = await asyncio.create_subprocess_exec(
        python, "-m", "lightgate", "reload", "--data", str(node.data), *more,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    _, said = await reload.communicate()
    if reload.returncode:
        sys.exit(f"lightgate reload failed: {said.decode()}")


async def measure(
    balancer: Balancer, nodes: list[Node], options: argparse.Namespace, site: restart.Site | None
) -> restart.Load:
    """Ask through nginx while one node after the other is replaced."""
    load = restart.Load(balancer.port, options.requests)
    clients = [asyncio.ensure_future(load.client(keeps=n % 2 == 0)) for n in range(restart.CLIENTS)]
    python = overhead.PYTHON if site is None else site.python
    for number in range(options.rounds):
        version = None if site is None else await asyncio.to_thread(site.install, (number + 1) % 2)
        for node in nodes:
            await asyncio.sleep(PAUSE_S)
            if options.restart:
                await asyncio.to_thread(node.subject.close)
                await asyncio.to_thread(node.start)
            else:
                await replaced(node, python, upgrade=site is not None)
            state = read_state(node.data)
            if version is not None and (state is None or state.version != version):
                sys.exit(f"Installed is {version}, and the node runs another: {state}")
    load.reloaded = True
    await asyncio.gather(*clients)
    return load


@contextlib.contextmanager
def cluster(folder: Path, upstream: int, python: str) -> Iterator[tuple[Balancer, list[Node]]]:
    """Two nodes and their load balancer."""
    nodes: list[Node] = []
    try:
        while len(nodes) < NODES:
            nodes.append(Node(folder / f"node-{len(nodes)}", upstream, python))
        balancer = Balancer(folder, nodes)
        try:
            yield balancer, nodes
        finally:
            balancer.subject.close()
    finally:
        for node in nodes:
            node.subject.close()


def main() -> int:
    parser = argparse.ArgumentParser(description="A rolling upgrade behind nginx.")
    parser.add_argument("--requests", type=int, default=4_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--upgrade", action="store_true", help="between two installed versions")
    parser.add_argument("--restart", action="store_true", help="stop and start instead of reload")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    overhead.READY_S = READY_S
    with tempfile.TemporaryDirectory() as place, overhead.provider() as upstream:
        folder = Path(place)
        site = restart.Site(folder) if options.upgrade else None
        python = overhead.PYTHON if site is None else site.python
        with cluster(folder, upstream, python) as (balancer, nodes):
            load = asyncio.run(measure(balancer, nodes, options, site))
    found = {
        "requests": load.done + len(load.failed),
        "failed": len(load.failed),
        "connections": load.opened,
        "nodes replaced": NODES * options.rounds,
        "slowest_ms": round(load.slowest_s * 1e3, 1),
    }
    print(json.dumps(found) if options.json else ", ".join(f"{k} {v}" for k, v in found.items()))
    for line in sorted(set(load.failed))[:10]:
        print(f"failed: {line}")
    return 6 if load.failed else 0


if __name__ == "__main__":
    sys.exit(main())
