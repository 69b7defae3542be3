"""Choose the ports of services on this machine, and name the process that occupies a port."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import psutil

from flows.errors import FlowError

HOST = "127.0.0.1"
# The names under which a browser on this machine may open our pages.
HOSTS = (HOST, "localhost")
# The number of ports that are tried, from the default port on, before any other.
_NEXT = 10


@dataclass(frozen=True)
class Ports:
    """Chooses the ports of a service.

    Attributes
    ----------
    tell : callable
        Shows a line of text, if a port is not the first choice.
    title : str
        Name of the service in messages.
    last : mapping
        Options that the service had the last time. Links to its last ports stay valid.
    given : set of int
        Ports of services that start together, which may not listen yet.
    runs : bool
        Whether the service runs already, so that it has its ports.
    """

    tell: Callable[[str], None]
    title: str = "server"
    last: Mapping[str, Any] = field(default_factory=dict)
    given: set[int] = field(default_factory=set)
    runs: bool = False

    def choose(self, option: str, requested: int | None, usual: int) -> int:
        """Return the port `requested`, or the last one, the default port, or the next free one.

        Raise FlowError if the port `requested` is in use.
        """
        if requested and self.runs:
            return requested
        candidates = [requested] if requested else [*range(usual, usual + _NEXT), 0]
        if not requested and self.last.get(option):
            candidates.insert(0, self.last[option])
        wanted = candidates[0]
        free = (_bindable_port(port) for port in candidates if port not in self.given)
        port = next((port for port in free if port is not None), None)
        if port is None:
            raise FlowError(
                f"port {wanted}, asked for the {self.title}, is in use by "
                f"{self._port_user(wanted)}; end that, or choose another port"
            )
        if wanted and port != wanted:
            user = self._port_user(wanted)
            self.tell(f"port {wanted} is in use by {user}: the {self.title} takes {port}")
        self.given.add(port)
        return port

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
