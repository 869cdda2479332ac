"""Programs of the user's that check an answer: it comes at standard input, exit code 0 passes.

They run only where the command line allows them, in the folder of the file of cases, each in a
group of processes that is ended at the time limit. Their environment is a short list of plain
variables: no key of a provider is in it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, NamedTuple

from lightgate.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lightgate.bench.checks.spec import CheckSpec

CASE_VARIABLE: Final = "LIGHTGATE_CASE"  # the id of the case
# Variables that a program may need to run at all; everything else may be a secret.
PASSED_ON: Final = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TZ", "LANG", "LC_ALL", "LC_CTYPE"),
    *("VIRTUAL_ENV", "PYTHONPATH", "SYSTEMROOT"),
)
_LONGEST_WHY: Final = 200  # characters


class ProgramRun(NamedTuple):
    """One program to be run with one answer."""

    spec: CheckSpec
    answer: str
    case: str


def check_programs(specs: Iterable[CheckSpec], *, allowed: bool) -> None:
    """Raise before the run if a program may not or cannot be run."""
    for spec in specs:
        if not allowed:
            raise UsageError(
                f"A check runs the program {spec.values[0]!r}, which was not allowed.",
                hint="Add --allow-programs if you trust the file of cases.",
            )
        path = os.path.join(spec.folder, spec.values[0])  # noqa: PTH118 - as the system looks it up
        if shutil.which(spec.values[0]) is None and not os.access(path, os.X_OK):
            raise UsageError(f"The program {spec.values[0]!r} of a check is not found.")


def run_programs(runs: Sequence[ProgramRun], environ: Mapping[str, str]) -> list[str]:
    """Run the programs, a few at a time; each result is empty, or why the answer does not pass."""
    plain = {name: environ[name] for name in PASSED_ON if name in environ}
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        return list(pool.map(lambda one: _run(one, plain), runs))


def _run(run: ProgramRun, environ: Mapping[str, str]) -> str:
    spec = run.spec
    command = list(spec.values)
    if "/" in command[0] and not os.path.isabs(command[0]):  # noqa: PTH117 - a word, no path yet
        command[0] = os.path.abspath(os.path.join(spec.folder, command[0]))  # noqa: PTH100, PTH118
    try:
        process = subprocess.Popen(  # noqa: S603 - the user's own, and allowed by the user
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd=spec.folder,
            env={**environ, CASE_VARIABLE: run.case},
            start_new_session=True,
        )
    except OSError as error:
        return f"the program did not start: {error.strerror}"
    try:
        _, said = process.communicate(run.answer.encode(), spec.time_limit_s)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return f"the program took longer than {spec.time_limit_s:g} s"
    if process.returncode == 0:
        return ""
    words = said.decode("utf-8", "replace").strip().splitlines()
    last = f": {words[-1][:_LONGEST_WHY]}" if words else ""
    return f"the program exited with {process.returncode}{last}"
