"""How a client joins a Dask cluster, and what it asks of it before it is used."""

from __future__ import annotations

import asyncio
import logging
import os
import time
import warnings
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import dask
from distributed import Client, Security, default_client
from distributed.comm.core import connect
from distributed.versions import VersionMismatchWarning

from flows.compute.places import CLIENT_SETTINGS, ClusterAddress
from flows.errors import FlowError
from flows.progress.interrupts import delay_interrupts
from flows.progress.watching import report_progress

# Seconds within which a scheduler that runs already has to answer; a busy one may take some.
ANSWER_SECONDS = 15.0
# Seconds that workers may take to answer: one may import a large package from a slow disk.
_WORKER_SECONDS = 60.0
# These loggers repeat, at length and more than once, the one line of our error.
_SILENCED_LOGGERS = ("distributed", "distributed.client", "asyncio", "tornado.application")
_POLL_SECONDS = 0.5
_TLS_SCHEMES = ("tls://", "wss://")
# The number of leading parts of a version that have to agree. These packages pickle the tasks and
# compute the numbers.
_N_PARTS = {"python": 2, "dask": 3, "distributed": 3, "cloudpickle": 2, "numpy": 1, "ism-dask": 3}


def workers_of(client: Client) -> dict[str, Any]:
    """Return the description of each worker that the scheduler has, by address."""
    workers: dict[str, Any] = client.scheduler_info(n_workers=-1)["workers"]
    return workers


def answer(client: Any, call: Callable[..., Awaitable[Any]], *args: Any, **more: Any) -> Any:
    """Return the result of a coroutine of the client, or raise FlowError if it takes too long."""
    try:
        return client.sync(call, *args, callback_timeout=_WORKER_SECONDS, **more)
    except (TimeoutError, OSError) as error:
        raise FlowError(
            f"the Dask cluster at {client.scheduler.address} does not answer within "
            f"{_WORKER_SECONDS:g} s ({error}); see the logs of its workers, and that "
            "scheduler and workers reach each other both ways"
        ) from error


@contextmanager
def quiet_logs() -> Iterator[None]:
    """Silence, in the block, the log messages of Dask that repeat our errors."""
    loggers = [logging.getLogger(name) for name in _SILENCED_LOGGERS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@contextmanager
def joined_client(reached: ClusterAddress) -> Iterator[Client]:
    """Yield a client of the scheduler; in the block it is the default client of all threads."""
    with ExitStack() as opened:
        try:
            # If another program listens on the port, the client would wait for ever: it has a
            # timeout for the connection, but none for the handshake that follows.
            asyncio.run(asyncio.wait_for(_shake_hands(reached), ANSWER_SECONDS))
            with delay_interrupts(), warnings.catch_warnings(), dask.config.set(CLIENT_SETTINGS):
                # check_versions raises for the differences that matter.
                warnings.simplefilter("ignore", VersionMismatchWarning)
                client: Any = Client(
                    reached.address, security=reached.security, timeout=ANSWER_SECONDS
                )
                # Not `with client`, which would make it the default client of this thread only.
                opened.callback(client.close)
        except (OSError, TimeoutError, ValueError, TypeError, RuntimeError) as error:
            raise FlowError(_join_error_message(reached, error)) from error
        yield client


def await_workers(client: Client, reached: ClusterAddress) -> None:
    """Wait for the first worker and report it as progress; raise FlowError if none comes."""
    until = time.monotonic() + reached.wait
    while not workers_of(client):
        if time.monotonic() > until:
            raise FlowError(
                f"the Dask scheduler at {reached.address} has 0 workers, and none came within "
                f"{reached.wait:g} s; {reached.none_came}"
            )
        report_progress(0.0, f"waiting for a worker of the Dask cluster at {reached.address}")
        time.sleep(_POLL_SECONDS)


def check_versions(client: Any) -> None:
    """Raise FlowError if the scheduler, or a worker, has other versions than this process."""
    answers = answer(client, client._get_versions, packages=["ism-dask"])
    ours = answers["client"]["packages"]
    # The scheduler unpickles the task graphs, so it needs the packages that they refer to.
    elsewhere = {f"the scheduler at {client.scheduler.address}": answers["scheduler"]}
    elsewhere |= {f"the worker at {each}": answers["workers"][each] for each in answers["workers"]}
    for where, there in elsewhere.items():
        theirs = there["packages"]
        odd = [name for name in _N_PARTS if _parts(name, theirs) != _parts(name, ours)]
        if odd:
            has, have = (
                ", ".join(f"{name} {versions[name]}" for name in odd) for versions in (theirs, ours)
            )
            raise FlowError(
                f"{where} has {has}, but this process has {have}: install the same there, or "
                "join from an environment like theirs"
            )


def _parts(name: str, versions: dict[str, Any]) -> list[str]:
    return str(versions[name]).split(".")[: _N_PARTS[name]]


def check_files_visible(folder: str) -> None:
    """Raise FlowError unless the workers of the default client see a folder that we see."""
    client: Any = default_client()
    visible = answer(client, client._run, os.path.isdir, folder, on_error="return")
    for address, seen in visible.items():
        if seen is not True:
            raise FlowError(
                f"the worker at {address} does not see {folder}, from where it would read the "
                "rows; let ISM_DASK_HOME be a folder that this process and all workers share"
            )


async def _shake_hands(reached: ClusterAddress) -> None:
    security = reached.security or Security()
    comm = await connect(reached.address, **security.get_connection_args("client"))
    await comm.close()


def _join_error_message(reached: ClusterAddress, error: BaseException) -> str:
    if reached.address.startswith(_TLS_SCHEMES):
        return (
            f"{reached.address} is not joined with these certificates, or without any "
            f"({error or 'no answer'}): name valid ones, all of one authority, in Dask's "
            "configuration, distributed.comm.tls (docs.dask.org, TLS/SSL)"
        )
    return (
        f"no Dask scheduler answers at {reached.address} within {ANSWER_SECONDS:g} s (or it wants "
        "tls:// and certificates); start one with `dask scheduler --host 127.0.0.1`, or leave out "
        "--scheduler to compute here"
    )
