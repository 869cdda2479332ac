"""What a proxy adds: CPU, memory and time, Lightgate beside nginx and a bare Python proxy.

    python benchmarks/overhead.py [--rounds 3] [--growth 100000] [--without lightgate] [--json]

Everything in one run and in turns: direct, nginx `proxy_pass` (unbuffered, keep-alive, one worker),
bare_proxy.py, and `lightgate up` with one worker, a key, a model with five targets, clocks and
journal. The process under test has one core to itself; upstream.py and the load share the other.
Non-streamed: wrk, 32 connections. Streamed: streams.py, 100 at once, 100 tokens 20 ms apart. CPU is
utime + stime of /proc/PID/stat, of the process that carries the bytes and of its whole tree, the
tree's until it has come to rest, so that shipping is in it. Ratios are of the same round. Modules
are compiled before, in a folder of the run's own, as an installation has them: a start that has to
compile takes twice the CPU and leaves 2 MB more behind.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import math
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

HERE = Path(__file__).parent
PYTHON = sys.executable
FETCHED = HERE.parent / ".debian" / "usr" / "sbin"  # what `make .debian/stamp` fetches
TICK_US = 1e6 / os.sysconf("SC_CLK_TCK")
CORES = sorted(os.sched_getaffinity(0))  # the first for what is tested, the last for the load
CONNECTIONS = 32
STREAMS, TOKENS, EACH = 100, 100, 2
KEY_VARIABLE = "LIGHTGATE_OVERHEAD_KEY"
READY_S, REST_S, STOP_S = 20.0, 6.0, 10.0
PROMPT = "Tell me something about the weather, and be brief. " * 8
LEARNING_X = 9.0  # nginx's cost of a request, for a policy that decides by form
LIMITS = {
    "request_x": 6.0,
    "tree_x": 8.5,
    "stream_x": 1.8,
    "stream_tree_x": 2.2,
    "ttft_p50_ms": 0.6,
    "ttft_p99_ms": 3.0,
    "start_ms": 1500.0,
    "rss_mb": 45.0,
}
NGINX = """
daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log stderr crit; {user}
events {{ worker_connections 4096; }}
http {{
  access_log off; keepalive_requests 100000000; keepalive_timeout 75s;
  client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  upstream provider {{ server 127.0.0.1:{upstream}; keepalive 512; keepalive_requests 100000000; }}
  server {{
    listen 127.0.0.1:{port} backlog=1024;
    location / {{
      proxy_pass http://provider; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_buffering off;
    }}
  }}
}}
"""
CONFIG = """
[gateway]
host = "127.0.0.1"
port = {port}
workers = 1
data = "{folder}/data"
"""
PROVIDER = """
[providers.p{n}]
base_url = "http://127.0.0.1:{upstream}/v1"
api_key = "none"
[prices."p{n}/bench"]
input = 0.59
output = 0.79
"""
MODEL = """
[models.bench]
targets = ["p1/bench", "p2/bench", "p3/bench", "p4/bench", "p5/bench"]
policy = "{policy}"
hedge = "off"
"""
WRK = """
wrk.method = "POST"
wrk.body = os.getenv("OVERHEAD_BODY")
wrk.headers["content-type"] = "application/json"
wrk.headers["authorization"] = "Bearer " .. (os.getenv("{variable}") or "none")
done = function(summary, latency, requests)
  local e = summary.errors
  io.write(string.format('\\n{{"n":%d,"us":%d,"bad":%d,"p50_us":%d,"p99_us":%d}}\\n',
    summary.requests, summary.duration, e.connect + e.read + e.write + e.status + e.timeout,
    latency:percentile(50), latency:percentile(99)))
end
"""


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


def nginx_program() -> str:
    """The path of nginx, or nothing where there is none."""
    return shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin:{FETCHED}") or ""


# What /proc says


def stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the name; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    except OSError:
        return []


def cpu_us(pid: int) -> float:
    fields = stat(pid)
    return (int(fields[11]) + int(fields[12])) * TICK_US if fields else 0.0


def tree(pid: int) -> list[int]:
    """A process and all that it started."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and (fields := stat(int(entry.name))):
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [pid]
    for one in found:
        found.extend(parents.get(one, ()))
    return found


