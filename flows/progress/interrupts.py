"""Ctrl-C and SIGTERM interrupt the command, not the threads and processes it has started."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import FrameType
from typing import NoReturn

# A terminal that closes sends SIGHUP.
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_END_REQUESTED, _SKIP_EXIT_HANDLERS = threading.Event(), threading.Event()
# Exit handlers and threads have this long.
_EXIT_SECONDS = 30.0


def install_signal_handlers() -> None:
    """Raise KeyboardInterrupt on all signals as on SIGINT, and record it for `was_interrupted`."""
    _END_REQUESTED.clear()
    for each in _SIGNALS:
        # nohup starts a process with SIGHUP ignored, the & of a script with SIGINT: so it stays.
        if signal.getsignal(each) != signal.SIG_IGN:
            signal.signal(each, _on_signal)


def _on_signal(_number: int, _frame: FrameType | None) -> None:
    _END_REQUESTED.set()
    raise KeyboardInterrupt


def was_interrupted() -> bool:
    """Return whether the command was interrupted, even if the KeyboardInterrupt did not arrive.

    An import, or a library that catches every exception, may turn it into another one.
    """
    return _END_REQUESTED.is_set()


@contextmanager
def delay_interrupts() -> Iterator[None]:
    """Delay an interruption until the block, in which Dask starts, has ended.

    Threads that start in the block, and the processes that those start, never receive one: a
    terminal sends it to all processes, and workers would print long reports of it. Handlers that
    modules install when they are imported in the block end with it.
    """
    # SIGTERM must still end those processes. Another thread may receive any signal, upon which
    # Python calls the handler in the main thread.
    received: list[int] = []
    is_main = threading.current_thread() is threading.main_thread()
    handlers = {
        each: signal.signal(each, lambda number, _: received.append(number))
        for each in _SIGNALS
        if is_main
    }
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for each, handler in handlers.items():
            signal.signal(each, handler)
        for number in received[:1]:
            signal.raise_signal(number)


def skip_exit_handlers() -> None:
    """Make `exit_process` end the process without running exit handlers.

    That of Prefect would try for half a minute to send its events to a server that is away.
    """
    _SKIP_EXIT_HANDLERS.set()


def exit_process(status: int) -> NoReturn:
    """End the process with an exit status, whatever exit handlers and threads do."""
    if _SKIP_EXIT_HANDLERS.is_set():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    _limit_exit(status)
    sys.exit(status)


@cache  # a program may run many commands
def _limit_exit(status: int) -> None:
    """End the process some time after its main thread, whatever else goes on.

    Threads of a cluster that is half closed, or a server that hangs, would keep the command.
    """

    def end() -> None:
        threading.main_thread().join()
        time.sleep(_EXIT_SECONDS)
        os._exit(status)

    threading.Thread(target=end, daemon=True).start()
