"""Join a Dask cluster that is already running."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from flows.errors import FlowError

_SECONDS = 10
# They say at length, and more than once, what the one line of the error says.
_NOISY = ("distributed", "distributed.client", "asyncio")


@contextmanager
def joined(address: str | None) -> Iterator[None]:
    """Make the cluster at `address` the one that shards find; without an address, do nothing."""
    if address is None:
        yield
        return
    # Only those who want a cluster wait for what it takes to talk to one.
    from distributed.client import FutureCancelledError  # noqa: PLC0415
    from distributed.comm.core import CommClosedError  # noqa: PLC0415

    with _connected(address) as client:
        _await_workers(client, address)
        try:
            yield
        except (FutureCancelledError, CommClosedError) as error:
            raise FlowError(
                f"the Dask scheduler at {address} was lost on the way; see its log, start it "
                "and its workers again, and repeat the command"
            ) from error


def _connected(address: str) -> Any:
    from distributed import Client  # noqa: PLC0415

    for name in _NOISY:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        # A port where something else listens would keep the client waiting for ever: it has a
        # time limit for the connection, but none for the greeting that follows.
        asyncio.run(asyncio.wait_for(_greet(address), _SECONDS))
        return Client(address, timeout=_SECONDS)
    except (OSError, TimeoutError, ValueError, TypeError) as error:
        raise FlowError(
            f"no Dask scheduler answers at {address} within {_SECONDS} s; start one with "
            "`dask scheduler --host 127.0.0.1`, or leave out --scheduler to compute here "
            "(a tls:// address needs the certificates in Dask's configuration)"
        ) from error


async def _greet(address: str) -> None:
    from distributed.comm.core import connect  # noqa: PLC0415

    comm = await connect(address)
    await comm.close()


def _await_workers(client: Any, address: str) -> None:
    try:
        client.wait_for_workers(1, timeout=_SECONDS)
    except TimeoutError as error:
        raise FlowError(
            f"the Dask scheduler at {address} has no workers; start some with "
            f"`dask worker {address}`"
        ) from error
