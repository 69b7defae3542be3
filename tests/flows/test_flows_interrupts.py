"""Interruptions: always heard, by the command."""

import signal
import time
import weakref

import pytest

from flows.progress.interrupts import (
    install_signal_handlers,
    resend_lost_interrupts,
    was_interrupted,
)


@pytest.fixture(autouse=True)
def _as_a_command():
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    install_signal_handlers()
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


def call_while_deleting(callback):
    """Call back from where Python drops all exceptions."""
    reference = weakref.ref(set(), callback)
    assert reference() is None


def interrupt(_):
    signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("lost", [1, 3])
def test_an_interruption_that_python_drops_comes_again(lost):
    left = [lost]

    def ended(_):
        left[0] -= 1
        interrupt(_)

    def lose_and_wait():
        for _ in range(lost):
            call_while_deleting(ended)
        time.sleep(10)

    with pytest.raises(KeyboardInterrupt), resend_lost_interrupts():
        lose_and_wait()
    assert left == [0]
    # Those that were lost besides have nothing more to say.
    time.sleep(0.3)


def test_what_was_heard_within_does_not_come_again():
    def lose_and_hear():
        call_while_deleting(interrupt)
        raise KeyboardInterrupt

    with resend_lost_interrupts():
        with pytest.raises(KeyboardInterrupt), resend_lost_interrupts():
            lose_and_hear()
        time.sleep(0.3)


def test_an_interruption_that_is_caught_with_all_there_is_comes_again():
    caught = []

    def deaf():
        try:
            signal.raise_signal(signal.SIGINT)
        except BaseException as interruption:
            caught.append(type(interruption))
        time.sleep(10)

    with pytest.raises(KeyboardInterrupt), resend_lost_interrupts():
        deaf()
    assert len(caught) == 1
    assert was_interrupted()


def test_an_interruption_on_its_way_up_does_not_come_again():
    seen = []

    def slow_to_end():
        try:
            signal.raise_signal(signal.SIGINT)
        finally:
            time.sleep(0.3)
            seen.append("in order")

    with pytest.raises(KeyboardInterrupt), resend_lost_interrupts():
        slow_to_end()
    assert seen == ["in order"]


def test_what_else_python_drops_is_told_as_before(monkeypatch):
    printed = []
    monkeypatch.setattr("sys.unraisablehook", lambda lost: printed.append(str(lost.exc_value)))

    def ended(_):
        raise ValueError("not an interruption")

    with resend_lost_interrupts():
        call_while_deleting(ended)
    assert printed == ["not an interruption"]