def command_of(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return ""


def rss_mb(pid: int) -> float:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text("ascii").splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
    return 0.0


def open_files(pid: int) -> int:
    with contextlib.suppress(OSError):
        return len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return 0


# What is measured


class Subject:
    """A way from the client to the upstream; started at once, and stopped by its own pid."""

    def __init__(self, name: str, port: int, command: Sequence[str], carrier: str = "") -> None:
        self.name = name
        self.port = port
        self.carrier = 0  # pid of the process that carries the bytes
        self.child: subprocess.Popen[bytes] | None = None
        self.start_ms: float | None = None
        if not command:
            return
        began = time.monotonic_ns()
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        try:
            self._serves()
            self.start_ms = (time.monotonic_ns() - began) / 1e6
            self._pin(carrier)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def pids(self) -> list[int]:
        """Of the whole tree."""
        return tree(self.child.pid) if self.child is not None else []

    def close(self) -> None:
        """End it in an orderly way, and what is left of its tree after that."""
        if self.child is None:
            return
        family = self.pids()
        if self.child.stdin is not None:
            self.child.stdin.close()
        self.child.terminate()
        try:
            self.child.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()
        for pid in family[1:]:
            with contextlib.suppress(ProcessLookupError):
                if stat(pid)[:1] not in ([], ["Z"]):
                    os.kill(pid, signal.SIGKILL)
        self.child = None

    def _serves(self) -> None:
        """Wait for the first answer; it went all the way to the upstream."""
        until = time.monotonic() + READY_S
        while time.monotonic() < until:
            if self.child is not None and self.child.poll() is not None:
                break
            with contextlib.suppress(OSError, http.client.HTTPException):
                if ask(self.port) == 200:
                    return
            time.sleep(0.002)
        sys.exit(f"{self.name} did not serve a request within {READY_S:g} s.")

    def _pin(self, carrier: str) -> None:
        """Give the process that carries the bytes one core, and the rest of the tree the other."""
        family = self.pids()
        self.carrier = next((p for p in family if carrier and carrier in command_of(p)), family[0])
        for pid in family:
            pin(pid, CORES[0 if pid == self.carrier else -1])


def pin(pid: int, core: int) -> None:
    """All threads of a process."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            os.sched_setaffinity(int(thread.name), {core})


def body() -> str:
    messages = [{"role": "user", "content": PROMPT}]
    return json.dumps({"model": "bench", "messages": messages, "max_tokens": 100})


def ask(port: int) -> int:
    """One request that is not streamed; its status."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        key = os.environ.get(KEY_VARIABLE, "none")
        headers = {"content-type": "application/json", "authorization": f"Bearer {key}"}
        connection.request("POST", "/v1/chat/completions", body(), headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


def starters(
    upstream: int, folder: Path, options: argparse.Namespace
) -> dict[str, Callable[[], Subject]]:
    """How each subject is started, by name; a missing program is left out with a word."""

    def nginx() -> Subject:
        port = free_port()
        user = "user root;" if os.geteuid() == 0 else ""
        text = NGINX.format(folder=folder, port=port, upstream=upstream, user=user)
        (folder / "nginx.conf").write_text(text, "ascii")
        command = [
            nginx_program(),
            "-c",
            str(folder / "nginx.conf"),
            "-p",
            str(folder),
            "-e",
            "stderr",
        ]
        return Subject("nginx", port, command, "worker process")

    def bare() -> Subject:
        port = free_port()
        program = str(HERE / "bare_proxy.py")
        return Subject(
            "bare", port, [PYTHON, program, "--port", str(port), "--upstream", str(upstream)]
        )

    def lightgate() -> Subject:
        return lightgate_up(upstream, folder, options.policy)

    found = {"direct": lambda: Subject("direct", upstream, ()), "nginx": nginx, "bare": bare}
    found["lightgate"] = lightgate
    return {name: start for name, start in found.items() if name not in options.without}


def lightgate_up(upstream: int, folder: Path, policy: str) -> Subject:
    """`lightgate up` with its own data folder and one key, which the load shows.

    Under a policy that learns the key has a budget too: the dear end of what users ask for.
    """
    place = Path(tempfile.mkdtemp(dir=folder))
    port, console = free_port(), free_port()
    text = CONFIG.format(port=port, folder=place) + MODEL.format(policy=policy)
    text += "".join(PROVIDER.format(n=n, upstream=upstream) for n in range(1, 6))
    file = place / "lightgate.toml"
    file.write_text(text, "ascii")
    program = [PYTHON, "-m", "lightgate"]
    terms = [] if policy == "ordered" else ["--budget", "1000000"]
    made = subprocess.run(
        [*program, "keys", "create", "--name", "overhead", "--config", str(file), "--json", *terms],
        check=True,
        capture_output=True,
    )
    os.environ[KEY_VARIABLE] = json.loads(made.stdout)["key"]
    flags = ["--config", str(file), "--port", str(port), "--console-port", str(console)]
    command = [*program, "up", *flags, "--workers", "1", "--no-demo"]
    return Subject("lightgate", port, command, "lightgate.gateway.process.worker")


@contextlib.contextmanager
def provider(*flags: str) -> Iterator[int]:
    """upstream.py on the load's core; its port."""
    command = [PYTHON, str(HERE / "upstream.py"), "--tokens", str(TOKENS), *flags]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        try:
            line = child.stdout.readline() if child.stdout is not None else b""
            pin(child.pid, CORES[-1])
            yield json.loads(line)["port"]
        finally:
            if child.stdin is not None:
                child.stdin.close()
            try:
                child.wait(STOP_S)
            except subprocess.TimeoutExpired:
                child.kill()


# The load


class Meter:
    """The CPU of a subject since now."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.before = {pid: cpu_us(pid) for pid in subject.pids()}

    def carrier_us(self) -> float:
        """Of the process that carries the bytes."""
        pid = self.subject.carrier
        return cpu_us(pid) - self.before.get(pid, 0.0)

    def tree_us(self) -> float:
        """Of all its processes; those that have begun since count in full."""
        return sum(cpu_us(pid) - self.before.get(pid, 0.0) for pid in self.subject.pids())

    def rest(self) -> float:
        """The tree's, once it has done hardly anything for half a second (or after 6 s)."""
        until, last = time.monotonic() + REST_S, -1.0
        while time.monotonic() < until:
            now = self.tree_us()
            if len(self.before) < 2 or now - last <= 2 * TICK_US:
                return now
            last = now
            time.sleep(0.5)
        return self.tree_us()


def on_load_core(command: Sequence[str], env: dict[str, str]) -> Any:
    """Run a program on the core of the load; the JSON of its last line."""
    for program in ("taskset", command[0]):
        if shutil.which(program) is None:
            sys.exit(f"{program} is missing. On Debian: apt-get install wrk util-linux")
    core = CORES[-1]
    done = subprocess.run(
        ["taskset", "-c", str(core), *command],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, **env},
        timeout=240,
    )
    return json.loads(done.stdout.strip().splitlines()[-1])


def requests(subject: Subject, script: Path, seconds: int) -> dict[str, Any]:
    """Load it with wrk for so long: n, rate, CPU per request of carrier and tree."""
    meter = Meter(subject)
    command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "-s", str(script)]
    url = f"http://127.0.0.1:{subject.port}/v1/chat/completions"
    seen = on_load_core([*command, url], {"OVERHEAD_BODY": body()})
    carrier_us = meter.carrier_us()
    if seen["bad"] or not seen["n"]:
        sys.exit(f"{subject.name}: {seen['bad']} of {seen['n']} requests failed.")
    return {
        "n": seen["n"],
        "rps": seen["n"] / seen["us"] * 1e6,
        "busy": carrier_us / seen["us"],
        "cpu_us": carrier_us / seen["n"],
        "tree_us": meter.rest() / seen["n"],
        "p50_us": seen["p50_us"],
        "p99_us": seen["p99_us"],
    }


