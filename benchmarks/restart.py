"""Reloads under load: how many requests fail while every worker is replaced.

    python benchmarks/restart.py [--requests 10000] [--reloads 3] [--workers 2] [--upgrade] [--json]

`lightgate up` over upstream.py; half of the clients open a connection for each request, half keep
theirs until the gateway says `connection: close`. Meanwhile `lightgate reload` runs so many times.
With --upgrade two versions are installed in turn in an environment of their own (wheels of this
tree, the second with another number), and each reload makes the supervisor the installed one.
A request fails if its connection is refused or breaks, or if its answer is not a whole 200. Exit
code 6 if one does.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

import overhead

from lightgate import __version__
from lightgate.gateway.process.lock import read_state

CLIENTS = 16
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\ncontent-length: %d\r\n\r\n"


class Load:
    """Clients that ask until so many requests are done and the reloads are over."""

    def __init__(self, port: int, requests: int) -> None:
        self._port = port
        self._wanted = requests
        body = overhead.body().encode()
        self._request = HEAD % len(body) + body
        self.done = self.opened = 0
        self.failed: list[str] = []
        self.reloaded = False
        self.slowest_s = 0.0

    def _over(self) -> bool:
        return self.reloaded and self.done + len(self.failed) >= self._wanted

    async def client(self, *, keeps: bool) -> None:
        """Ask until it is over; a client that keeps its connection opens another when told to."""
        while not self._over():
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            except OSError as error:
                self.failed.append(f"connect: {error}")
                continue
            self.opened += 1
            more = True
            while more and not self._over():
                more = await self._ask(reader, writer) and keeps
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request; whether the connection may be used again."""
        began = time.monotonic()
        try:
            writer.write(self._request)
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
            fields = head.lower().split(b"\r\n")
            length = next(int(f[16:]) for f in fields if f.startswith(b"content-length: "))
            await asyncio.wait_for(reader.readexactly(length), 30)
        except (OSError, EOFError, TimeoutError, StopIteration) as error:
            self.failed.append(f"{type(error).__name__}: {error}"[:200])
            return False
        self.slowest_s = max(self.slowest_s, time.monotonic() - began)
        if b" 200 " in fields[0]:
            self.done += 1
        else:
            self.failed.append(fields[0].decode("ascii", "replace"))
        return b"connection: close" not in fields


class Site:
    """An environment in which one version of two is installed at a time.

    The dependencies are those of the environment that runs this program.
    """

    def __init__(self, folder: Path) -> None:
        self.python = str(folder / "env" / "bin" / "python")
        _run(overhead.PYTHON, "-m", "venv", "--without-pip", str(folder / "env"))
        place = next((folder / "env" / "lib").glob("python*")) / "site-packages"
        known = [path for path in sys.path if path.endswith("site-packages")]
        (place / "dependencies.pth").write_text("\n".join(known) + "\n")
        self._place = place
        self._wheels = [self._built(folder, f"0.0.{number}") for number in (1, 2)]
        self.install(0)

    def install(self, which: int) -> str:
        """Put one of the versions in the place of the other, as pip does; its number."""
        version, wheel = self._wheels[which]
        for old in self._place.glob("lightgate*"):
            shutil.rmtree(old)
        with zipfile.ZipFile(wheel) as files:
            files.extractall(self._place)
        return version

    @staticmethod
    def _built(folder: Path, version: str) -> tuple[str, Path]:
        """A wheel of this tree under another number."""
        tree = folder / version
        shutil.copytree(overhead.HERE.parent, tree, ignore=shutil.ignore_patterns(".*", "tests"))
        init = tree / "src" / "lightgate" / "__init__.py"
        init.write_text(init.read_text().replace(__version__, version))
        _run(overhead.PYTHON, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tree), cwd=tree)
        (wheel,) = tree.glob("*.whl")
        return version, wheel


def _run(*words: str, cwd: Path | None = None) -> None:
    subprocess.run(words, cwd=cwd, check=True, capture_output=True)


def _all_up(data: Path, workers: int) -> bool:
    """Whether the workers, the console and the process of batches serve."""
    state = read_state(data)
    return state is not None and sum(child.ready for child in state.children) == workers + 2


async def measure(
    subject: overhead.Subject, data: Path, options: argparse.Namespace, site: Site | None
) -> Load:
    load = Load(subject.port, options.requests)
    clients = [asyncio.ensure_future(load.client(keeps=n % 2 == 0)) for n in range(CLIENTS)]
    python = overhead.PYTHON if site is None else site.python
    while not _all_up(data, options.workers):  # noqa: ASYNC110 - what still starts would miss files
        await asyncio.sleep(0.1)
    for number in range(options.reloads):
        await asyncio.sleep(0.5)
        version = None if site is None else await asyncio.to_thread(site.install, (number + 1) % 2)
        upgrade = [] if site is None else ["--upgrade"]
        reload = await asyncio.create_subprocess_exec(
            python, "-m", "lightgate", "reload", "--data", str(data), *upgrade,
            stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        _, said = await reload.communicate()
        if reload.returncode:
            sys.exit(f"lightgate reload failed: {said.decode()}")
        state = read_state(data)
        if version is not None and (state is None or state.version != version):
            sys.exit(f"Installed is {version}, and the supervisor runs another: {state}")
    load.reloaded = True
    await asyncio.gather(*clients)
    return load


def main() -> int:
    parser = argparse.ArgumentParser(description="Reloads under load.")
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--reloads", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--upgrade", action="store_true", help="between two installed versions")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place, overhead.provider() as upstream:
        folder = Path(place)
        port, console = overhead.free_port(), overhead.free_port()
        text = overhead.CONFIG.format(port=port, folder=folder)
        text += overhead.MODEL.format(policy="ordered")
        text += "".join(overhead.PROVIDER.format(n=n, upstream=upstream) for n in range(1, 6))
        file = folder / "lightgate.toml"
        file.write_text(text.replace("workers = 1", f"workers = {options.workers}"), "ascii")
        flags = ["--config", str(file), "--console-port", str(console), "--no-demo"]
        site = Site(folder) if options.upgrade else None
        python = overhead.PYTHON if site is None else site.python
        command = [python, "-m", "lightgate", "up", *flags]
        with overhead.Subject("lightgate", port, command) as subject:
            load = asyncio.run(measure(subject, folder / "data", options, site))
    found = {
        "requests": load.done + len(load.failed),
        "failed": len(load.failed),
        "connections": load.opened,
        "reloads": options.reloads,
        "slowest_ms": round(load.slowest_s * 1e3, 1),
    }
    if options.json:
        print(json.dumps(found))
    else:
        print(", ".join(f"{name} {value}" for name, value in found.items()))
        for line in sorted(set(load.failed))[:10]:
            print(f"failed: {line}")
    return 6 if load.failed else 0


if __name__ == "__main__":
    sys.exit(main())
