from __future__ import annotations

import io
import os
import subprocess
import sys
from typing import TYPE_CHECKING, NoReturn

import click
import pytest

from lightgate import __version__, errors
from lightgate.cli import main as entry
from lightgate.cli.main import VERBS, cli, main
from lightgate.errors import Exit

if TYPE_CHECKING:
    from pathlib import Path


def run_raising(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> int:
    def fail(*args: object, **kwargs: object) -> NoReturn:
        raise error

    monkeypatch.setattr(entry.cli, "main", fail)
    return main([])


def test_version_flag(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"lightgate {__version__}\n"


def test_help_lists_every_verb_without_importing_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(verb.name in shown and verb.summary in shown for verb in VERBS)


@pytest.mark.parametrize("verb", [verb.name for verb in VERBS])
def test_every_verb_has_help_with_an_example(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "--help"]) == 0
    assert f"Example: lightgate {verb}" in capsys.readouterr().out


@pytest.mark.parametrize("verb", [verb.name for verb in VERBS])
def test_every_option_says_what_it_does(verb: str) -> None:
    command = cli.get_command(click.Context(cli), verb)
    assert command is not None
    assert command.name == verb
    options = [param for param in command.params if isinstance(param, click.Option)]
    assert all(option.help for option in options)


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (errors.UsageError("Wrong.", hint="Do this."), 2, "lightgate: Wrong.\n  Do this.\n"),
        (
            errors.ConfigError("Bad.", problems=("a:1: x", "a:2: y")),
            3,
            "lightgate: Bad.\n  a:1: x\n",
        ),
        (errors.NameUnknown("No such host."), 4, "lightgate: No such host.\n"),
        (errors.CredentialsError("No key."), 5, "lightgate: No key.\n"),
        (errors.ThresholdMissed("Too slow."), 6, "lightgate: Too slow.\n"),
        (errors.EmptyAnswer("Nothing."), 1, "lightgate: Nothing.\n"),
        (KeyboardInterrupt(), 130, "lightgate: interrupted.\n"),
        (click.Abort(), 130, "lightgate: interrupted.\n"),
        (ExceptionGroup("g", [errors.CredentialsError("No key.")]), 5, "lightgate: No key.\n"),
        (BaseExceptionGroup("g", [KeyboardInterrupt()]), 130, "lightgate: interrupted.\n"),
    ],
)
def test_every_error_has_its_exit_code_and_one_sentence(
    error: BaseException,
    code: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("LIGHTGATE_DEBUG", raising=False)
    assert run_raising(error, monkeypatch) == code
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(said)
    assert "Traceback" not in shown.err


def test_the_unexpected_is_one_sentence_unless_debugging(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("LIGHTGATE_DEBUG", raising=False)
    assert run_raising(ZeroDivisionError("oh"), monkeypatch) == 1
    shown = capsys.readouterr().err
    assert "LIGHTGATE_DEBUG=1" in shown
    assert "Traceback" not in shown
    monkeypatch.setenv("LIGHTGATE_DEBUG", "1")
    assert run_raising(ZeroDivisionError("oh"), monkeypatch) == 1
    assert "Traceback" in capsys.readouterr().err


def test_a_verb_may_give_its_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry.cli, "main", lambda **kwargs: 6)
    assert main([]) == 6


def test_a_reader_that_leaves_is_answered_quietly() -> None:
    code = "import sys; from lightgate.cli.main import main; sys.exit(main(['models', '--json']))"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=100) == Exit.FAILURE


@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("verb", ["version", "models", "--help"])
def test_a_stream_that_is_closed_is_the_null_device(verb: str, closed: str) -> None:
    """Sockets got the numbers of closed streams: libuv ended the process by SIGABRT."""
    done = subprocess.run(
        ["/bin/sh", "-c", f'"$0" -m lightgate {verb} {closed}', sys.executable],
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_an_input_that_is_closed_is_empty_and_no_terminal() -> None:
    """`bench` looks whether it can ask what a run may cost: an AttributeError ended it."""
    code = (
        "import sys; from lightgate.cli.main import main; main(['version']);"
        " print(sys.stdin.isatty(), repr(sys.stdin.read()))"
    )
    done = subprocess.run(
        ["/bin/sh", "-c", '"$0" -c "$1" <&-', sys.executable, code],
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "False ''"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")  # noqa: PTH110
@pytest.mark.parametrize("verb", ["version", "models", "--help"])
def test_an_output_without_room_is_one_sentence(verb: str) -> None:
    with open("/dev/full", "w") as full:  # noqa: PTH123
        done = subprocess.run(
            [sys.executable, "-m", "lightgate", verb],
            stdout=full, stderr=subprocess.PIPE, text=True, timeout=100, check=False,
        )  # fmt: skip
    assert done.returncode == Exit.FAILURE
    assert done.stderr == (
        "lightgate: The output has no room: No space left on device.\n"
        "  Make room on the disk, or write to another one.\n"
    )


def test_exit_codes_of_the_errors_are_those_of_the_command_line() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    codes = {kind.exit_code for kind in kinds if issubclass(kind, errors.LightgateError)}
    assert codes == set(Exit) - {Exit.OK, Exit.INTERRUPTED}


def test_shell_completion_knows_the_verbs() -> None:
    env = {**os.environ, "_LIGHTGATE_COMPLETE": "bash_complete"}
    env |= {"COMP_WORDS": "lightgate ver", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "lightgate"], env=env, capture_output=True, text=True, timeout=100,
        check=True,
    )  # fmt: skip
    assert done.stdout == "plain,version\n"


def test_tables_have_no_colour_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    from lightgate.cli.output import Column, emit_table

    page = io.StringIO()
    monkeypatch.setattr(sys, "stdout", page)
    emit_table([Column("name"), Column("n", "right")], [("[bold]x", "1")], caption="one")
    assert page.getvalue() == "name     n\n[bold]x  1\none\n"


@pytest.mark.parametrize("words", [[], ["keys"], ["schedule"], ["config"]])
def test_without_a_verb_the_help_is_the_answer(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith(f"Usage: lightgate {' '.join([*words, '[OPTIONS]'])}")
    assert shown.err == ""


@pytest.mark.parametrize("verb", [verb.name for verb in VERBS])
def test_no_help_is_cut(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.endswith("...") and "Usage: " not in line] == []


@pytest.mark.parametrize(
    "words",
    [["keys", "list"], ["schedule", "list"], ["models", "--priors"], ["config", "explain"]],
)
def test_looking_leaves_nothing_behind(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("LIGHTGATE_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)
    assert main(words) == 0
    assert list(tmp_path.iterdir()) == []
