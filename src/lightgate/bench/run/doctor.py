"""Checks of the surroundings: keys, names, connections, first tokens, and this machine's clocks.

Nothing is spent unless a target is named. The clocks and stamps are checked by a byte that is sent
over loopback, many times.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import time
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from lightgate.clock import timing
from lightgate.clock.bounds import FLOOR_MS
from lightgate.clock.marks import Marks
from lightgate.clock.quantile import quantile
from lightgate.dialect.request import Message, Request
from lightgate.errors import AttemptError, CredentialsError, HttpRefused, LightgateError
from lightgate.provider.call import call
from lightgate.provider.catalogue import known_providers
from lightgate.provider.cloud.tokens import TokenKeepers
from lightgate.provider.target import key_variable, resolve
from lightgate.wire.client.client import Client
from lightgate.wire.client.fetch import fetch
from lightgate.wire.client.roundtrip import Deadlines
from lightgate.wire.link.stamper import Stamper, best_source
from lightgate.wire.origin import split_url

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lightgate.config.model import Config
    from lightgate.provider.call import Called
    from lightgate.provider.catalogue import Provider
    from lightgate.provider.target import Target
    from lightgate.wire.client.fetch import Fetched
    from lightgate.wire.origin import Origin


DEADLINES: Final = Deadlines(connect_s=4, first_byte_s=20, idle_s=20, total_s=30)
LOCAL_DEADLINES: Final = Deadlines(connect_s=1, first_byte_s=2, idle_s=2, total_s=3)
_TYPED: Final = re.compile(r"[\w@.:/+-]{1,120}")  # a name that a shell takes as it is
State = Literal["ok", "no key", "key refused", "unreachable", "not running", "failed"]


class DoctorFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One provider or target as seen from here; milliseconds, None where not measured."""

    name: str
    state: State
    key_env: str | None = None
    dns_ms: float | None = None
    tcp_ms: float | None = None
    tls_ms: float | None = None
    first_byte_ms: float | None = None
    ttft_ms: float | None = None
    says: str = ""
    hint: str = ""  # what to do about it
    occupied: bool = False  # something else answers at the address of this local server


async def examine(
    targets: tuple[str, ...],
    env: Mapping[str, str],
    key_env: str | None = None,
    config: Config | None = None,
) -> list[DoctorFinding]:
    """Call each target once for a few tokens; without targets ask providers for models."""
    client = Client(watch_lag=False)
    try:
        if targets:
            keepers = TokenKeepers()
            resolved = [
                resolve(spec, env=env, config=config, key_env=key_env, keepers=keepers)
                for spec in targets
            ]
            return list(await asyncio.gather(*(_call(client, target) for target in resolved)))
        rows = known_providers(config).values()
        return list(await asyncio.gather(*(_reach(client, row, env, config) for row in rows)))
    finally:
        await client.close()


async def examine_local(
    env: Mapping[str, str], config: Config | None = None
) -> dict[str, DoctorFinding]:
    """Ask the servers of this machine that the catalogue knows for their models; by name."""
    client = Client(watch_lag=False)
    rows = [row for row in known_providers(config).values() if row.local]
    try:
        found = await asyncio.gather(*(_reach(client, row, env, config) for row in rows))
    finally:
        await client.close()
    return {finding.name: finding for finding in found}


async def models_at(base_url: str) -> tuple[str, ...]:
    """The names of the models that a server lists without a key; empty where it lists none."""
    client = Client(watch_lag=False)
    try:
        origin, root = split_url(base_url)
        answer = await fetch(client, origin, f"{root.rstrip('/')}/models", (), LOCAL_DEADLINES)
    except LightgateError:
        return ()
    finally:
        await client.close()
    listed = _member(answer.body, "data")
    rows = listed if answer.status == 200 and isinstance(listed, list) else []
    names = (row.get("id") for row in rows if isinstance(row, dict))
    return tuple(name for name in names if isinstance(name, str) and _TYPED.fullmatch(name))


