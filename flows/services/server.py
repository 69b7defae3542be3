"""The Prefect server on this machine: found, or started to stay for the next command."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psutil

from flows.errors import FlowError
from storage import home
from storage.durable import explained, locked, write_synced

HOST = "127.0.0.1"
_PORT = 4200
_STARTS_WITHIN = 120.0
_STOPS_WITHIN = 15.0

_ENVIRONMENT = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "1",
    # The second UI calls an outside host from the browser even so.
    "PREFECT_SERVER_UI_V2_ENABLED": "false",
    # The client would ask a server that is away for a minute, wherever it is: we wait where we
    # choose to.
    "PREFECT_CLIENT_MAX_RETRIES": "3",
    # The command says in one line what went wrong; the whole log is in the UI.
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
    "PREFECT_LOGGING_HANDLERS_DEBUG_LEVEL": "CRITICAL",
}


@dataclass(frozen=True)
class Server:
    """A server that a command of ours has started.

    Attributes
    ----------
    pid : int
    created : float
        When the process began: another one may have its number by now.
    port : int
    """

    pid: int
    created: float
    port: int

    @property
    def api(self) -> str:
        """Where it answers."""
        return _api(self.port)

    @property
    def process(self) -> psutil.Process | None:
        """Return its process while it lives."""
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(self.pid)
            if process.create_time() == self.created and process.status() != "zombie":
                return process
        return None


# What is shown while a server starts.
Waiting = Callable[[Server], AbstractContextManager[object]]


def prepare_environment(*, debug: bool) -> None:
    """Set what Prefect reads when it is imported; what the user has set stays."""
    chosen = {"PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "INFO"} if debug else {}
    for name, value in {**_ENVIRONMENT, "PREFECT_HOME": str(_folder()), **chosen}.items():
        os.environ.setdefault(name, value)
    for name in ("NO_PROXY", "no_proxy"):  # a proxy cannot reach this machine's own server
        hosts = [host for host in os.environ.get(name, "").split(",") if host]
        os.environ[name] = ",".join(dict.fromkeys([*hosts, HOST]))


def ensure_server(waiting: Waiting) -> str:
    """Return the API address of a server that answers, started if needed, and let Prefect use it.

    A server named by `PREFECT_API_URL` is used or reported, never replaced.
    """
    configured = os.environ.get("PREFECT_API_URL")
    if configured:
        if not _answers(configured):
            raise FlowError(
                f"no Prefect server answers at {configured}, which PREFECT_API_URL names (such an "
                "address ends in /api); start it, unset the variable to have one started here, "
                "or run with --plain"
            )
        return configured
    with explained(_folder()):
        _folder().mkdir(parents=True, exist_ok=True)
        with locked(_folder() / "server.lock"):
            api = _found() or _start(waiting)
    os.environ["PREFECT_API_URL"] = api
    return api


def ui_address(api: str) -> str:
    """Return the page of the server that answers at `api`."""
    parts = urlsplit(api)
    return f"{parts.scheme}://{parts.netloc}"


def started_server() -> Server | None:
    """Return the server that a command of ours has started, if it still runs."""
    with suppress(OSError, ValueError, TypeError):
        server = Server(**json.loads(_record().read_text(encoding="utf-8")))
        return server if server.process else None
    return None


def stop_server() -> Server | None:
    """Stop the server that a command of ours has started; return it, or None."""
    server = started_server()
    if server is not None:
        _terminate(server)
    with suppress(OSError):  # a home that cannot be written to has no record either
        _record().unlink(missing_ok=True)
    return server


def _folder() -> Path:
    return Path(os.environ.get("PREFECT_HOME") or home() / "prefect")


def _record() -> Path:
    return _folder() / "ism-dask-server.json"


def _log() -> Path:
    return _folder() / "ism-dask-server.log"


def _api(port: int) -> str:
    return f"http://{HOST}:{port}/api"


def _preferred_port() -> int:
    given = os.environ.get("PREFECT_SERVER_API_PORT") or str(_PORT)
    if given.isdecimal() and 0 < int(given) < 2**16:
        return int(given)
    raise FlowError(f"PREFECT_SERVER_API_PORT is {given!r}; expected a number from 1 to 65535")


def _health(api: str) -> httpx.Response | None:
    """Return what `api` replies, whatever it be, or None when nobody does."""
    try:
        return httpx.get(f"{api.rstrip('/')}/health", timeout=5.0)
    except (httpx.HTTPError, httpx.InvalidURL):
        return None


def _answers(api: str) -> bool:
    # Whatever else may listen on the port does not reply like this.
    reply = _health(api)
    return reply is not None and reply.is_success and reply.text.strip() == "true"


def _found() -> str | None:
    """Return the address of a server that runs; one of ours that hangs is put out of the way."""
    own = started_server()
    if own is not None and _answers(own.api):
        return own.api
    if own is not None:
        stop_server()
    default = _api(_preferred_port())
    return default if _answers(default) else None


def _start(waiting: Waiting) -> str:
    port = _free_port()
    command = [sys.executable, "-m", "prefect", "server", "start", "--host", HOST]
    with _log().open("wb") as log:
        # Of its own session: it stays when the command ends, and Ctrl-C is not meant for it.
        process = subprocess.Popen(  # noqa: S603 - our own interpreter and constants
            [*command, "--port", str(port)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    server = Server(process.pid, psutil.Process(process.pid).create_time(), port)
    write_synced(_record(), json.dumps(asdict(server)))
    try:
        with waiting(server):
            _await(process, server)
    except BaseException:
        stop_server()
        raise
    return server.api


def _await(process: subprocess.Popen[bytes], server: Server) -> None:
    until = time.monotonic() + _STARTS_WITHIN
    while not _answers(server.api):
        if process.poll() is not None:
            raise _not_started(f"ended with status {process.returncode}")
        if time.monotonic() > until:
            raise _not_started(f"did not answer at {server.api} within {_STARTS_WITHIN:.0f} s")
        time.sleep(0.2)


def _not_started(what: str) -> FlowError:
    lines = _log().read_text(encoding="utf-8", errors="replace").split("\n")
    tail = " | ".join([line.strip() for line in lines if line.strip()][-3:]) or "nothing"
    return FlowError(
        f"the Prefect server {what}; run with --plain to do without. The end of its log "
        f"{_log()}: {tail}"
    )


def _free_port() -> int:
    for port in (_preferred_port(), 0):
        with socket.socket() as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((HOST, port))
            return int(probe.getsockname()[1])
    raise FlowError(f"no port of {HOST} is free for a Prefect server; run with --plain")


def _terminate(server: Server) -> None:
    process = server.process
    if process is None:
        return
    family = [process, *process.children(recursive=True)]
    process.send_signal(signal.SIGTERM)
    _, alive = psutil.wait_procs(family, timeout=_STOPS_WITHIN)
    for member in alive:
        with suppress(psutil.NoSuchProcess):
            member.kill()
