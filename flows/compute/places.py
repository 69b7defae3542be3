"""The places that a run can compute on, and the cluster files (TOML) that describe some of them."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from multiprocessing import resource_tracker
from pathlib import Path
from pkgutil import resolve_name
from tempfile import TemporaryDirectory
from typing import Annotated, Any

from pydantic import Field

import storage
from flows.errors import FlowError, SettingsError
from flows.progress.interrupts import delay_interrupts
from flows.progress.watching import progress_note
from flows.services.service import HOST, live_record
from flows.settings.base import CLUSTER_FILE, UP, check_scheduler, is_address
from flows.settings.toml_tables import expanded, parse_toml, read_table

# A worker ends after Dask's adaptive scaling, which checks once a second, has found it idle this
# many times. That is long, because a new job would have to queue.
_IDLE_CHECKS = 120
# Seconds that the first worker may take to start, in a job that may have to queue, and else.
_JOB_SECONDS, _START_SECONDS = 900.0, 60.0
# The same for the first worker of a scheduler that runs already.
JOIN_SECONDS = 10.0
# In containers, which do not run `up`, this environment variable has the address of the scheduler
# that stands in for it: schedules compute on the cluster that they come with, anywhere.
_VARIABLE = "ISM_DASK_SCHEDULER"
# Name of the scheduler among the services of `ism-dask up`.
SCHEDULER = "dask-scheduler"
# The number of messages that each connection remembers for debugging, with the W that is in them.
CLIENT_SETTINGS: dict[str, Any] = {"distributed.admin.low-level-log-length": 50}
# Our Dask configuration of a scheduler.
SCHEDULER_SETTINGS: dict[str, Any] = {
    **CLIENT_SETTINGS,
    # The time that tasks may wait for a worker when there is none. By default Dask waits for ever.
    "distributed.scheduler.no-workers-timeout": "5 minutes",
    # The number of workers that may die under one task. By default Dask blames the task at the
    # fourth, but preemption kills many workers without a fault of the task.
    "distributed.scheduler.allowed-failures": 10,
}
# Options of classes of Dask, unless the cluster file has others: nothing listens elsewhere than on
# this machine, or on the `interface` of jobs.
_DEFAULTS: dict[str, dict[str, Any]] = {
    "distributed": {
        "threads_per_worker": 1,
        "processes": True,
        "host": HOST,
        "dashboard_address": f"{HOST}:0",
        # By default the HTTP server of a worker listens on every interface.
        "worker_dashboard_address": f"{HOST}:0",
    },
    "dask_jobqueue": {
        "name": "ism-dask",
        "job_name": "ism-dask",
        "scheduler_options": {"dashboard_address": f"{HOST}:0"},
        "worker_extra_args": ["--no-dashboard", "--dashboard-address", f"{HOST}:0"],
        # Dask's own folder, in /tmp, may have been made by another user.
        "job_script_prologue": [
            "export DASK_TEMPORARY_DIRECTORY=$(mktemp -d)",
            """trap 'rm -rf "$DASK_TEMPORARY_DIRECTORY"' EXIT""",
        ],
    },
}


@dataclass(frozen=True)
class ClusterAddress:
    """The scheduler to join, and how long to wait for its first worker."""

    address: str  # for tls:// Dask's configuration has the certificates, unless `security` has them
    security: Any = None
    wait: float = JOIN_SECONDS  # seconds that the first one may take
    none_came: str = "see the log of the scheduler"  # advice if they do not come in time


# What pydantic checks in a cluster file.
Count = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(ge=1)]


@dataclass(frozen=True)
class AdaptiveSize:
    """The bounds within which the number of workers follows the amount of work."""

    minimum: int
    maximum: int

    def __post_init__(self) -> None:
        if not 0 <= self.minimum <= self.maximum or self.maximum < 1:
            raise ValueError(
                f"minimum is {self.minimum} and maximum {self.maximum}; expected 0 <= minimum <= "
                "maximum, and at least 1"
            )


@dataclass(frozen=True, kw_only=True)
class DaskCluster:
    """A cluster of a class of Dask, which starts and ends with the run.

    The class, such as `dask_jobqueue.SLURMCluster`, has the `options`, beside safe defaults.
    """

    cluster: str
    workers: Count | AdaptiveSize
    options: dict[str, Any] = field(default_factory=dict)
    wait: Seconds | None = None  # for the first worker; None is long if jobs may have to queue

    @contextmanager
    def made(self) -> Iterator[Any]:
        """Start the cluster in this process, without workers; end it with the block."""
        import dask  # noqa: PLC0415

        # Before dask.config.set, with which the defaults that it adds would end.
        import distributed  # noqa: F401, PLC0415

        _put_packages_on_path()
        # Else the processes that start look for their first imports in the folder of the command,
        # which may be a folder that others fill.
        os.environ["PYTHONSAFEPATH"] = "1"
        try:
            # The signal handler of dask_jobqueue would end the process without a message.
            with delay_interrupts():
                kind = resolve_name(self.cluster)
        except (ImportError, AttributeError, ValueError) as error:
            raise FlowError(
                f"`cluster` is {self.cluster!r}, which is not found ({error}); expected a class "
                "such as distributed.LocalCluster, or dask_jobqueue.SLURMCluster (pip install "
                "'ism-dask[jobqueue]')"
            ) from error
        defaults = _DEFAULTS.get(self.cluster.partition(".")[0], {})
        options = {**_joined(defaults, self.options), "silence_logs": logging.CRITICAL}
        with ExitStack() as stack:
            # No other user can make this folder before.
            folder = stack.enter_context(
                TemporaryDirectory(prefix="ism-dask-", ignore_cleanup_errors=True)
            )
            temporary = {"temporary-directory": dask.config.get("temporary-directory") or folder}
            # It has to hold while workers connect, too: each new connection reads from it how many
            # messages to remember.
            stack.enter_context(dask.config.set(SCHEDULER_SETTINGS | temporary))
            # Otherwise the first thread that needs the tracker starts it, which unblocks SIGINT.
            resource_tracker.ensure_running()
            try:
                with delay_interrupts():
                    cluster = stack.enter_context(kind(n_workers=0, **options))
            except Exception as error:  # of any class, with any options
                raise FlowError(f"{self.cluster} does not take these `options`: {error}") from error
            yield cluster

    @contextmanager
    def opened(self) -> Iterator[ClusterAddress]:
        """Start the cluster with its workers; end them with the block."""
        with self.made() as cluster:
            # Nobody else knows the port, which is any free one.
            progress_note(f"Dask dashboard: {cluster.dashboard_link}")
            size = self.workers
            cluster.scale(max(size.minimum, 1) if isinstance(size, AdaptiveSize) else size)
            try:
                cluster.sync(_submitted, cluster)
            except Exception as error:
                raise FlowError(f"{self.cluster} starts no workers: {error}") from error
            if isinstance(size, AdaptiveSize):
                cluster.adapt(**vars(size), wait_count=_IDLE_CHECKS)
            seconds = _JOB_SECONDS if hasattr(cluster, "job_script") else _START_SECONDS
            none_came = "see the list of your jobs, if it submits some, and the logs of workers"
            address, security = cluster.scheduler_address, cluster.security
            yield ClusterAddress(address, security, self.wait or seconds, none_came)


async def _submitted(cluster: Any) -> None:
    """Wait until the cluster has submitted its workers; raise the error of one that is refused."""
    from distributed import Status  # noqa: PLC0415

    await cluster._correct_state()
    try:
        # Dask suppresses the error; to wait for the worker once more raises it again.
        for worker in cluster.workers.values():
            await worker
    except Exception:
        for worker in cluster.workers.values():
            if worker.status is Status.created:
                worker.status = Status.failed  # else the cluster cannot be closed
        raise


def _joined(defaults: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with defaults: lists and tables are joined, any other value is replaced."""
    joined = {**defaults, **given}
    for name in defaults.keys() & given.keys():
        ours, theirs = defaults[name], given[name]
        if isinstance(ours, list) and isinstance(theirs, list):
            joined[name] = [*ours, *theirs]
        elif isinstance(ours, dict) and isinstance(theirs, dict):
            joined[name] = {**ours, **theirs}
    return joined


