"""The base class of the places that a run can compute on, and what each of them leads to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ClusterAddress:
    """The scheduler to join, and how long to wait for its first worker."""

    address: str
    security: Any = None  # certificates to join with; None takes those of Dask's configuration
    wait: float = 10.0  # seconds that the first one may take
    awaited: str = "a worker"  # what the run waits for, in its progress
    none_came: str = "see the log of the scheduler"  # advice if they do not come in time


@dataclass(frozen=True, kw_only=True)
class ClusterPlace(ABC):
    """A place that a run can compute its tiles on."""

    @abstractmethod
    def opened(self) -> AbstractContextManager[ClusterAddress]:
        """Start the cluster if it does not run already; end what was started with the block."""
