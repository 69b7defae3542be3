"""Ctrl-C and SIGTERM interrupt the command, not the threads and processes it has started."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

# A terminal that closes sends SIGHUP.
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Set once the command is interrupted, even if the KeyboardInterrupt does not arrive: an import, or
# a library that catches every exception, may turn it into another one.
INTERRUPTED = threading.Event()
# Set if the process is to end without exit handlers: that of Prefect would try for half a minute to
# send its events to a server that is away.
SKIP_EXIT_HANDLERS = threading.Event()
# Exit handlers and threads have this long.
_EXIT_SECONDS = 30.0


def install_signal_handlers() -> None:
    """Raise KeyboardInterrupt on all signals as on SIGINT."""
    INTERRUPTED.clear()
    for each in _SIGNALS:
        # nohup starts a process with SIGHUP ignored, the & of a script with SIGINT: so it stays.
        if signal.getsignal(each) != signal.SIG_IGN:
            signal.signal(each, _on_signal)


def _on_signal(*_: object) -> None:
    INTERRUPTED.set()
    raise KeyboardInterrupt


@contextmanager
def delay_interrupts() -> Iterator[None]:
    """Delay an interruption until the block, in which Dask starts, has ended.

    Threads that start in the block, and the processes that those start, never receive one: a
    terminal sends it to all processes, and workers would print long reports of it. Handlers that
    modules install when they are imported in the block end with it.
    """
    # SIGTERM must still end those processes. Another thread may receive any signal, upon which
    # Python calls the handler in the main thread, the only one that can have handlers.
    received: list[int] = []
    signals = _SIGNALS if threading.current_thread() is threading.main_thread() else ()
    handlers = [signal.signal(each, lambda number, _: received.append(number)) for each in signals]
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for each, handler in zip(signals, handlers, strict=True):
            signal.signal(each, handler)
        for number in received[:1]:
            signal.raise_signal(number)


def exit_process(status: int) -> NoReturn:
    """End the process with an exit status, whatever exit handlers and threads do.

    Threads of a cluster that is half closed, or a server that hangs, would keep the command.
    """
    threading.Thread(target=_end_process, args=[status], daemon=True).start()
    sys.exit(status)


def _end_process(status: int) -> None:
    threading.main_thread().join()
    SKIP_EXIT_HANDLERS.wait(_EXIT_SECONDS)
    os._exit(status)