def streams(subject: Subject, seed: int) -> dict[str, Any]:
    """100 streams at once: CPU per stream in ms, and every first token's time."""
    meter = Meter(subject)
    flags = ["--streams", str(STREAMS), "--each", str(EACH), "--tokens", str(TOKENS)]
    where = ["--port", str(subject.port), "--key", KEY_VARIABLE, "--seed", str(seed)]
    seen = on_load_core([PYTHON, str(HERE / "streams.py"), *flags, *where], {})
    if seen["failures"]:
        sys.exit(f"{subject.name}: {seen['failures']} streams failed: {seen['failed']}")
    return {
        "n": seen["streams"],
        "cpu_ms": meter.carrier_us() / seen["streams"] / 1e3,
        "tree_ms": meter.rest() / seen["streams"] / 1e3,
        "ttft_ms": seen["ttft_ms"],
        "transit_ms": seen["transit_ms"],
    }


def grow(subject: Subject, script: Path, wanted: int) -> dict[str, Any]:
    """Carry so many requests more; memory before and after, and of each process of the tree."""
    before, carried = rss_mb(subject.carrier), 0
    began = time.monotonic()
    while carried < wanted and time.monotonic() - began < 600:
        carried += requests(subject, script, 3)["n"]
    after = rss_mb(subject.carrier)
    each = [rss_mb(pid) for pid in subject.pids()]
    return {
        "requests": carried,
        "before_mb": before,
        "after_mb": after,
        "grown_mb": after - before,
        "tree_mb": sum(each),
        "each_mb": each,
    }


