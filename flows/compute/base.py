"""The base class of the places that a run can compute on, and what their kinds share."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from flows.services.dask import scheduler_settings


def _memory(text: str) -> str:
    if not re.fullmatch(r"\d+(\.\d+)? ?([kMGT]i?)?B", text):
        raise ValueError(f"{text!r} is no size; expected one such as '4 GiB'")
    return text


# What pydantic checks in the tables of cluster files.
Count = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(ge=1)]
Memory = Annotated[str, AfterValidator(_memory)]


@dataclass(frozen=True)
class ClusterAddress:
    """The scheduler to join, and how long to wait for its workers."""

    address: str
    security: Any = None  # certificates to join with; None takes those of Dask's configuration
    workers: int = 1  # so many have to come; more may come later
    wait: float = 10.0  # seconds that they may take
    awaited: str = "a worker"  # what the run waits for, in its progress
    none_came: str = "see the log of the scheduler"  # advice if they do not come in time


@dataclass(frozen=True)
class ClusterPlan:
    """A description of the cluster that a place would start, for people and for programs."""

    lines: tuple[str, ...]
    facts: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class ClusterPlace(ABC):
    """A place that a run can compute its tiles on."""

    def plan(self) -> ClusterPlan | None:
        """Return a description of the cluster that `opened` would start; None if it runs."""
        return None

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
