"""A scheduler that runs already."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

from flows.compute.place import Reached, Started
from flows.compute.tls import Tls

_ADDRESS = re.compile(r"(tcp|tls|ws|wss|ucx)://[^\s/]+:(\d{1,5})")


@dataclass(frozen=True, kw_only=True)
class Address(Started):
    """A scheduler that somebody has started.

    Attributes
    ----------
    address : str
        Such as tcp://127.0.0.1:8786.
    tls : Tls, optional
        Certificates for a tls:// address. Default: those of Dask's own configuration.
    """

    # Seconds that a worker is given to come.
    wait: ClassVar[float] = 8.0

    address: str
    tls: Tls | None = None

    def __post_init__(self) -> None:
        if not is_address(self.address):
            raise ValueError(
                f"`address` is {self.address!r}; expected one such as tcp://127.0.0.1:8786"
            )
        if self.tls is not None and not self.address.startswith(("tls://", "wss://")):
            raise ValueError(
                f"`address` is {self.address!r}, but there are certificates; expected one that "
                "begins with tls://"
            )

    @contextmanager
    def opened(self) -> Iterator[Reached]:
        """Yield where it is; it stays when the block ends."""
        security = None if self.tls is None else self.tls.security()
        advice = f"start some with `dask worker {self.address}`"
        yield Reached(self.address, security, wait=self.wait, none_came=advice)


def is_address(text: str) -> bool:
    """Say whether `text` is the address of a scheduler."""
    match = _ADDRESS.fullmatch(text)
    return match is not None and 0 < int(match[2]) < 2**16
