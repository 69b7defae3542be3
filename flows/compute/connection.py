"""A Dask client whose blocking calls another thread can end, and how it joins a cluster.

`distributed.Client` waits for ever for a scheduler that hangs.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import time
import warnings
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import dask
from distributed import Client, Security, default_client
from distributed.comm.core import connect
from distributed.versions import VersionMismatchWarning

from flows.compute.base import ClusterAddress
from flows.errors import FlowError
from flows.progress.interrupts import delay_interrupts
from flows.progress.watching import report_progress
from flows.services.dask import CLIENT_SETTINGS

Ask = Callable[..., Awaitable[Any]]

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
# Only half of the methods of Client have type annotations.
_Client: Any = Client


class EndableClient(_Client):  # type: ignore[misc]
    """A client that reports whether a thread waits for its cluster, and can end such waits."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self._waits: set[object] = set()
        self._error: Exception | None = None
        self._ended = asyncio.Event()
        super().__init__(*args, **options)

    @property
    def awaited(self) -> bool:
        """Return whether a thread waits for the cluster now."""
        return bool(self._waits)

    @property
    def workers(self) -> dict[str, Any]:
        """The description of each worker that the scheduler has, by address."""
        workers: dict[str, Any] = self.scheduler_info(n_workers=-1)["workers"]
        return workers

    def sync(self, func: Ask, *args: Any, asynchronous: bool | None = None, **more: Any) -> Any:
        """Run the coroutine `func` and return its result; all blocking calls of Dask come here."""
        if asynchronous or self.asynchronous:
            return super().sync(func, *args, asynchronous=asynchronous, **more)
        wait = object()
        self._waits.add(wait)
        try:
            return super().sync(self._run_until_ended, func, *args, **more)
        finally:
            self._waits.remove(wait)

    def result_within(self, func: Ask, *args: Any, within: float, **more: Any) -> Any:
        """Return the result of the coroutine `func`, or raise TimeoutError after `within` seconds.

        `awaited` does not count this call.
        """
        return super().sync(func, *args, callback_timeout=within, **more)

    def answer(self, func: Ask, *args: Any, **more: Any) -> Any:
        """Return the result of the coroutine `func`, or raise FlowError if it takes too long."""
        try:
            return self.result_within(func, *args, within=_WORKER_SECONDS, **more)
        except (TimeoutError, OSError) as error:
            raise FlowError(
                f"the Dask cluster at {self.scheduler.address} does not answer within "
                f"{_WORKER_SECONDS:g} s ({error}); see the logs of its workers, and that "
                "scheduler and workers reach each other both ways"
            ) from error

    def end_waits(self, why: Exception) -> None:
        """Raise `why` in every thread that waits for the cluster, and in every later wait."""
        self._error = why
        with suppress(RuntimeError):  # the loop may have ended
            self.loop.add_callback(self._ended.set)

    async def _run_until_ended(self, func: Ask, *args: Any, **more: Any) -> Any:
        self._raise_if_ended()
        call = asyncio.ensure_future(func(*args, **more))
        end = asyncio.ensure_future(self._ended.wait())
        try:
            # Cancelling `call` would not be enough, because it may not notice a cancellation.
            await asyncio.wait((call, end), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            call.cancel()
            raise
        finally:
            end.cancel()
        # The call ends when the client closes. If it were cancelled now, coroutines that it has
        # started would stay behind and log errors. Its own error is retrieved, or asyncio logs it.
        call.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._raise_if_ended()
        return call.result()

    def _raise_if_ended(self) -> None:
        if self._error is not None:
            raise self._error


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
def joined_client(reached: ClusterAddress) -> Iterator[EndableClient]:
    """Yield a client of the scheduler; in the block it is the default client of all threads."""
    with ExitStack() as opened:
        try:
            # If another program listens on the port, the client would wait for ever: it has a
            # timeout for the connection, but none for the handshake that follows.
            asyncio.run(asyncio.wait_for(_shake_hands(reached), ANSWER_SECONDS))
            with delay_interrupts(), warnings.catch_warnings(), dask.config.set(CLIENT_SETTINGS):
                # check_versions raises for the differences that matter.
                warnings.simplefilter("ignore", VersionMismatchWarning)
                client = EndableClient(
                    reached.address, security=reached.security, timeout=ANSWER_SECONDS
                )
                # Not `with client`, which would make it the default client of this thread only.
                opened.callback(client.close)
        except (OSError, TimeoutError, ValueError, TypeError, RuntimeError) as error:
            raise FlowError(_join_error_message(reached, error)) from error
        yield client


def await_workers(client: EndableClient, reached: ClusterAddress) -> None:
    """Wait for the first worker and report it as progress; raise FlowError if none comes."""
    until = time.monotonic() + reached.wait
    while not client.workers:
        if time.monotonic() > until:
            raise FlowError(
                f"the Dask scheduler at {reached.address} has 0 workers, and none came within "
                f"{reached.wait:g} s; {reached.none_came}"
            )
        report_progress(0.0, f"waiting for {reached.awaited}")
        time.sleep(_POLL_SECONDS)


def check_versions(client: EndableClient) -> None:
    """Raise FlowError if the scheduler, or a worker, has other versions than this process."""
    answer = client.answer(client._get_versions, packages=["ism-dask"])
    here = _leading_parts(answer["client"])
    # The scheduler unpickles the task graphs, so it needs the packages that they refer to.
    elsewhere = {f"the scheduler at {client.scheduler.address}": answer["scheduler"]}
    elsewhere |= {f"the worker at {each}": answer["workers"][each] for each in answer["workers"]}
    for where, versions in elsewhere.items():
        there = _leading_parts(versions)
        odd = [name for name in _N_PARTS if here[name] != there[name]]
        if odd:
            theirs, ours = (
                ", ".join(f"{name} {each['packages'][name]}" for name in odd)
                for each in (versions, answer["client"])
            )
            raise FlowError(
                f"{where} has {theirs}, but this process has {ours}: install the same there, or "
                "join from an environment like theirs"
            )


def _leading_parts(versions: dict[str, Any]) -> dict[str, str]:
    parts = {name: str(versions["packages"][name]).split(".") for name in _N_PARTS}
    return {name: ".".join(parts[name][:number]) for name, number in _N_PARTS.items()}


def list_workers(client: EndableClient) -> list[dict[str, Any]]:
    """Return address, threads, limit of memory in bytes (0: none) and versions of each worker.

    A worker that does not answer has no versions.
    """
    answers = client.answer(client._get_versions, packages=["ism-dask"])["workers"]
    return [
        {
            "address": address,
            "threads": each["nthreads"],
            "memory": each["memory_limit"] or 0,
            "versions": _leading_parts(answers[address]) if address in answers else {},
        }
        for address, each in sorted(client.workers.items())
    ]


def check_files_visible(folder: str) -> None:
    """Raise FlowError unless the workers of the default client see a folder that we see."""
    client: Any = default_client()
    visible = client.answer(client._run, os.path.isdir, folder, on_error="return")
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
            f"({_reason_of(error)}): name valid ones, all of one authority, in Dask's "
            "configuration, distributed.comm.tls (docs.dask.org, TLS/SSL)"
        )
    return (
        f"no Dask scheduler answers at {reached.address} within {ANSWER_SECONDS:g} s (or it wants "
        "tls:// and certificates); start one with `dask scheduler --host 127.0.0.1`, or leave out "
        "--scheduler to compute here"
    )


def _reason_of(error: BaseException) -> str:
    """Return OpenSSL's name of the error, which may be the cause of other errors, or its text."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError) and cause.reason:
            return str(cause.reason)
        cause = cause.__cause__ or cause.__context__
    return str(error) or f"no answer within {ANSWER_SECONDS:g} s"