# The run


def measure(options: argparse.Namespace) -> dict[str, Any]:
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        upstream = stack.enter_context(provider())
        script = folder / "load.lua"
        script.write_text(WRK.format(variable=KEY_VARIABLE), "ascii")
        starts: dict[str, list[float]] = {}
        ways = starters(upstream, folder, options)
        keep_compiled(folder)
        for start in ways.values():
            start().close()
        for _ in range(options.rounds - 1):
            for name, start in ways.items():
                with start() as once:
                    starts.setdefault(name, []).append(once.start_ms or 0.0)
        subjects = [stack.enter_context(start()) for start in ways.values()]
        seen: dict[str, Any] = {}
        for subject in subjects:
            times = [*starts.get(subject.name, []), subject.start_ms or 0.0]
            seen[subject.name] = {"start_ms": times, "requests": [], "streams": []}
            seen[subject.name]["rss_start_mb"] = rss_mb(subject.carrier)
            seen[subject.name]["fds_start"] = open_files(subject.carrier)
            requests(subject, script, 1)  # warm
            seen[subject.name]["rss_warm_mb"] = rss_mb(subject.carrier)
        for number in range(options.rounds):
            turn = number % len(subjects)
            for subject in subjects[turn:] + subjects[:turn]:
                say(options, f"round {number + 1}: {subject.name}")
                row = seen[subject.name]
                row["requests"].append(requests(subject, script, options.seconds))
                row["streams"].append(streams(subject, number))
        for subject in subjects:
            row = seen[subject.name]
            if options.growth and subject.carrier:
                say(options, f"{options.growth} requests more: {subject.name}")
                row["growth"] = grow(subject, script, options.growth)
            row["rss_end_mb"] = rss_mb(subject.carrier)
            row["fds_end"] = open_files(subject.carrier)
        return seen


def keep_compiled(folder: Path) -> None:
    """Let every process that is started from now on keep and find compiled modules."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = str(folder / "compiled")


def say(options: argparse.Namespace, text: str) -> None:
    if not options.json:
        print(text, file=sys.stderr, flush=True)


def quantile(values: Sequence[float], q: float) -> float:
    """The smallest value that is not below the share `q` of them."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * q) - 1)]


def ratios(seen: dict[str, Any], name: str, part: str, field: str, base: str) -> list[float]:
    """Of the same round, to nginx; without nginx none."""
    if "nginx" not in seen:
        return []
    mine, nginx = seen[name][part], seen["nginx"][part]
    return [a[field] / b[base] for a, b in zip(mine, nginx, strict=True) if b[base]]


def figures(seen: dict[str, Any], name: str) -> dict[str, Any]:
    """The figures of one subject: medians, with the least and the largest of the rounds."""
    row = seen[name]

    def spread(values: Sequence[float]) -> dict[str, float] | None:
        if not any(values):  # the direct way has no process
            return None
        return {"median": statistics.median(values), "min": min(values), "max": max(values)}

    transit = [t for r in row["streams"] for t in r["transit_ms"]]
    direct = [t for r in seen.get("direct", row)["streams"] for t in r["transit_ms"]]
    return {
        "requests_n": sum(r["n"] for r in row["requests"]),
        "rps": spread([r["rps"] for r in row["requests"]]),
        "busy": spread([r["busy"] for r in row["requests"]]),
        "request_us": spread([r["cpu_us"] for r in row["requests"]]),
        "request_x": spread(ratios(seen, name, "requests", "cpu_us", "cpu_us")),
        "tree_us": spread([r["tree_us"] for r in row["requests"]]),
        "tree_x": spread(ratios(seen, name, "requests", "tree_us", "cpu_us")),
        "streams_n": len(transit),
        "stream_ms": spread([r["cpu_ms"] for r in row["streams"]]),
        "stream_x": spread(ratios(seen, name, "streams", "cpu_ms", "cpu_ms")),
        "stream_tree_ms": spread([r["tree_ms"] for r in row["streams"]]),
        "stream_tree_x": spread(ratios(seen, name, "streams", "tree_ms", "cpu_ms")),
        "ttft_p50_ms": quantile(transit, 0.5) - quantile(direct, 0.5),
        "ttft_p99_ms": quantile(transit, 0.99) - quantile(direct, 0.99),
        "start_ms": spread(row["start_ms"]),
        "rss_mb": {key: row[f"rss_{key}_mb"] for key in ("start", "warm", "end")},
        "fds": {"start": row["fds_start"], "end": row["fds_end"]},
        "growth": row.get("growth"),
    }


