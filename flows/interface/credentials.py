"""Which credentials are in use: a Prefect block, which only a flow can read."""

from __future__ import annotations

from contextlib import AbstractContextManager
from contextvars import ContextVar

from flows.errors import SettingsError
from ism_dask._context import bound

_IN_USE: ContextVar[str | None] = ContextVar("credentials", default=None)


def using_credentials(name: str) -> AbstractContextManager[None]:
    """Mark the credentials called `name` as in use within the block."""
    return bound(_IN_USE, name)


def check_credentials(name: str | None) -> None:
    """Raise SettingsError if credentials are named that are not in use."""
    if name not in (None, _IN_USE.get()):
        raise SettingsError(
            f"`credentials` is {name!r}, a Prefect block: leave out --plain, or give the "
            "credentials in the environment instead"
        )
