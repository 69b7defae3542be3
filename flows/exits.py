"""How the process of a command ends."""

from __future__ import annotations

import os
import sys
import threading
from typing import NoReturn

_AT_ONCE = threading.Event()


def leave_at_once() -> None:
    """Let the process end without what is done at exit.

    There Prefect would try for half a minute to tell a server of its events that is away.
    """
    _AT_ONCE.set()


def leave(status: int) -> NoReturn:
    """End the process with an exit status."""
    if _AT_ONCE.is_set():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)
