"""The interface of the places that a run can compute on, and what their kinds share."""

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

# Seconds within which a scheduler that runs already has to answer; a busy one may take some.
ANSWER_SECONDS = 15.0
_MEMORY = re.compile(r"\d+(\.\d+)? ?([kMGT]i?)?B")


@dataclass(frozen=True)
class ClusterAddress:
    """The address of a scheduler to join, and how long to wait for its workers.

    Attributes
    ----------
    address : str
        Address of the scheduler.
    security : distributed.Security or None
        Certificates to join with. None takes those of Dask's own configuration.
    workers : int
        Number of workers to wait for; more may come later.
    wait : float
        Seconds that these workers may take to come.
    awaited : str
        Text for the progress display that names what the run waits for.
    none_came : str
        Advice for the error message if the workers do not come in time.
    """

    address: str
    security: Any = None
    workers: int = 1
    wait: float = 10.0
    awaited: str = "a worker"
    none_came: str = "see the log of the scheduler"


@dataclass(frozen=True)
class ClusterPlan:
    """A description of the cluster that a place would start.

    Attributes
    ----------
    lines : tuple of str
        The description as text.
    facts : dict
        The same for programs, in plain JSON.
    """

    lines: tuple[str, ...]
    facts: dict[str, Any]


@runtime_checkable
class ClusterPlace(Protocol):
    """A place that a run can compute its tiles on."""

    def check(self) -> None:
        """Raise FlowError unless the packages that the place needs are installed."""

    def opened(self) -> AbstractContextManager[ClusterAddress]:
        """Start the cluster if it does not run already; end what was started with the block."""


@runtime_checkable
class PlannedCluster(ClusterPlace, Protocol):
    """A place that starts a cluster, and can describe it beforehand."""

    def plan(self) -> ClusterPlan:
        """Return a description of the cluster that `opened` would start."""


@dataclass(frozen=True, kw_only=True)
class ClusterPlaceBase:
    """Base class of the kinds of cluster, with the check that their package is installed."""

    extra: ClassVar[str | None] = None
    package: ClassVar[str] = "distributed"

    def check(self) -> None:
        """Raise FlowError unless the package that starts the cluster is installed."""
        if find_spec(self.package) is None:
            raise FlowError(
                f"this kind of cluster needs `pip install 'ism-dask[{self.extra}]'` (the package "
                f"{self.package.replace('_', '-')})"
            )


@dataclass(frozen=True)
class AdaptiveSize:
    """The bounds within which the number of workers or jobs follows the amount of work."""

    minimum: int
    maximum: int

    def __post_init__(self) -> None:
        if not 0 <= self.minimum <= self.maximum or self.maximum < 1:
            raise ValueError(
                f"minimum is {self.minimum} and maximum {self.maximum}; expected 0 <= minimum <= "
                "maximum, and at least 1"
            )


def check_numbers(at_least: float, **numbers: float) -> None:
    """Raise ValueError unless every number is finite and not below `at_least`."""
    for name, number in numbers.items():
        if not math.isfinite(number) or number < at_least:
            raise ValueError(f"`{name}` is {number}; expected {at_least} or more")


def check_memory(memory: str) -> None:
    """Raise ValueError unless `memory` is a number of bytes with its unit."""
    if not _MEMORY.fullmatch(memory):
        raise ValueError(f"`memory` is {memory!r}; expected a size such as '4 GiB'")


@contextmanager
def scheduler_defaults() -> Iterator[None]:
    """Apply `scheduler_settings` to schedulers that are started in the block."""
    import dask  # noqa: PLC0415

    # distributed adds its defaults to Dask's configuration when it is imported. If that happened
    # within the block, they would vanish with the block.
    import distributed  # noqa: F401, PLC0415

    with dask.config.set(scheduler_settings()):
        yield
