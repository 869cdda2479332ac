"""End a child process with its parent, also when the parent is killed with -9.

The parent keeps the writing end of the child's standard input and never writes to it. However the
parent dies, the system closes that end and the child reads the end of the file. This is the way
that works on every POSIX system; prctl(PR_SET_PDEATHSIG) is Linux's alone and follows the parent's
thread, not the parent.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import MutableMapping

PARENT_DEATH_ENV: Final = "LIGHTGATE_ENDS_WITH_PARENT"
GRACE_S: Final = 1.5  # an orphan's time to say good-bye; what it has written to a file is safe
STDIN: Final = 0


def end_with_parent(env: MutableMapping[str, str], *, grace_s: float = GRACE_S) -> bool:
    """In a child: watch for the parent's death, if the parent asks for it; whether it does.

    A daemon thread waits, so that a busy event loop cannot miss it. At the parent's death the
    process gets SIGTERM, and is gone after the grace whatever it does.
    """
    if env.pop(PARENT_DEATH_ENV, "") != "1":
        return False
    threading.Thread(target=_wait, args=(grace_s,), name="parent-death", daemon=True).start()
    return True


def _wait(grace_s: float) -> None:
    while True:
        try:
            if not os.read(STDIN, 4096):
                break
        except InterruptedError:
            continue
        except OSError:
            break
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(grace_s)
    os._exit(1)
