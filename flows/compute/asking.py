"""Ask the processes of a cluster something, apart from all tasks, and in a given time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from flows.errors import FlowError

# Workers that are asked: those of a large cluster are alike.
_ASKED = 32
# Seconds that they may take: they may import something large from a slow disk.
_WITHIN = 60.0


def sample(client: Any) -> list[str]:
    """Return the addresses of the workers to ask, from all over the cluster."""
    addresses = sorted(client.scheduler_info(n_workers=-1)["workers"])
    step = -(-len(addresses) // _ASKED)
    return addresses[:: max(step, 1)]


def on_workers(
    client: Any, asked: list[str], function: Callable[..., Any], *arguments: str
) -> dict[str, Any]:
    """Return what `function` gives on each worker, be it an error."""
    answers: dict[str, Any] = _in_time(
        client, lambda: client.run(function, *arguments, workers=asked, on_error="return")
    )
    return answers


def on_scheduler(client: Any, function: Callable[..., Any], *arguments: str) -> Any:
    """Return what `function` gives on the scheduler, be it an error."""
    try:
        return _in_time(client, lambda: client.run_on_scheduler(function, *arguments))
    except FlowError:
        raise
    # Whatever was raised there; what it means is told by who knows what was asked.
    except Exception as error:
        return error


def _in_time(client: Any, call: Callable[[], Any]) -> Any:
    """Return what `call` gives, which Dask would wait for without end."""

    async def asked() -> Any:
        return await asyncio.wait_for(call(), _WITHIN)

    try:
        return client.sync(asked)
    except TimeoutError as error:
        raise FlowError(
            f"the Dask cluster at {client.scheduler.address} does not answer within {_WITHIN:g} s; "
            "see the logs of its workers"
        ) from error