async def not_found(target: Target, said: str) -> HttpRefused:
    """The error for a 404 of a target: another model, another base URL, or what the server said.

    The server is asked for its models, so that the hint can name what would work.
    """
    names = await models_at(target.base_url)
    versioned = f"{target.base_url}/v1"
    if not names and await models_at(versioned):
        return HttpRefused(
            f"{target.name}: {target.base_url} is no base URL.",
            code=404,
            hint=f"Did you mean {versioned}?",
        )
    listed = ", ".join(names[:5]) + (" and others" if len(names) > 5 else "")
    return HttpRefused(
        f"{target.name}: no model {target.model!r} at {target.base_url}: {said.rstrip('.')}.",
        code=404,
        hint=f"It has {listed}."
        if names
        else f"GET {target.base_url}/models lists the models that it has.",
    )


async def _call(client: Client, target: Target) -> DoctorFinding:
    """Ask a target for a few tokens, on a cold connection."""
    if target.signer is not None:
        try:
            await asyncio.to_thread(target.ready)
        except CredentialsError as error:
            return DoctorFinding(
                name=target.name, state="no key", says=error.message, hint=error.hint
            )
    request = Request(
        model=target.model,
        messages=(Message(role="user", content="Say yes."),),
        max_tokens=16,
        stream=True,
    )
    marks = Marks(plan=time.monotonic_ns())
    called = await call(target, request, marks, client=client, deadlines=DEADLINES)
    state: State = "ok"
    hint = ""
    if called.error is not None:
        refused = called.status in {401, 403}
        state = "key refused" if refused else "failed"
        if called.status is None:
            state = "unreachable"
        hint = called.error.hint
        if called.status == 404:
            hint = (await not_found(target, called.error.message)).hint
    return _finding(
        target.name,
        marks,
        state=state,
        ttft_ms=timing.ms_between(marks.send, marks.first),
        says=called.error.message if called.error is not None else _silent(called),
        hint=hint,
    )


def _silent(called: Called) -> str:
    """What to say of a good answer without a token: a model that thinks needs more than a few."""
    if called.kinds:
        return ""
    return f"it answers, without text: the answer ended with {called.finish_reason!r}"


async def _reach(
    client: Client, provider: Provider, env: Mapping[str, str], config: Config | None
) -> DoctorFinding:
    """Ask a provider for its list of models: free, and it says whether the key is good."""
    name = provider.name
    key, usable = key_variable(provider, config, env)
    if not usable:
        return DoctorFinding(name=name, state="no key", says=f"set {key}")
    deadlines = LOCAL_DEADLINES if provider.local else DEADLINES
    try:
        target = resolve(f"{name}/any", env=env, config=config)
        if target.signer is not None:
            await asyncio.to_thread(target.ready)
        origin, _ = split_url(target.base_url)
        answer = await fetch(client, origin, *target.bare("GET", "/models"), deadlines)
        other = await _other_service(client, origin, provider, answer) if provider.local else ""
    except AttemptError as error:
        state: State = "not running" if provider.local else "unreachable"
        return DoctorFinding(
            name=name, state=state, key_env=key, says=error.message, hint=error.hint
        )
    except LightgateError as error:  # the key, or a variable of the base URL, is not usable
        return DoctorFinding(
            name=name, state="failed", key_env=key, says=error.message, hint=error.hint
        )
    if other:
        return DoctorFinding(name=name, state="not running", key_env=key, says=other, occupied=True)
    # Any other status is an answer: not every provider has a list of models.
    state = "key refused" if answer.status in {401, 403} else "ok"
    if answer.status >= 500:
        state = "failed"
    says = "" if state == "ok" else f"answered {answer.status}"
    return _finding(name, answer.marks, state=state, key_env=key, says=says)


async def _other_service(
    client: Client, origin: Origin, provider: Provider, answer: Fetched
) -> str:
    """Say what else answers at a local server's usual address; empty where it is that server."""
    try:
        health = await fetch(client, origin, "/health/live", deadlines=LOCAL_DEADLINES)
    except AttemptError:  # a server that does not know the path may just hang up
        service = None
    else:
        service = _member(health.body, "service")
    if service == "lightgate":
        return f"A Lightgate gateway answers at {origin}, not {provider.title}."
    listed = answer.status == 200 and isinstance(_member(answer.body, "data"), list)
    if listed or answer.status in {401, 403} or answer.status >= 500:
        return ""
    return f"What answers at {origin} has no list of models: it is not {provider.title}."


def _member(body: bytes, name: str) -> object:
    """A member of a JSON object; None where the text is not such an object."""
    try:
        document = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return None
    return document.get(name) if isinstance(document, dict) else None


