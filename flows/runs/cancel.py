"""End a run that goes on, from another process: its last iteration is saved first."""

from __future__ import annotations

import os
import platform
import signal
import time
from contextlib import suppress

from flows.errors import FlowError, SettingsError
from flows.progress.watching import progress_note
from flows.results.refresh import BEGUN
from flows.runs.published import History, RefreshProcess
from flows.services.leases import list_leases
from flows.services.liveness import ProcessRecord
from storage.runs import shared_name

# Seconds for a process to save its last iteration, leave its cluster and report to Prefect.
_PATIENCE = 60.0


def cancel_run(run: str) -> int:
    """End the process that computes a run, as Ctrl-C does, and return its pid when it has ended.

    Parameters
    ----------
    run : str
        A run; or the name of a published one, for the refresh or the dated run that goes on.

    Raises
    ------
    SettingsError
        If no process computes it.
    FlowError
        If the process is on another machine, or does not end.
    """
    process = _process_of(run)
    if process is None:
        raise SettingsError(f"no process computes the run {run!r}; `ism-dask runs` lists all runs")
    if process.host != platform.node():
        raise FlowError(
            f"process {process.pid} on {process.host} computes {run!r}: cancel it on that machine, "
            "or cancel its flow run in the Prefect UI"
        )
    progress_note(f"process {process.pid} saves the last iteration of {run!r} and ends")
    with suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGTERM)
    until = time.monotonic() + _PATIENCE
    while process.lives:
        if time.monotonic() > until:
            raise FlowError(
                f"process {process.pid} has not ended in {_PATIENCE:.0f} s; `kill -9 {process.pid}`"
                " ends it, and the next process of the run goes on from its last checkpoint"
            )
        time.sleep(0.1)
    return process.pid


def _process_of(run: str) -> ProcessRecord | None:
    """Return the process that computes a run, or refreshes it; None if there is none."""
    for lease in list_leases():
        if lease.held and run in (lease.run, shared_name(lease.run)):
            return lease
    records = History(run).records
    if not records or records[-1].state != BEGUN or records[-1].process is None:
        return None
    process = RefreshProcess(**records[-1].process)
    return process if process.may_live else None
