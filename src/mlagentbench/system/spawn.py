"""Child processes that the kernel kills when the thread that started them dies."""

import ctypes
import signal
from collections.abc import Sequence

PR_SET_PDEATHSIG = 1  # from linux/prctl.h

_prctl = ctypes.CDLL(None).prctl  # here, because a fork that looks it up first pays for it


def die_with_parent(command: Sequence[str]) -> list[str]:
    """The command line that runs `command` and dies with the thread that starts it."""
    return ["setpriv", "--pdeathsig", "KILL", "--", *command]


def set_parent_death_signal() -> None:
    """Make the calling process die with its parent; for processes that are forked, not executed."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
