"""Interruptions: always heard, by the command."""

from __future__ import annotations

import signal
import time
import weakref

import pytest

from flows.interrupts import interrupts_insist


class Watched:
    """What a weak reference may be made to."""


@pytest.mark.parametrize("lost", [1, 3])
def test_an_interruption_that_python_drops_comes_again(lost: int) -> None:
    left = [lost]

    def ended(_: object) -> None:
        left[0] -= 1
        signal.raise_signal(signal.SIGINT)

    def lose_and_wait() -> None:
        for _ in range(lost):
            watched = Watched()
            reference = weakref.ref(watched, ended)
            del watched
            assert reference() is None
        time.sleep(10)

    with pytest.raises(KeyboardInterrupt), interrupts_insist():
        lose_and_wait()
    assert left == [0]
    # Those that were lost besides have nothing more to say.
    time.sleep(0.3)


def test_what_was_heard_within_does_not_come_again() -> None:
    def lose_and_hear() -> None:
        watched = Watched()
        reference = weakref.ref(watched, lambda _: signal.raise_signal(signal.SIGINT))
        del watched
        assert reference() is None
        raise KeyboardInterrupt

    with interrupts_insist():
        with pytest.raises(KeyboardInterrupt), interrupts_insist():
            lose_and_hear()
        time.sleep(0.3)


def test_what_else_python_drops_is_told_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr("sys.unraisablehook", lambda lost: told.append(str(lost.exc_value)))

    def ended(_: object) -> None:
        raise ValueError("not an interruption")

    with interrupts_insist():
        watched = Watched()
        reference = weakref.ref(watched, ended)
        del watched
    assert reference() is None
    assert told == ["not an interruption"]
