"""What a command reports in one line: a wrong request, a failure, an interruption."""

from __future__ import annotations

from typing import ClassVar


class FlowError(Exception):
    """Base of every error that `flows` raises on purpose.

    Attributes
    ----------
    status : int
        Exit status of the command.
    transient : bool
        Whether the same may well go right after a while.
    """

    status: ClassVar[int] = 1
    transient: ClassVar[bool] = False


class SettingsError(FlowError, ValueError):
    """A value that was asked for cannot be had."""

    status = 2


class Interrupted(FlowError):  # noqa: N818 - nothing went wrong
    """Somebody pressed Ctrl-C."""

    status = 130
