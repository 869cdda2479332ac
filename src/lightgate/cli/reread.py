"""`lightgate reread`: the same recording under another tool's definitions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from lightgate.cli.options import json_option
from lightgate.cli.output import Column, emit_json, emit_table, note
from lightgate.errors import UsageError

if TYPE_CHECKING:
    from lightgate.bench.interop.reread import Line, Reread
    from lightgate.clock.attempt import AttemptRecord
    from lightgate.ledger.runs.recording import Recording
    from lightgate.ledger.runs.run import Run

_RULES = (
    "vllm", "guidellm", "aiperf", "llmperf", "artificial-analysis", "total", "chunks", "sglang",
    "inference-perf",
)  # fmt: skip


@click.command("reread", epilog="Example: lightgate reread runs/today --as vllm")
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--as", "rule", type=click.Choice(_RULES), help="Whose definitions to read by.")
@click.option(
    "--as-printed",
    is_flag=True,
    help="Show the other tool's percentiles also where the samples are too few for them.",
)
@click.option(
    "--export", "form", type=click.Choice(("vllm", "otel", "run")), help="Write RUN in this form."
)
@click.option("--out", type=click.Path(path_type=Path), help="File for --export; a folder for run.")
@json_option
def command(
    *,
    run: Path,
    rule: str | None,
    as_printed: bool,
    form: str | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Read RUN again by another tool's rules, beside ours, with the reason of each difference.

    RUN is a run folder, or a result file of vLLM, GuideLLM, AIPerf or LLMPerf with data per
    request. With --export it is written as a vLLM result, as OpenTelemetry metrics (OTLP/JSON), or
    (a result file) as a run folder that `compare` reads.
    """
    if (rule is None) == (form is None):
        raise UsageError(
            "reread needs either --as or --export.", hint="Such as --as vllm, or --export otel."
        )
    record, attempts, recordings = _load(run)
    if form is not None:
        _export(form, out, record, attempts, recordings)
        return
    from lightgate.bench.interop.reread import reread

    found = reread(record, attempts, recordings, rule or "")
    if not as_printed:
        found = [_honest(cell) for cell in found]
    if as_json:
        emit_json(found)
    else:
        _print(found)


def _load(path: Path) -> tuple[Run, list[AttemptRecord], dict[str, Recording]]:
    from lightgate.ledger.runs.folder import RunFolder
    from lightgate.ledger.runs.samples import UNTOLD, untold

    if path.is_dir() or not path.exists():
        folder = RunFolder(path)
        loaded = folder.run(), folder.attempts(), folder.recordings()
        if untold(*loaded):
            note(f"{path} {UNTOLD}.")
        return loaded
    from lightgate.bench.interop.imports import read, run_of
    from lightgate.clock.ids import Ids

    imported = read(path)
    note(f"A result of {imported.tool}: {len(imported.attempts)} requests.")
    note(f"  {imported.note}")
    return run_of(imported, Ids().new()), imported.attempts, imported.recordings


def _export(
    form: str,
    out: Path | None,
    record: Run,
    attempts: list[AttemptRecord],
    recordings: dict[str, Recording],
) -> None:
    from lightgate.bench.interop.exports import otel_metrics, vllm_results
    from lightgate.ledger.runs.folder import RunFolder

    if form == "run":
        if out is None:
            raise UsageError("--export run needs --out.", hint="Name a new folder.")
        folder = RunFolder.create(out)
        for attempt in attempts:
            folder.append(attempt, recordings[attempt.id])
        folder.write_run(record)
        note(f"{len(attempts)} attempts are in {out}.")
        return
    if form == "otel":
        _write(out, otel_metrics(record, attempts, recordings))
        return
    documents = vllm_results(record, attempts, recordings)
    if not documents:
        raise UsageError("This run has nothing to export.")
    _write(out, documents[0] if len(documents) == 1 else documents)


def _write(out: Path | None, document: Any) -> None:
    if out is None:
        emit_json(document)
        return
    try:
        out.write_bytes(msgspec.json.encode(document) + b"\n")
    except OSError as error:
        raise UsageError(f"{out} cannot be written: {error.strerror}.") from None


def _honest(cell: Reread) -> Reread:
    """Leave the numbers out that have too few samples."""
    lines = tuple(
        line if line.enough else msgspec.structs.replace(line, theirs=None, ours=None, why="")
        for line in cell.lines
    )
    return msgspec.structs.replace(cell, lines=lines)


def _print(found: list[Reread]) -> None:
    from lightgate.bench.interop.rules import RULES

    title = RULES[found[0].rule].title
    columns = [Column("target"), Column("load"), Column("metric"), Column("", "right")]
    columns += [Column("n", "right"), Column(title, "right"), Column("ours", "right")]
    columns += [Column("ratio", "right"), Column("ours is"), Column("why", prose=True)]
    rows = [
        (cell.target, cell.load, line.metric, _rank(line), str(line.n), _number(line.theirs),
         _number(line.ours), _ratio(line), line.beside, _why(line))
        for cell in found
        for line in cell.lines
    ]  # fmt: skip
    emit_table(
        columns,
        rows,
        caption="· = undefined, or too few samples (--as-printed shows what the other tool prints)",
        names=4,
    )


def _rank(line: Line) -> str:
    return "slow 5 %" if line.metric.endswith("_tps") and line.q < 0.5 else f"p{line.q * 100:g}"


def _number(value: float | None) -> str:
    return "·" if value is None else f"{value:,.1f}"


def _ratio(line: Line) -> str:
    return "·" if line.ratio is None else f"{line.ratio:.3g}"


def _why(line: Line) -> str:
    if line.theirs is None:
        return "n too small"
    return line.why or "the same"
