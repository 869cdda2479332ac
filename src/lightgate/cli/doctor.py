"""`lightgate doctor`: what works from here."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from lightgate.cli.options import (
    config_option,
    json_option,
    read_config,
    refuse_urls_alone,
    use_env_file,
)
from lightgate.cli.output import Column, emit_json, emit_table, note

if TYPE_CHECKING:
    from pathlib import Path

    from lightgate.bench.run.doctor import ClockReport, DoctorFinding


@click.command(
    "doctor",
    epilog="Example: lightgate doctor groq/llama-3.3-70b-versatile",
)
@click.argument("targets", nargs=-1, metavar="[TARGET]...")
@click.option("--key-env", metavar="VAR", help="Variable with the key of NAME=URL#MODEL targets.")
@config_option
@click.option("--all", "show_all", is_flag=True, help="List providers without a key too.")
@json_option
def command(
    targets: tuple[str, ...],
    key_env: str | None,
    config_file: Path | None,
    *,
    show_all: bool,
    as_json: bool,
) -> None:
    """Check keys, names, connections, stores and this machine's clock.

    Without a TARGET, providers with a key in the environment are asked for their list of models,
    which costs nothing, and the servers of [ledger] and [shared] are looked at. A TARGET
    (provider/model or NAME=URL#MODEL) is called for a few tokens.
    """
    import msgspec
    import uvloop

    from lightgate.bench.run.doctor import check_clock, examine, verdict
    from lightgate.cli.stores import examine_stores, store_error

    refuse_urls_alone("doctor", targets)
    use_env_file()
    clock = uvloop.run(check_clock())
    config = read_config(config_file)
    findings = uvloop.run(examine(targets, os.environ, key_env, config))
    stores = [] if targets else examine_stores(config, os.environ)
    shown = [f for f in findings if show_all or f.state not in {"no key", "not running"}]
    if as_json:
        facts = {**msgspec.structs.asdict(clock), "sound": clock.sound, "busy": clock.busy}
        emit_json({"clock": facts, "providers": shown, "stores": stores})
    else:
        note(_clock_line(clock))
        _print(shown, hidden=len(findings) - len(shown))
        for other in [] if show_all else [f for f in findings if f.occupied]:
            note(f"{other.name} is not running: {other.says}")
        for store in stores:
            if store.state == "ok":
                note(f"{store.name}: ok. {store.says}")
    error = verdict(findings, named=bool(targets)) or store_error(stores)
    if error is not None:
        raise error


def _clock_line(clock: ClockReport) -> str:
    return (
        f"clock: {clock.stamps} stamps, {clock.stamp_error_p50_us:.0f} µs after the send"
        f" (max {clock.stamp_error_max_us:.0f}); the event loop wakes"
        f" {clock.wake_p50_us:.0f} µs later (p90 {clock.wake_p90_us:.0f}, max"
        f" {clock.wake_max_us:.0f}); {clock.cores} cores; {_clock_state(clock)}"
    )


def _clock_state(clock: ClockReport) -> str:
    if not clock.sound:
        return "NOT SOUND"
    if clock.busy:
        return "sound, but the machine is busy: figures of many streams will be doubtful"
    return "sound"


def _print(shown: list[DoctorFinding], *, hidden: int) -> None:
    if not shown:
        note(f"None of {hidden} known providers has a key here, and no local one is running.")
        note("  Set e.g. GROQ_API_KEY, or name a target: NAME=URL#MODEL; --all lists them.")
        return
    columns = [Column("name"), Column("state"), Column("key"), Column("dns ms", "right")]
    columns += [Column(f"{part} ms", "right", joined=True) for part in ("tcp", "tls", "first byte")]
    columns.append(Column("ttft ms", "right", joined=True))
    rows = [
        (
            f.name,
            f.state,
            f.key_env or "",
            *(
                "" if v is None else f"{v:.1f}"
                for v in (f.dns_ms, f.tcp_ms, f.tls_ms, f.first_byte_ms, f.ttft_ms)
            ),
            f.says,
        )
        for f in shown
    ]
    kept = [at for at in range(len(columns) + 1) if at < 2 or any(row[at] for row in rows)]
    columns.append(Column("remark", prose=True))
    emit_table(
        [columns[at] for at in kept],
        [[row[at] for at in kept] for row in rows],
        caption=f"{hidden} more have no key here or are not running; --all lists them."
        if hidden
        else "",
    )
