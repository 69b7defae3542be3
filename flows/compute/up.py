"""The scheduler of `ism-dask up`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from flows.compute.place import Reached, Started
from flows.compute.tls import tls_of
from flows.errors import FlowError
from flows.services.certificates import own_certificates

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
        security = _security() if found.scheduler.startswith("tls://") else None
        yield Reached(found.scheduler, security, none_came="see `ism-dask up --status`")


def _security() -> Any:
    try:
        return tls_of(own_certificates()).security()
    except ValueError as error:
        raise FlowError(
            f"the certificates of `ism-dask up --tls` are gone ({error}); end it with "
            "`ism-dask up --stop`, and start it again"
        ) from error