def _put_packages_on_path() -> None:
    """Put the folder of our packages on the path, which worker processes inherit, if it is not.

    Dask puts a folder before it that has a folder `storage` of its own. Python takes a package of
    that name all the same, but only from the path: an editable installation is elsewhere.
    """
    ours = str(Path(storage.__file__).parents[1])
    if ours not in sys.path:
        sys.path.append(ours)


def dask_environment(configuration: Mapping[str, Any]) -> dict[str, str]:
    """Return a configuration of Dask as environment variables, for another process."""
    return {
        f"DASK_{name.replace('.', '__').replace('-', '_').upper()}": str(value)
        for name, value in configuration.items()
    }


def cluster_place(scheduler: str) -> DaskCluster | ClusterAddress:
    """Return the place that `--scheduler` names, checked as far as possible without starting it."""
    check_scheduler(scheduler)
    if scheduler.endswith(CLUSTER_FILE):
        return read_cluster(expanded(scheduler))
    if scheduler != UP:
        advice = f"start some with `dask worker {scheduler}`"
        return ClusterAddress(scheduler, wait=JOIN_SECONDS, none_came=advice)
    if not (address := os.environ.get(_VARIABLE, "")):
        service = live_record(SCHEDULER)
        address = service.address if service else ""
    elif not is_address(address):
        raise SettingsError(
            f"{_VARIABLE} is {address!r}; expected an address such as tcp://scheduler:8786"
        )
    if not address:
        raise FlowError(
            "`scheduler` is 'up', but no Dask scheduler of `ism-dask up` runs here; start it "
            "with `ism-dask up`, or leave out --scheduler to compute here",
            "scheduler",
        )
    return ClusterAddress(address, none_came="see `ism-dask up --status`")


def read_cluster(file: Path) -> DaskCluster:
    """Return the cluster that a cluster file describes; raise SettingsError if it is wrong."""
    table = parse_toml(file, "cluster file", "those in docs/clusters.md")
    try:
        return read_table(DaskCluster, table)
    except SettingsError as error:
        raise SettingsError(f"{file}: {error}") from error
