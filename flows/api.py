"""Short talks with the Prefect server: they tell at once whether it is away."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.settings import PREFECT_API_URL, PREFECT_CLIENT_MAX_RETRIES, temporary_settings

from flows.errors import FlowError

# A page with pictures takes a server with much to do some seconds.
_SECONDS = 20.0


class ServerAway(FlowError):  # noqa: N818 - nothing of ours went wrong
    """The Prefect server does not answer."""


@contextmanager
def talking() -> Iterator[SyncPrefectClient]:
    """Yield a client of the server in use; whatever shows that it is away is a ServerAway.

    Prefect's own would wait a minute for it: what is computed waits for nobody.
    """
    try:
        with (
            temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 0}),
            get_client(httpx_settings={"timeout": _SECONDS}, sync_client=True) as client,
        ):
            yield client
    except httpx.TransportError as error:
        raise ServerAway(f"the Prefect server at {address()} does not answer") from error
    except httpx.HTTPStatusError as error:
        if not error.response.is_server_error:
            raise
        raise ServerAway(f"the Prefect server at {address()} has trouble: {error}") from error


def address() -> str:
    """Return where the server in use answers; nothing where Prefect has one inside."""
    return PREFECT_API_URL.value() or ""
