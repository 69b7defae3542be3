"""Join a scheduler, or say in one line, and soon, why not."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from flows.compute.base import ANSWERS_WITHIN, JoinedCluster
from flows.errors import FlowError
from flows.interface.interrupts import interrupts_held
from flows.interface.progress import report_progress
from flows.services.dask import client_settings
from flows.text import count_noun

# They say at length, and more than once, what the one line of the error says.
_NOISY = ("distributed", "distributed.client", "asyncio", "tornado.application")
_LOOKS_EVERY = 0.5
_ENCRYPTED = ("tls://", "wss://")
# By what OpenSSL calls them; whatever else it may find is told by its name.
_TLS = {
    "WRONG_VERSION_NUMBER": "what answers there does not encrypt; try tcp://",
    "KEY_VALUES_MISMATCH": "`key` is not that of `cert`",
    "NO_CERTIFICATE_OR_CRL_FOUND": "`ca_file` has no certificate in it",
    "NO_START_LINE": "`cert` or `key` is no PEM file",
    "PEM_LIB": "`cert` or `key` is no PEM file",
}


@contextmanager
def quiet_logs() -> Iterator[None]:
    """Keep Dask from telling, in the block, what our errors tell."""
    # Imported later it would set these levels anew.
    import distributed  # noqa: F401, PLC0415

    loggers = [logging.getLogger(name) for name in _NOISY]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@contextmanager
def joined_client(reached: JoinedCluster) -> Iterator[Any]:
    """Yield a client of the scheduler, which is the active one in the block."""
    import dask  # noqa: PLC0415
    from distributed.versions import VersionMismatchWarning  # noqa: PLC0415

    from flows.compute.client import EndableClient  # noqa: PLC0415

    with ExitStack() as opened:
        try:
            # A port where something else listens would keep the client waiting for ever: it has
            # a time limit for the connection, but none for the greeting that follows.
            asyncio.run(asyncio.wait_for(_greet(reached), ANSWERS_WITHIN))
            with interrupts_held(), warnings.catch_warnings(), dask.config.set(client_settings()):
                # Where it matters, our own check refuses.
                warnings.simplefilter("ignore", VersionMismatchWarning)
                client = EndableClient(
                    reached.address, security=reached.security, timeout=ANSWERS_WITHIN
                )
                # Not entered: as a block it would be the active one of this thread only.
                opened.callback(client.close)
        except (OSError, TimeoutError, ValueError, TypeError, RuntimeError) as error:
            raise FlowError(_why_not(reached, error)) from error
        yield client


def await_workers(client: Any, reached: JoinedCluster) -> None:
    """Wait for the first workers, telling whoever watches."""
    until = time.monotonic() + reached.wait
    while (running := _count(client)) < reached.workers:
        if time.monotonic() > until:
            raise FlowError(
                f"the Dask scheduler at {reached.address} has {count_noun(running, 'worker')}, "
                f"and no more came within {reached.wait:g} s; {reached.none_came}"
            )
        report_progress(0.0, f"waiting for {reached.awaited}: {running} running")
        time.sleep(_LOOKS_EVERY)


def _count(client: Any) -> int:
    return len(client.scheduler_info(n_workers=-1)["workers"])


async def _greet(reached: JoinedCluster) -> None:
    from distributed import Security  # noqa: PLC0415
    from distributed.comm.core import connect  # noqa: PLC0415

    security = reached.security or Security()
    comm = await connect(reached.address, **security.get_connection_args("client"))
    await comm.close()


def _why_not(reached: JoinedCluster, error: BaseException) -> str:
    encrypted = reached.address.startswith(_ENCRYPTED)
    if isinstance(error, TypeError) and encrypted:
        return (
            f"{reached.address} is not joined without certificates; name them in a cluster file "
            "(ca_file, cert and key under [tls]), or in Dask's configuration"
        )
    told = _tls_error(error)
    if told is not None and encrypted:
        advice = _TLS.get(told, "all certificates must come from one ca_file, and still be valid")
        return f"{reached.address} cannot be joined with these certificates ({told}): {advice}"
    maybe = "it does not trust `cert`" if encrypted else "it wants tls:// and certificates"
    return (
        f"no Dask scheduler answers at {reached.address} within {ANSWERS_WITHIN:g} s (or {maybe}); "
        "start one with `dask scheduler --host 127.0.0.1`, or leave out --scheduler to compute here"
    )


def _tls_error(error: BaseException | None) -> str | None:
    """Return what TLS says of it, which may lie below other errors."""
    while error is not None:
        if isinstance(error, ssl.SSLError) and error.reason:
            return str(error.reason)
        error = error.__cause__ or error.__context__
    return None
