"""`lightgate batch`: many requests from a file, as fast or as cheaply as targets allow."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lightgate.cli.options import config_option, json_option

if TYPE_CHECKING:
    from lightgate.batch.summary import BatchSummary


@click.group("batch", epilog="Example: lightgate batch run prompts.jsonl openai/gpt-4o-mini")
def command() -> None:
    """Answer the lines of a file: all of them, once each, at the speed that targets bear."""


@command.command(
    "run",
    epilog="Example: lightgate batch run prompts.jsonl groq/llama-3.3-70b-versatile"
    " together/meta-llama/Llama-3.3-70B-Instruct-Turbo --deadline 06:00 --by cost --max-cost 5",
)
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("targets", nargs=-1, metavar="[TARGET]...")
@click.option("--gateway", metavar="URL", help="Send to this gateway; TARGETs are its models.")
@click.option("--world", help="Send to the simulated providers of this world instead.")
@click.option(
    "--out", type=click.Path(path_type=Path), help="Results; FILE's name with .results by default."
)
@click.option(
    "--errors",
    type=click.Path(path_type=Path),
    help="Lines without an answer; beside the results with .errors by default.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["openai", "anthropic"]),
    default="openai",
    show_default=True,
    help="Form of the results.",
)
@click.option(
    "--by",
    type=click.Choice(["time", "cost"]),
    help="Share lines among targets by finish time or by dollars; cost where a --deadline is set.",
)
@click.option(
    "--via",
    type=click.Choice(["auto", "batch", "parallel"]),
    default="parallel",
    show_default=True,
    help="Send lines as jobs to the provider's batch API, in parallel, or by price and deadline.",
)
@click.option("--deadline", help="Be done by then, as cheaply as can be: 06:00, or in 8h.")
@click.option("--quiet-hours", help="Send in these hours of the day only, e.g. 22:00-06:00.")
@click.option("--max-cost", help="Stop before more than this many dollars are spent.")
@click.option(
    "--attempts",
    type=click.IntRange(1, 100),
    default=5,
    show_default=True,
    help="Attempts of a line that fails; refusals are not counted.",
)
@click.option("--timeout", default="600s", show_default=True, help="Longest time of one attempt.")
@click.option(
    "--max-inflight", type=click.IntRange(1, 4096), help="Requests in flight per target, at most."
)
@click.option("--ask-each", is_flag=True, help="Ask identical lines each, not once.")
@click.option("--retry-failed", is_flag=True, help="Take the lines that failed before again.")
@click.option("--text", is_flag=True, help="Every line is a prompt, as with a .txt file.")
@click.option(
    "--key-env",
    metavar="VAR",
    help="Variable with the key of NAME=URL#MODEL targets, or of the gateway.",
)
@config_option
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    help="Data folder of the ledger; gateway.data of the configuration by default.",
)
@click.option("--ledger/--no-ledger", default=True, help="Write the attempts to the ledger.")
@json_option
def run(**given: Any) -> int:
    """Answer every line of a file, also after a restart.

    FILE has lines of OpenAI's batch format, of Anthropic's, or plain prompts. A TARGET is
    provider/model, or NAME=URL#MODEL for any OpenAI-compatible base URL. How many requests a target
    takes at once is found out, not told. Ctrl-C finishes what is under way, a second one cuts it.
    """
    from lightgate.cli.batch_run import carry_out

    summary, out, errors = carry_out(given)
    if given["as_json"]:
        from lightgate.cli.output import emit_json

        emit_json(summary)
    else:
        _show(summary, out, errors)
    return _exit_code(summary)


def _show(summary: BatchSummary, out: Path, errors: Path) -> None:
    """Print what became of the lines, and each target's part in it."""
    from lightgate.cli.output import Column, dollars, emit_table

    columns = (
        Column("target"),
        Column("answered", "right"),
        Column("refused", "right"),
        Column("failed", "right"),
        Column("most in flight", "right"),
        Column("seconds each", "right"),
        Column("tokens out", "right"),
        Column("dollars", "right"),
    )
    rows = [
        (
            lane.target,
            f"{lane.answered:,}",
            f"{lane.refused:,}",
            f"{lane.failed:,}",
            f"{lane.most_in_flight:,}",
            f"{lane.service_s:.2f}",
            f"{lane.tokens_out:,}",
            dollars(lane.cost_usd),
        )
        for lane in summary.targets
    ]
    if any(lane.requests for lane in summary.targets):
        emit_table(columns, rows)
    said = [
        (
            f"{summary.answered:,} of {summary.lines:,} lines answered in {summary.seconds:,.1f} s"
            f" ({summary.tokens_per_s:,.0f} tokens/s), {summary.failed:,} failed."
        ),
        cost_sentence(summary),
    ]
    if summary.by_batch:
        said.append(f"{summary.by_batch:,} lines were answered by batch jobs.")
    if summary.copied:
        said.append(f"{summary.copied:,} lines got the answer of an identical one.")
    if summary.resent:
        said.append(
            f"{summary.resent:,} lines had been sent when an earlier process ended; they were sent"
            " again, and providers may bill them twice."
        )
    said.append(f"Results: {out}" + (f", errors: {errors}" if summary.failed else ""))
    for line in said:
        click.echo(line)


def cost_sentence(summary: BatchSummary) -> str:
    """Say what the lines cost; lines without a known price are not passed off as free."""
    from lightgate.cli.output import dollars

    if not summary.unpriced:
        return f"All lines together cost {dollars(summary.cost_usd)} dollars."
    lines = f"{summary.unpriced:,} line{'s' if summary.unpriced > 1 else ''}"
    unknown = f"What {lines} cost is not known: there is no price for the target."
    rest = f" The others cost {dollars(summary.cost_usd)} dollars."
    return unknown + (rest if summary.cost_usd else "")


_MORE = {  # what the same command needs besides, by the reason that stopped the job
    "cost": " with a larger --max-cost",
    "credentials": " with the right key (of NAME=URL#MODEL: --key-env VAR)",
}


def _exit_code(summary: BatchSummary) -> int:
    from lightgate.cli.output import note
    from lightgate.errors import Exit

    codes = {
        "interrupted": Exit.INTERRUPTED,
        "credentials": Exit.CREDENTIALS,
        "unreachable": Exit.UNREACHABLE,
    }
    if summary.stopped:
        why = f"lightgate: {summary.open:,} lines are open. {summary.reason}".strip()
        note(why)
        note(f"  The same command{_MORE.get(summary.stopped, '')} goes on with them.")
        return codes.get(summary.stopped, Exit.FAILURE)
    if summary.deadline_missed_s is not None:
        note(f"lightgate: the deadline was missed by {summary.deadline_missed_s:,.0f} s.")
        return Exit.THRESHOLD
    if not summary.failed:
        return Exit.OK
    note("lightgate: The same command with --retry-failed takes the failed lines again.")
    return Exit.FAILURE
