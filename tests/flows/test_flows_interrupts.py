"""Interruptions are heard by the command, in the end also those that come at a bad moment."""

import signal
import threading
import time

import pytest

from flows.progress.interrupts import (
    delay_interrupts,
    install_signal_handlers,
    interrupt,
    was_interrupted,
)


@pytest.fixture(autouse=True)
def _as_a_command():
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    install_signal_handlers()
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_both_signals_interrupt_and_are_recorded(number):
    assert not was_interrupted()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(number)
    assert was_interrupted()


def test_a_thread_interrupts_the_command():
    caller = threading.Timer(0.1, interrupt)
    caller.start()
    with pytest.raises(KeyboardInterrupt):
        time.sleep(10)
    caller.join()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_waits_until_dask_has_started(number):
    done = []

    def start():
        with delay_interrupts():
            signal.raise_signal(number)
            done.append("started")

    with pytest.raises(KeyboardInterrupt):
        start()
    assert done == ["started"]