def _finding(name: str, marks: Marks, **facts: object) -> DoctorFinding:
    return msgspec.convert(
        {
            "name": name,
            "dns_ms": timing.ms(marks.dns_ns),
            "tcp_ms": timing.ms(marks.tcp_ns),
            "tls_ms": timing.ms(marks.tls_ns),
            "first_byte_ms": timing.ms_between(marks.send, marks.headers),
            **facts,
        },
        DoctorFinding,
    )


def verdict(findings: list[DoctorFinding], *, named: bool) -> LightgateError | None:
    """Make the error that a script should see: only for targets that were named."""
    if not named:
        return None
    for finding in findings:
        if finding.state == "key refused":
            return CredentialsError(f"{finding.name}: {finding.says}", hint=finding.hint)
        if finding.state in {"unreachable", "failed"}:
            return UnusableTarget(f"{finding.name}: {finding.says}", hint=finding.hint)
    return None


class UnusableTarget(LightgateError):  # noqa: N818 - what the target is
    """A named target gave no token."""

    exit_code = 4
    label = "unreachable"


ROUNDS: Final = 60
NS_PER_US: Final = 1000


class ClockReport(msgspec.Struct, frozen=True, kw_only=True):
    """The behaviour of the clocks, in microseconds.

    `stamp_error` is how long after the send the stamp lies; `wake` how long after
    the stamp the event loop came to the bytes, which is what a read stamp would be late by.
    """

    stamps: str
    stamp_error_p50_us: float
    stamp_error_max_us: float
    wake_p50_us: float
    wake_max_us: float
    resolution_ns: float
    steps: int
    cores: int
    wake_p90_us: float

    @property
    def sound(self) -> bool:
        """Whether stamps follow the sends closely and the wall clock held still."""
        return self.steps == 0 and 0 <= self.stamp_error_p50_us < 1000

    @property
    def busy(self) -> bool:
        """Whether one wake-up in ten takes so long that figures of several streams are doubtful."""
        return self.wake_p90_us / 1000 > FLOOR_MS


class _Ear:
    """A receiver that notes when the loop came to the bytes."""

    def __init__(self) -> None:
        self.heard: asyncio.Future[tuple[int, int]] | None = None

    def on_read(self, data: bytes, stamp: int, since: int) -> None:  # noqa: ARG002 - the protocol's
        if self.heard is not None and not self.heard.done():
            self.heard.set_result((stamp, time.monotonic_ns()))

    def on_eof(self) -> None:
        """The other end is ours."""

    def on_lost(self, error: Exception | None) -> None:
        if self.heard is not None and not self.heard.done():
            self.heard.set_exception(error or ConnectionResetError())

    def pause_writing(self) -> None:
        """Nothing is written here."""

    def resume_writing(self) -> None:
        """Nothing is written here."""


async def check_clock() -> ClockReport:
    """Send a byte to ourselves over loopback, many times."""
    stamper = Stamper(best_source())
    near, far = _pair()
    ear = _Ear()
    errors: list[float] = []
    wakes: list[float] = []
    link = await stamper.link(near)
    try:
        link.attach(ear)
        for _ in range(ROUNDS):
            await asyncio.sleep(0.002)
            ear.heard = asyncio.get_running_loop().create_future()
            sent = time.monotonic_ns()
            far.send(b"x")
            stamp, woke = await asyncio.wait_for(ear.heard, 2)
            errors.append((stamp - sent) / NS_PER_US)
            wakes.append((woke - stamp) / NS_PER_US)
        steps = stamper.steps
    finally:
        link.abort()
        far.close()
        stamper.close()
    return ClockReport(
        stamps=stamper.source,
        stamp_error_p50_us=quantile(errors, 0.5) or 0.0,
        stamp_error_max_us=max(errors),
        wake_p50_us=quantile(wakes, 0.5) or 0.0,
        wake_max_us=max(wakes),
        wake_p90_us=quantile(wakes, 0.9) or 0.0,
        resolution_ns=time.get_clock_info("monotonic").resolution * 1e9,
        steps=steps,
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1,
    )


def _pair() -> tuple[socket.socket, socket.socket]:
    """Two connected TCP sockets on loopback; the first one does not block."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        far = socket.create_connection(listener.getsockname())
        near, _ = listener.accept()
    far.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    near.setblocking(False)
    return near, far
