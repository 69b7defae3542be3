"""A Dask client whose waits can be ended: one that waits for a scheduler that hangs waits for ever.

Imported only by those who join a cluster, for it brings all of Dask.
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

# Half of what it has is typed.
_Client: Any = Client


class EndableClient(_Client):  # type: ignore[misc]
    """A client that says whether anybody waits for its cluster, and can end that."""

    def __init__(self, *given: Any, **more: Any) -> None:
        self._waits, self._lock = 0, Lock()
        self._why: Exception | None = None
        self._ended = asyncio.Event()
        super().__init__(*given, **more)

    @property
    def awaited(self) -> bool:
        """Whether a thread waits for the cluster now."""
        return self._waits > 0

    def sync(self, func: Ask, *args: Any, asynchronous: bool | None = None, **more: Any) -> Any:
        """Wait for what `func` gives, as all that Dask does by this client has to."""
        if asynchronous or self.asynchronous:
            return super().sync(func, *args, asynchronous=asynchronous, **more)
        with self._waiting():
            return super().sync(self._endable, func, *args, **more)

    def ask(self, func: Ask, *args: Any, within: float, **more: Any) -> Any:
        """Return what `func` gives, or raise TimeoutError; nobody counts as waiting meanwhile."""
        return super().sync(func, *args, callback_timeout=within, **more)

    def end_waits(self, why: Exception) -> None:
        """Let `why` be raised where somebody waits, and where somebody is about to."""
        self._why = why
        with suppress(RuntimeError):  # the loop may have ended
            self.loop.add_callback(self._ended.set)

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        with self._lock:
            self._waits += 1
        try:
            yield
        finally:
            with self._lock:
                self._waits -= 1

    async def _endable(self, func: Ask, *args: Any, **more: Any) -> Any:
        self._refuse()
        call = asyncio.ensure_future(func(*args, **more))
        end = asyncio.ensure_future(self._ended.wait())
        try:
            # Not by a cancellation alone, for what waits may not hear of it.
            await asyncio.wait((call, end), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            call.cancel()
            raise
        finally:
            end.cancel()
        # It ends with the client. Cancelled now, it would leave others behind that complain.
        call.add_done_callback(_heard)
        self._refuse()
        return call.result()

    def _refuse(self) -> None:
        if self._why is not None:
            raise self._why


def _heard(call: asyncio.Future[Any]) -> None:
    """Take note of an error that nobody waits for any more."""
    if not call.cancelled():
        call.exception()


# Workers that are asked: those of a large cluster are alike.
_ASKED = 32
# Seconds that they may take: they may import something large from a slow disk.
_WITHIN = 60.0


def sample_workers(client: Any) -> list[str]:
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
