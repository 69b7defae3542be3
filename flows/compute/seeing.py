"""Whether workers see the files that they are to read."""

from __future__ import annotations

import os

from flows.compute.asking import on_workers, sample
from flows.errors import FlowError


def check_seen(folder: str) -> None:
    """Raise FlowError where a worker of the active cluster does not see a folder that we see."""
    from distributed import default_client  # noqa: PLC0415

    client = default_client()
    for address, seen in on_workers(client, sample(client), os.path.isdir, folder).items():
        if seen is not True:
            raise FlowError(
                f"the worker at {address} does not see {folder}, from where it would read the "
                "rows; let ISM_DASK_HOME be a folder that this process and all workers share"
            )
