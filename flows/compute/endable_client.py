"""A Dask client whose blocking calls another thread can end, and calls to workers with a timeout.

`distributed.Client` waits for ever for a scheduler that hangs. Import this module only to join a
cluster, because it imports all of Dask.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Lock
from typing import Any

from distributed import Client

from flows.errors import FlowError

Ask = Callable[..., Awaitable[Any]]

# Only half of the methods of Client have type annotations.
_Client: Any = Client


class EndableClient(_Client):  # type: ignore[misc]
    """A client that reports whether a thread waits for its cluster, and can end such waits."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self._n_waits, self._lock = 0, Lock()
        self._error: Exception | None = None
        self._ended = asyncio.Event()
        super().__init__(*args, **options)

    @property
    def awaited(self) -> bool:
        """Return whether a thread waits for the cluster now."""
        return self._n_waits > 0

    def sync(self, func: Ask, *args: Any, asynchronous: bool | None = None, **more: Any) -> Any:
        """Run the coroutine `func` and return its result; all blocking calls of Dask come here."""
        if asynchronous or self.asynchronous:
            return super().sync(func, *args, asynchronous=asynchronous, **more)
        with self._count_wait():
            return super().sync(self._run_until_ended, func, *args, **more)

    def result_within(self, func: Ask, *args: Any, within: float, **more: Any) -> Any:
        """Return the result of the coroutine `func`, or raise TimeoutError after `within` seconds.

        `awaited` does not count this call.
        """
        return super().sync(func, *args, callback_timeout=within, **more)

    def end_waits(self, why: Exception) -> None:
        """Raise `why` in every thread that waits for the cluster, and in every later wait."""
        self._error = why
        with suppress(RuntimeError):  # the loop may have ended
            self.loop.add_callback(self._ended.set)

    @contextmanager
    def _count_wait(self) -> Iterator[None]:
        with self._lock:
            self._n_waits += 1
        try:
            yield
        finally:
            with self._lock:
                self._n_waits -= 1

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
        # started would stay behind and log errors.
        call.add_done_callback(_consume_exception)
        self._raise_if_ended()
        return call.result()

    def _raise_if_ended(self) -> None:
        if self._error is not None:
            raise self._error


def _consume_exception(call: asyncio.Future[Any]) -> None:
    """Retrieve the error of a call that nobody waits for any more, so that asyncio is silent."""
    if not call.cancelled():
        call.exception()


# The workers of a large cluster are alike, so no more than this many are checked.
_MAX_SAMPLED_WORKERS = 32
# Seconds that an answer may take: a worker may import a large package from a slow disk.
_ANSWER_SECONDS = 60.0


def workers_to_check(client: Any) -> list[str]:
    """Return the addresses of the workers to check, evenly spread over the cluster."""
    addresses = sorted(client.scheduler_info(n_workers=-1)["workers"])
    step = -(-len(addresses) // _MAX_SAMPLED_WORKERS)
    return addresses[:: max(step, 1)]


def on_workers(
    client: Any, addresses: list[str], function: Callable[..., Any], *arguments: str
) -> dict[str, Any]:
    """Run `function` on the workers at `addresses`; return its result, or its error, by address."""
    answers: dict[str, Any] = _run_with_timeout(
        client, lambda: client.run(function, *arguments, workers=addresses, on_error="return")
    )
    return answers


def on_scheduler(client: Any, function: Callable[..., Any], *arguments: str) -> Any:
    """Run `function` on the scheduler; return its result, or its error."""
    try:
        return _run_with_timeout(client, lambda: client.run_on_scheduler(function, *arguments))
    except FlowError:
        raise
    # `function` may raise anything; the caller knows what its error means.
    except Exception as error:
        return error


def _run_with_timeout(client: Any, call: Callable[[], Any]) -> Any:
    """Return the result of `call`, or raise FlowError in time; Dask would wait for ever."""

    async def call_in_time() -> Any:
        return await asyncio.wait_for(call(), _ANSWER_SECONDS)

    try:
        return client.sync(call_in_time)
    except TimeoutError as error:
        raise FlowError(
            f"the Dask cluster at {client.scheduler.address} does not answer within "
            f"{_ANSWER_SECONDS:g} s; see the logs of its workers"
        ) from error
