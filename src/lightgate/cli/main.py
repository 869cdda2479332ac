"""The entry point of the command line: the verbs, and every error as one sentence."""

from __future__ import annotations

import difflib
import errno
import importlib
import os
import sys
import traceback
from typing import TYPE_CHECKING, NamedTuple

import click

from lightgate import __version__
from lightgate.cli.importing import Importing
from lightgate.errors import ConfigError, Exit, LightgateError

if TYPE_CHECKING:
    from collections.abc import Sequence

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class Verb(NamedTuple):
    """A verb: its module `lightgate.cli.<name>` has a click command named `command`."""

    name: str
    summary: str


VERBS = (
    Verb("init", "Write a lightgate.toml from the keys that are here."),
    Verb("up", "Start the gateway and its console; without a key, a demo."),
    Verb("reload", "Renew a running gateway without a refused connection."),
    Verb("bench", "Measure how fast targets are, at your load, from here."),
    Verb("report", "Show how fast production was, from the ledger."),
    Verb("compare", "Compare two runs: what became slower."),
    Verb("reread", "Read a run by other tools' definitions."),
    Verb("schedule", "Repeat benchmarks and tell when something changes."),
    Verb("rehearse", "Show what each routing policy would have done."),
    Verb("advise", "Say what would make this traffic faster or cheaper."),
    Verb("explain", "Show why a request went where it went."),
    Verb("batch", "Answer the lines of a file, as fast or as cheaply as can be."),
    Verb("sim", "Serve simulated providers alone."),
    Verb("selftest", "Measure the error of the stopwatch on this machine."),
    Verb("doctor", "Check what works from here: keys, connections, clock."),
    Verb("keys", "Make, list and revoke the keys of clients."),
    Verb("console", "Sign in to the console; see who changed what."),
    Verb("ledger", "Move the ledger to another database; write its days to files."),
    Verb("models", "List providers, their models, and which have a key here."),
    Verb("prices", "Show what tokens cost, in dollars per million."),
    Verb("config", "Check, explain or import a configuration."),
    Verb("version", "Show version, Python, event loop and platform."),
)


class LazyGroup(click.Group):
    """The verbs; a verb's module is imported when that verb is used, so small ones start fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all verbs, in the order of the table."""
        del ctx
        return [verb.name for verb in VERBS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load one verb."""
        if cmd_name not in self.list_commands(ctx):
            return None
        with Importing():
            command = importlib.import_module(f"lightgate.cli.{cmd_name}").command
        if not isinstance(command, click.Command):
            raise TypeError(f"lightgate.cli.{cmd_name}.command is not a click command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the verb; an unknown one is answered with the nearest."""
        if args and not args[0].startswith("-") and args[0] not in self.list_commands(ctx):
            near = difflib.get_close_matches(args[0], self.list_commands(ctx), n=1)
            means = f" Did you mean {near[0]!r}?" if near else ""
            raise click.UsageError(f"There is no verb {args[0]!r}.{means}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the verbs from the table, without importing them."""
        del ctx
        with formatter.section("Verbs"):
            formatter.write_dl([(verb.name, verb.summary) for verb in VERBS])


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Example: lightgate up",
)
@click.version_option(__version__, prog_name="lightgate", message="%(prog)s %(version)s")
def cli() -> None:
    """Measure how fast LLM providers are, and route requests by it.

    Data goes to stdout, progress to stderr. NO_COLOR turns colours off.
    """


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and give its exit code; a verb may return one itself."""
    _open_streams()
    try:
        result = cli.main(
            args=None if argv is None else list(argv),
            prog_name="lightgate",
            standalone_mode=False,
        )
        sys.stdout.flush()
    except BrokenPipeError:
        return _broken_pipe()
    except (KeyboardInterrupt, click.Abort):
        click.echo("lightgate: interrupted.", err=True)
        return Exit.INTERRUPTED
    except click.ClickException as error:
        return _say_click(error)
    except Exception as error:  # noqa: BLE001 - the command line's outer wall
        return _say(_leaf(error))
    except BaseExceptionGroup as group:
        if group.subgroup(KeyboardInterrupt) is None:
            raise
        click.echo("lightgate: interrupted.", err=True)
        return Exit.INTERRUPTED
    return result if isinstance(result, int) else Exit.OK


def _open_streams() -> None:
    """Put the null device where stdin, stdout or stderr is closed (`>&-`).

    Otherwise the next socket or file would get its number: what is printed would go there, and
    libuv ends a process that closes such a one.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free: this one
            os.set_inheritable(descriptor, True)
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - to the end
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - to the end
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - to the end


def _leaf(error: Exception) -> Exception:
    """The first real error inside the groups that task groups wrap around it."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


def _say(error: Exception) -> int:
    """Print the error's sentence and hint on stderr; a traceback only with LIGHTGATE_DEBUG."""
    if os.environ.get("LIGHTGATE_DEBUG"):
        traceback.print_exception(error)
    if isinstance(error, OSError) and error.errno in _NO_ROOM:
        return _no_room(error)
    if not isinstance(error, LightgateError):
        click.echo(f"lightgate: something inside failed: {type(error).__name__}: {error}", err=True)
        click.echo("  Set LIGHTGATE_DEBUG=1 for the traceback.", err=True)
        return Exit.FAILURE
    click.echo(f"lightgate: {error.message}", err=True)
    if isinstance(error, ConfigError):
        for problem in error.problems:
            click.echo(f"  {problem}", err=True)
    if error.hint:
        click.echo(f"  {error.hint}", err=True)
    return error.exit_code


def _no_room(error: OSError) -> int:
    """Say that nothing more can be written: what stdout still holds is thrown away."""
    what = f"{error.filename} cannot be written" if error.filename else "The output has no room"
    click.echo(f"lightgate: {what}: {error.strerror}.", err=True)
    click.echo("  Make room on the disk, or write to another one.", err=True)
    return _broken_pipe()


def _say_click(error: click.ClickException) -> int:
    """Print an error that click found in the typed words, in the form of our own errors."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):  # nothing typed: that is a question
        click.echo(error.format_message())
        return Exit.OK
    click.echo(f"lightgate: {error.format_message()}", err=True)
    context = error.ctx if isinstance(error, click.UsageError) else None
    path = context.command_path if context is not None else "lightgate"
    click.echo(f"  See {path} --help.", err=True)
    return Exit.USAGE


def _broken_pipe() -> int:
    """Stay quiet after the reader of stdout has left (`| head`), also at the last flush.

    The exit code is that of click, which may notice the broken pipe first.
    """
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, sys.stdout.fileno())
    os.close(sink)
    return Exit.FAILURE
