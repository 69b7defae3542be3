"""The base class of the places that a run can compute on, and what their kinds share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Annotated, Any

from pydantic import Field

from flows.services.dask import scheduler_settings

# What pydantic checks in the tables of cluster files.
Count = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(ge=1)]


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


@contextmanager
def scheduler_defaults() -> Iterator[None]:
    """Apply `scheduler_settings` to schedulers and nannies that are started in the block.

    Their temporary files go to a folder that no other user can make before.
    """
    import dask  # noqa: PLC0415

    # distributed adds its defaults to Dask's configuration when it is imported. If that happened
    # within the block, they would vanish with the block.
    import distributed  # noqa: F401, PLC0415

    with TemporaryDirectory(prefix="ism-dask-", ignore_cleanup_errors=True) as folder:
        temporary = {"temporary-directory": dask.config.get("temporary-directory") or folder}
        with dask.config.set({**scheduler_settings(), **temporary}):
            yield
