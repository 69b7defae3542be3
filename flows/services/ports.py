"""Choose the ports of services on this machine, and name the process that occupies a port."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import psutil

from flows.errors import FlowError

HOST = "127.0.0.1"
# The names under which a browser on this machine may open our pages.
HOSTS = (HOST, "localhost")


@dataclass(frozen=True)
class Ports:
    """Chooses free ports for services that start together.

    Attributes
    ----------
    tell : callable
        Shows a line of text, if a port is not the default.
    given : set of int
        Ports chosen so far. Their services may not listen yet.
    """

    tell: Callable[[str], None]
    given: set[int] = field(default_factory=set)

    def choose(self, requested: int | None, usual: int, title: str) -> int:
        """Return the port `requested`, or the default port, or any free port if that is in use.

        Raise FlowError if the port `requested` is in use.
        """
        port = self._free_port(requested or usual)
        if port is None and requested:
            raise FlowError(
                f"port {requested}, asked for the {title}, is in use by "
                f"{self._port_user(requested)}; end that, or choose another port"
            )
        if port is None:
            port = self._free_port(0)
            self.tell(
                f"port {usual} is in use by {self._port_user(usual)}: the {title} takes {port}"
            )
        if port is None:
            raise FlowError(f"no port of {HOST} is free for the {title}")
        self.given.add(port)
        return port

    def _free_port(self, port: int) -> int | None:
        return None if port in self.given else _bindable_port(port)

    def _port_user(self, port: int) -> str:
        return "another of these services" if port in self.given else user_of(port)


def user_of(port: int) -> str:
    """Return a description of the process that listens on a port, as far as we may see it."""
    with suppress(psutil.Error, OSError):
        for each in psutil.net_connections("tcp"):
            if each.status == psutil.CONN_LISTEN and each.laddr.port == port and each.pid:
                return f"process {each.pid} ({psutil.Process(each.pid).name()})"
    return "another process"


def _bindable_port(port: int) -> int | None:
    """Return `port` if it can be listened on, else None; for 0, return any such port."""
    with socket.socket() as probe, suppress(OSError):
        # Servers set this option, too: connections of an earlier server that are still closing do
        # not block the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((HOST, port))
        return int(probe.getsockname()[1])
    return None
