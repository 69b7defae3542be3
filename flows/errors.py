"""Errors that a command reports in one line: a wrong request, a failure, an interruption."""

from __future__ import annotations

from typing import ClassVar

# What values raise that no run has written, though they have the right types.
ALTERED = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


class FlowError(Exception):
    """Base class of all errors that `flows` raises deliberately.

    Attributes
    ----------
    status : int
        Exit status of the command.
    settings : tuple of str
        The settings that the message names, each as `name`: a command has options for them.
    """

    status: ClassVar[int] = 1

    def __init__(self, message: str, *settings: str) -> None:
        super().__init__(message)
        self.settings = settings


class SettingsError(FlowError, ValueError):
    """The value of a setting is invalid, or names something that does not exist."""

    status = 2


class FailureAnswered(FlowError):  # noqa: N818 - reads as the fact it states
    """A failure that the answer of `--json`, which has been printed, tells of already."""


class Interrupted(FlowError):  # noqa: N818 - nothing went wrong
    """The user pressed Ctrl-C."""

    status = 130


class RunHeldError(FlowError):
    """Another process computes the run."""


class ClusterLost(FlowError):  # noqa: N818 - by itself no error: the work can be taken up again
    """The cluster that computes was lost on the way; `advice` is for work that cannot go on."""

    def __init__(self, what: str, advice: str) -> None:
        super().__init__(f"{what}; {advice}")
        self.what, self.advice = what, advice
