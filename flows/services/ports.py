"""Choose the ports of services on this machine, and name the process that occupies a port."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from contextlib import suppress

import psutil

from flows.errors import FlowError

HOST = "127.0.0.1"
# The names under which a browser on this machine may open our pages.
HOSTS = (HOST, "localhost")
# The number of ports that are tried, from the usual port on, before any other.
_NEXT = 10


def choose_port(
    title: str,
    named: int | None,
    preferred: Sequence[int],
    taken: set[int],
    tell: Callable[[str], None],
) -> int:
    """Return a port that is free, and add it to `taken`.

    Parameters
    ----------
    title : str
        Name of the service in messages.
    named : int or None
        The port that the user has named; if it is in use, FlowError is raised.
    preferred : sequence of int
        Without it, these ports are tried, then those after the last of them, then any.
    taken : set of int
        Ports of services that start together, which may not listen yet.
    tell : callable
        Shows a line of text, if the port is not the first choice.
    """
    usual = preferred[-1]
    candidates = [named] if named else [*preferred, *range(usual + 1, usual + _NEXT), 0]
    free = (_bindable_port(each) for each in candidates if each not in taken)
    port, first = next(filter(None, free), 0), candidates[0]
    if port != first:
        user = "another of these services" if first in taken else _user_of(first)
        if not port:
            raise FlowError(
                f"the port {first} that you named for the {title} is in use by {user}; end that, "
                "or name another port"
            )
        tell(f"port {first} is in use by {user}: the {title} takes {port}")
    taken.add(port)
    return port


def _user_of(port: int) -> str:
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
