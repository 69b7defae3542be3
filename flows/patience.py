"""How patient the Dask schedulers are that we start, and how much they remember."""

from __future__ import annotations

from typing import Any

# How long tasks may wait for a worker when there is none: by default Dask waits for ever.
NO_WORKERS = "5 minutes"
# How many workers may end under one task. By default Dask takes the fourth for the task's fault,
# but whoever takes machines back takes many.
ALLOWED_FAILURES = 10
# Messages that each connection keeps for whoever looks for a fault, with the W that is in them.
MESSAGES = 50


def scheduler_settings() -> dict[str, Any]:
    """Return what a scheduler is to be told by the configuration of Dask."""
    return {
        "distributed.scheduler.no-workers-timeout": NO_WORKERS,
        "distributed.scheduler.allowed-failures": ALLOWED_FAILURES,
        **client_settings(),
    }


def client_settings() -> dict[str, Any]:
    """Return what whoever joins a scheduler is to be told by the configuration of Dask."""
    return {"distributed.admin.low-level-log-length": MESSAGES}


def scheduler_environment() -> dict[str, str]:
    """Return the same for one that is a process of its own."""
    return {
        f"DASK_{name.replace('.', '__').replace('-', '_').upper()}": str(value)
        for name, value in scheduler_settings().items()
    }
