"""Credentials of file systems from Prefect blocks, for tables at remote addresses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import fsspec
from prefect.filesystems import RemoteFileSystem

from flows.errors import SettingsError
from flows.interface.credentials import using_credentials


@contextmanager
def block_credentials(name: str | None) -> Iterator[None]:
    """Read addresses with the settings of a Prefect block; None changes nothing.

    Parameters
    ----------
    name : str, optional
        A block of type remote-file-system, such as "lake" or "remote-file-system/lake". Its
        settings are those that fsspec takes for the protocol of its base path.
    """
    if name is None:
        yield
        return
    try:
        loaded = RemoteFileSystem.load(name.removeprefix("remote-file-system/"))
    except ValueError as error:
        raise SettingsError(
            f"`credentials` is {name!r}, but the Prefect server has no such block of type "
            "remote-file-system; make one in its UI, under Blocks"
        ) from error
    block = cast(RemoteFileSystem, loaded)
    protocol = block.basepath.partition("://")[0]
    earlier = fsspec.config.conf.get(protocol)
    fsspec.config.conf[protocol] = dict(block.settings)
    try:
        with using_credentials(name):
            yield
    finally:
        del fsspec.config.conf[protocol]
        if earlier is not None:
            fsspec.config.conf[protocol] = earlier
