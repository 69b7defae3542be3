"""The scheduler of `ism-dask up`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from flows.compute.place import Reached, Started
from flows.errors import FlowError

NAME = "up"


@dataclass(frozen=True, kw_only=True)
class Up(Started):
    """The Dask cluster that `ism-dask up` keeps on this machine."""

    @contextmanager
    def opened(self) -> Iterator[Reached]:
        """Yield where it is now; it stays when the block ends."""
        from flows.services.up import running  # noqa: PLC0415

        found = running()
        if found is None or found.scheduler is None:
            raise FlowError(
                "`scheduler` is 'up', but no Dask scheduler of `ism-dask up` runs here; start it "
                "with `ism-dask up`, or leave out --scheduler to compute here"
            )
        yield Reached(found.scheduler, none_came="see `ism-dask up --status`")
