"""Connect a client to a Dask scheduler, or explain a failure soon and in one line."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from flows.compute.base import ANSWER_SECONDS, ClusterAddress
from flows.errors import FlowError
from flows.progress.interrupts import delay_interrupts
from flows.progress.watching import report_progress
from flows.services.dask import client_settings
from flows.text import count_noun

# These loggers repeat, at length and more than once, the one line of our error.
_SILENCED_LOGGERS = ("distributed", "distributed.client", "asyncio", "tornado.application")
_POLL_SECONDS = 0.5
_TLS_SCHEMES = ("tls://", "wss://")
# Advice for each of OpenSSL's error names; for any other error the message only gives its name.
_TLS_ADVICE = {
    "WRONG_VERSION_NUMBER": "what answers there does not encrypt; try tcp://",
    "KEY_VALUES_MISMATCH": "`key` is not that of `cert`",
    "NO_CERTIFICATE_OR_CRL_FOUND": "`ca_file` has no certificate in it",
    "NO_START_LINE": "`cert` or `key` is no PEM file",
    "PEM_LIB": "`cert` or `key` is no PEM file",
    # A scheduler may also hang up before this arrives.
    "TLSV1_ALERT_UNKNOWN_CA": "it does not trust `cert`, which must come from its ca_file",
}


@contextmanager
def quiet_logs() -> Iterator[None]:
    """Silence, in the block, the log messages of Dask that repeat our errors."""
    # distributed sets these levels when it is imported, so it has to be imported before.
    import distributed  # noqa: F401, PLC0415

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
def joined_client(reached: ClusterAddress) -> Iterator[Any]:
    """Yield a client of the scheduler; in the block it is the default client of all threads."""
    import dask  # noqa: PLC0415
    from distributed.versions import VersionMismatchWarning  # noqa: PLC0415

    from flows.compute.endable_client import EndableClient  # noqa: PLC0415

    with ExitStack() as opened:
        try:
            # If another program listens on the port, the client would wait for ever: it has a
            # timeout for the connection, but none for the handshake that follows.
            asyncio.run(asyncio.wait_for(_shake_hands(reached), ANSWER_SECONDS))
            with delay_interrupts(), warnings.catch_warnings(), dask.config.set(client_settings()):
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


def await_workers(client: Any, reached: ClusterAddress) -> None:
    """Wait for the first workers and report it as progress; raise FlowError if they do not come."""
    until = time.monotonic() + reached.wait
    while (running := n_workers(client)) < reached.workers:
        if time.monotonic() > until:
            raise FlowError(
                f"the Dask scheduler at {reached.address} has {count_noun(running, 'worker')}, "
                f"and no more came within {reached.wait:g} s; {reached.none_came}"
            )
        report_progress(0.0, f"waiting for {reached.awaited}: {running} running")
        time.sleep(_POLL_SECONDS)


def n_workers(client: Any) -> int:
    """Return the number of workers of the cluster."""
    return len(client.scheduler_info(n_workers=-1)["workers"])


async def _shake_hands(reached: ClusterAddress) -> None:
    from distributed import Security  # noqa: PLC0415
    from distributed.comm.core import connect  # noqa: PLC0415

    security = reached.security or Security()
    comm = await connect(reached.address, **security.get_connection_args("client"))
    await comm.close()


def _join_error_message(reached: ClusterAddress, error: BaseException) -> str:
    encrypted = reached.address.startswith(_TLS_SCHEMES)
    if isinstance(error, TypeError) and encrypted:
        return (
            f"{reached.address} is not joined without certificates; name them in a cluster file "
            "(ca_file, cert and key under [tls]), or in Dask's configuration"
        )
    reason = _tls_error_reason(error)
    if reason is not None and encrypted:
        advice = _TLS_ADVICE.get(
            reason, "all certificates must come from one ca_file, and still be valid"
        )
        return f"{reached.address} cannot be joined with these certificates ({reason}): {advice}"
    guess = "it does not trust `cert`" if encrypted else "it wants tls:// and certificates"
    return (
        f"no Dask scheduler answers at {reached.address} within {ANSWER_SECONDS:g} s (or {guess}); "
        "start one with `dask scheduler --host 127.0.0.1`, or leave out --scheduler to compute here"
    )


def _tls_error_reason(error: BaseException | None) -> str | None:
    """Return OpenSSL's name of the error, which may be the cause of other errors, or None."""
    while error is not None:
        if isinstance(error, ssl.SSLError) and error.reason:
            return str(error.reason)
        error = error.__cause__ or error.__context__
    return None
