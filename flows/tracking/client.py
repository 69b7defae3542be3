"""A client for short calls to the Prefect server, which fails at once if the server is away."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.context import SettingsContext, get_settings_context
from prefect.settings import (
    PREFECT_API_AUTH_STRING,
    PREFECT_API_URL,
    PREFECT_CLIENT_MAX_RETRIES,
    Settings,
)

from flows.errors import FlowError
from flows.tracking.server import password_message, without_password

# How often a call waits for a server that is busy: a database of SQLite is locked for a moment
# while another run writes.
BUSY_RETRIES = 3
# A busy server takes some seconds for an artifact with pictures.
_TIMEOUT_SECONDS = 20.0
# Changed copies of settings, by the id of the original, the name of the setting and its value.
# The original is held here, too: no other object can get its id then.
_SETTINGS_CACHE: dict[tuple[int, str, int | None], tuple[Settings, Settings]] = {}


class ServerUnreachable(FlowError):  # noqa: N818 - nothing of ours went wrong
    """The Prefect server does not answer."""


@contextmanager
def prefect_client(retries: int = 0) -> Iterator[SyncPrefectClient]:
    """Yield a client of the server in use; raise ServerUnreachable if the server is away.

    By default Prefect's client would wait a minute for it, but a computation must not wait for the
    server. `retries` is for calls outside of one, to a server that may be busy: BUSY_RETRIES.
    """
    settings: dict[str, Any] = {"timeout": _TIMEOUT_SECONDS}
    if server_address().startswith("http://"):
        # No certificate is checked, so none are loaded. That saves 0.04 s.
        settings["verify"] = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        with (
            temporary_setting(PREFECT_CLIENT_MAX_RETRIES, retries),
            get_client(httpx_settings=settings, sync_client=True) as client,
        ):
            yield client
    except httpx.TransportError as error:
        raise ServerUnreachable(
            f"the Prefect server at {server_address()} does not answer"
        ) from error
    except httpx.HTTPStatusError as error:
        if error.response.status_code == HTTPStatus.UNAUTHORIZED:
            given = bool(PREFECT_API_AUTH_STRING.value())
            raise FlowError(password_message(server_address(), given=given)) from error
        if not error.response.is_server_error:
            raise
        message = without_password(str(error))
        raise ServerUnreachable(
            f"the Prefect server at {server_address()} has trouble: {message}"
        ) from error


def server_address() -> str:
    """Return the address of the API in use, or an empty text for Prefect's ephemeral server."""
    return without_password(PREFECT_API_URL.value() or "")


@contextmanager
def temporary_setting(setting: Any, value: int | None) -> Iterator[None]:
    """Change one of Prefect's settings in the block.

    Changed settings are cached: for each change Prefect reads its whole environment again, which
    takes 0.1 s.
    """
    context = get_settings_context()
    key = id(context.settings), setting.name, value
    if key not in _SETTINGS_CACHE:
        changed = context.settings.copy_with_update({setting: value})
        _SETTINGS_CACHE[key] = context.settings, changed
    with SettingsContext(profile=context.profile, settings=_SETTINGS_CACHE[key][1]):
        yield
