"""What every kind of cluster has: what it would start, and how it is started."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, ClassVar, Protocol, runtime_checkable

from flows.errors import FlowError
from flows.services.dask import scheduler_settings

# Seconds in which whatever runs already has to answer.
ANSWERS_WITHIN = 7.0
_MEMORY = re.compile(r"\d+(\.\d+)? ?([kMGT]i?)?B")


@dataclass(frozen=True)
class JoinedCluster:
    """A scheduler that can be joined.

    Attributes
    ----------
    address : str
    security : distributed.Security or None
        The certificates to join with, if not those of Dask's own configuration.
    workers : int
        How many are waited for; more may come later.
    wait : float
        Seconds that they may take to come.
    awaited : str
        What is waited for, for people.
    none_came : str
        What to do when they did not come.
    """

    address: str
    security: Any = None
    workers: int = 1
    wait: float = 10.0
    awaited: str = "a worker"
    none_came: str = "see the log of the scheduler"


@dataclass(frozen=True)
class ClusterPlan:
    """What a cluster would start.

    Attributes
    ----------
    lines : tuple of str
        For people.
    facts : dict
        For programs.
    """

    lines: tuple[str, ...]
    facts: dict[str, Any]


@runtime_checkable
class ClusterPlace(Protocol):
    """Where tiles can be computed."""

    def check(self) -> None:
        """Raise FlowError where something that it stands on is not installed."""

    def opened(self) -> AbstractContextManager[JoinedCluster]:
        """Start what has to be started, and end it with the block."""


@runtime_checkable
class PlannedCluster(ClusterPlace, Protocol):
    """A place that starts something, and can tell what before it does."""

    def plan(self) -> ClusterPlan:
        """Return what would be started."""


@dataclass(frozen=True, kw_only=True)
class StartedCluster:
    """A cluster that we start, and end."""

    extra: ClassVar[str | None] = None
    package: ClassVar[str] = "distributed"

    def check(self) -> None:
        """Raise FlowError where the package that starts it is not installed."""
        if find_spec(self.package) is None:
            raise FlowError(
                f"this kind of cluster needs `pip install 'ism-dask[{self.extra}]'` (the package "
                f"{self.package.replace('_', '-')})"
            )


@dataclass(frozen=True)
class AdaptiveSize:
    """How many workers or jobs there are at least and at most, by how much there is to do."""

    minimum: int
    maximum: int

    def __post_init__(self) -> None:
        if not 0 <= self.minimum <= self.maximum or self.maximum < 1:
            raise ValueError(
                f"minimum is {self.minimum} and maximum {self.maximum}; expected 0 <= minimum <= "
                "maximum, and at least 1"
            )


def check_numbers(at_least: float, **given: float) -> None:
    """Raise ValueError unless all numbers are finite and large enough."""
    for name, number in given.items():
        if not math.isfinite(number) or number < at_least:
            raise ValueError(f"`{name}` is {number}; expected {at_least} or more")


def check_memory(memory: str) -> None:
    """Raise ValueError unless `memory` says how many bytes."""
    if not _MEMORY.fullmatch(memory):
        raise ValueError(f"`memory` is {memory!r}; expected a size such as '4 GiB'")


@contextmanager
def scheduler_defaults() -> Iterator[None]:
    """Let a scheduler that is started in the block be as patient as it should be, and no more."""
    import dask  # noqa: PLC0415

    # What is set before its own settings are there would take those along when it is undone.
    import distributed  # noqa: F401, PLC0415

    with dask.config.set(scheduler_settings()):
        yield