def text(value: Any, form: str) -> str:
    """A median with its range, or a dash."""
    if value is None:
        return "-"
    return f"{value['median']:{form}} ({value['min']:{form}}-{value['max']:{form}})"


def show(found: dict[str, Any], options: argparse.Namespace) -> None:
    load = os.getloadavg()[0]
    print(f"\nmedian (min-max) of {options.rounds} rounds in turns; load average {load:.1f}")
    lines: list[tuple[str, Callable[[dict[str, Any]], str]]] = [
        ("requests, n", lambda f: f"{f['requests_n']}"),
        ("requests/s", lambda f: text(f["rps"], ".0f")),
        ("core of the carrier busy", lambda f: text(f["busy"], ".0%")),
        ("CPU µs per request", lambda f: text(f["request_us"], ".1f")),
        ("  x nginx", lambda f: text(f["request_x"], ".2f")),
        ("  whole tree, µs", lambda f: text(f["tree_us"], ".1f")),
        ("  whole tree, x nginx", lambda f: text(f["tree_x"], ".2f")),
        ("streams, n", lambda f: f"{f['streams_n']}"),
        ("CPU ms per stream", lambda f: text(f["stream_ms"], ".2f")),
        ("  x nginx", lambda f: text(f["stream_x"], ".2f")),
        ("  whole tree, ms", lambda f: text(f["stream_tree_ms"], ".2f")),
        ("  whole tree, x nginx", lambda f: text(f["stream_tree_x"], ".2f")),
        ("added TTFT p50, ms", lambda f: f"{f['ttft_p50_ms']:.3f}"),
        ("added TTFT p99, ms", lambda f: f"{f['ttft_p99_ms']:.3f}"),
        ("start to first answer, ms", lambda f: text(f["start_ms"], ".0f")),
        ("RSS start/warm/end, MB", lambda f: "/".join(f"{v:.1f}" for v in f["rss_mb"].values())),
        ("open files start/end", lambda f: f"{f['fds']['start']}/{f['fds']['end']}"),
    ]
    print(f"{'':<27}" + "".join(f"{name:>22}" for name in found))
    for title, cell in lines:
        print(f"{title:<27}" + "".join(f"{cell(row):>22}" for row in found.values()))
    for name, row in found.items():
        if row["growth"]:
            more = row["growth"]
            each = " + ".join(f"{mb:.1f}" for mb in more["each_mb"])
            print(
                f"{name}: {more['requests']} requests more, {more['grown_mb']:+.2f} MB;"
                f" the tree has {more['tree_mb']:.1f} MB ({each})"
            )


def missed(found: dict[str, Any], policy: str) -> list[str]:
    """The limits that Lightgate does not keep; a policy that learns may cost more."""
    if "lightgate" not in found:
        return []
    row = found["lightgate"]
    values = {name: row[name] for name in LIMITS if name != "rss_mb"}
    values["rss_mb"] = row["rss_mb"]["end"]
    words = []
    limits = LIMITS | ({} if policy == "ordered" else {"request_x": LEARNING_X})
    for name, limit in limits.items():
        value = values[name]
        value = value["median"] if isinstance(value, dict) else value
        if value is not None and value > limit:
            words.append(f"{name} is {value:.2f}, limit {limit:g}")
    return words


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="What a proxy adds.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=1, help="of wrk, in every turn")
    parser.add_argument("--growth", type=int, default=0, metavar="N", help="requests more, for RSS")
    parser.add_argument("--policy", default="ordered", help="of Lightgate's model")
    parser.add_argument("--without", action="append", default=[], metavar="NAME")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def main() -> int:
    options = parse()
    seen = measure(options)
    found = {name: figures(seen, name) for name in seen}
    words = missed(found, options.policy)
    if options.json:
        print(json.dumps({"figures": found, "missed": words}))
    else:
        show(found, options)
        for line in words:
            print(f"missed: {line}")
    return 6 if words else 0


if __name__ == "__main__":
    sys.exit(main())
