"""Join a Dask cluster that is already running."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from flows.errors import FlowError

_SECONDS = 10


@contextmanager
def joined(address: str | None) -> Iterator[None]:
    """Make the cluster at `address` the one that shards find; without an address, do nothing."""
    if address is None:
        yield
        return
    # Importing it makes every later fit look for a cluster: only those who want one pay.
    from distributed import Client  # noqa: PLC0415

    # Dask logs what the one line of the error says, and a lost scheduler many times over.
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    try:
        client = Client(address, timeout=_SECONDS)
    except (OSError, TimeoutError, ValueError) as error:
        raise FlowError(
            f"no Dask scheduler answers at {address} within {_SECONDS} s; start one with "
            "`dask scheduler --host 127.0.0.1`, or leave out --scheduler to compute here"
        ) from error
    with client:
        try:
            client.wait_for_workers(1, timeout=_SECONDS)
        except TimeoutError as error:
            raise FlowError(
                f"the Dask scheduler at {address} has no workers; start some with "
                f"`dask worker {address}`"
            ) from error
        yield
