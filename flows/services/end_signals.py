"""Signals that end `ism-dask up`: the first ends it in order, those that follow do nothing."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def interrupt_once() -> Iterator[None]:
    """Turn SIGINT, SIGTERM and SIGHUP into one KeyboardInterrupt, and ignore those that follow.

    The end of all services takes a while, and must not be interrupted again.
    """
    # nohup starts a process with SIGHUP ignored, so that it survives its terminal: then SIGHUP is
    # not caught. The & of a script starts it with SIGINT ignored; this one is caught all the same,
    # because the processes that we start would inherit it and ignore SIGINT, too.
    caught = [each for each in _END_SIGNALS if each is not signal.SIGHUP or not _is_ignored(each)]

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        ignore_end_signals()
        raise KeyboardInterrupt

    previous = {each: signal.signal(each, interrupt) for each in caught}
    try:
        yield
    finally:
        for each, handler in previous.items():
            signal.signal(each, handler)


def ignore_end_signals() -> None:
    """Ignore all end signals: services that are half ended are worse than running ones."""
    for each in _END_SIGNALS:
        signal.signal(each, signal.SIG_IGN)


def _is_ignored(number: signal.Signals) -> bool:
    return signal.getsignal(number) == signal.SIG_IGN
