"""Ports of this machine: the usual ones where they are free, and who else has them."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import psutil

from flows.errors import FlowError

HOST = "127.0.0.1"
# What a browser of this machine may call it.
HOSTS = (HOST, "localhost")


@dataclass(frozen=True)
class Ports:
    """Gives out ports.

    Attributes
    ----------
    tell : callable
        Called with a line for people, where a port is not the usual one.
    given : set of int
        To services that may not listen yet.
    """

    tell: Callable[[str], None]
    given: set[int] = field(default_factory=set)

    def choose(self, asked: int | None, usual: int, title: str) -> int:
        """Return the port that was asked for, else the usual one, else one that is free."""
        port = self._free(asked or usual)
        if port is None and asked:
            raise FlowError(
                f"port {asked}, asked for the {title}, is in use by {self._user(asked)}; end "
                "that, or choose another port"
            )
        if port is None:
            port = self._free(0)
            self.tell(f"port {usual} is in use by {self._user(usual)}: the {title} takes {port}")
        if port is None:
            raise FlowError(f"no port of {HOST} is free for the {title}")
        self.given.add(port)
        return port

    def _free(self, port: int) -> int | None:
        return None if port in self.given else _bound(port)

    def _user(self, port: int) -> str:
        return "another of these services" if port in self.given else user_of(port)


def user_of(port: int) -> str:
    """Say which process listens on a port of this machine, as far as we may know."""
    with suppress(psutil.Error, OSError):
        for each in psutil.net_connections("tcp"):
            if each.status == psutil.CONN_LISTEN and each.laddr.port == port and each.pid:
                return f"process {each.pid} ({psutil.Process(each.pid).name()})"
    return "another process"


def _bound(port: int) -> int | None:
    """Return a port that could be listened on, `port` unless that is 0, or None."""
    with socket.socket() as probe, suppress(OSError):
        # As servers do it: a connection of an earlier one that lingers is no hindrance.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((HOST, port))
        return int(probe.getsockname()[1])
    return None
