"""The services of Prefect: its server, found or started on this machine, and a worker."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Self
from urllib.parse import unquote, urlsplit

import httpx

from flows.errors import FlowError
from flows.services.ports import HOST, HOSTS, Ports
from flows.services.records import PRIVATE, live_record
from flows.services.service import Service, StartupMessages, ensure_running
from flows.services.settings import POOL
from storage import home
from storage.atomic import explain_os_errors

_DEFAULT_PORT = 4200

_ENVIRONMENT = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "1",
    # The second UI calls an outside host from the browser even so: it is not the default then, but
    # Prefect's pages still link to it.
    "PREFECT_SERVER_UI_V2_ENABLED": "false",
    # By default every call of the client retries for a minute if the server is away. We choose
    # ourselves which calls wait.
    "PREFECT_CLIENT_MAX_RETRIES": "3",
}
_LEASES_ON_DISK = "prefect.server.concurrency.lease_storage.filesystem"
_AUTH_VARIABLE = "PREFECT_API_AUTH_STRING"
# Name and password may contain characters that are not allowed in an address, so the pattern
# accepts any.
_PASSWORD = re.compile(r"(?<=://)[^\s'\"]*@")
_LEVEL_VARIABLES = (
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL",
    "PREFECT_LOGGING_HANDLERS_DEBUG_LEVEL",
)


@dataclass(frozen=True, kw_only=True)
class PrefectServer(Service):
    """The Prefect server: API, database and UI."""

    name = "prefect-server"
    title = "Prefect server"

    port: int | None = None

    @property
    def address(self) -> str:
        """Return the address of the API."""
        return _api_address(self.port)

    @property
    def page(self) -> str:
        """Return the address of the UI."""
        return ui_address(self.address)

    def command(self) -> list[str]:
        """Return Prefect's command that starts a server."""
        return ["prefect", "server", "start", "--host", HOST, "--port", str(self.port)]

    def ready(self) -> bool:
        """Return whether the API reports that it is healthy."""
        return _is_healthy(self.address)

    def usual_ports(self) -> Mapping[str, int]:
        """Return the port in Prefect's environment variable, or its default."""
        return {"port": _preferred_port()}

    def with_defaults(self, ports: Ports) -> Self:
        """Return the server with a port; say how to use another server that has the usual one."""
        chosen, usual = super().with_defaults(ports), _api_address(_preferred_port())
        if chosen.address != usual and self.port is None and _is_healthy(usual):
            ports.tell(f"a Prefect server answers there; to use that, set PREFECT_API_URL={usual}")
        return chosen

    def environment(self) -> Mapping[str, str]:
        """Return our settings of Prefect, and let only pages of this server use the API."""
        return {
            **prefect_environment(),
            # By default any page that a browser shows may use the API, and so start processes.
            "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": ",".join(
                f"http://{host}:{self.port}" for host in HOSTS
            ),
            # By default the UI calls port 4200, whatever the port of the server.
            "PREFECT_SERVER_UI_API_URL": self.address,
            # By default a server that is restarted has forgotten the leases of limits that users
            # set, and Prefect ends each run whose lease is lost.
            "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": _LEASES_ON_DISK,
        }


def prefect_environment() -> dict[str, str]:
    """Return environment variables for Prefect, for those that the user has not set."""
    folder = os.environ.get("PREFECT_HOME") or str(home().absolute() / "prefect")
    return {**_ENVIRONMENT, "PREFECT_HOME": folder}


def prepare_environment(*, debug: bool) -> None:
    """Set the environment variables that Prefect reads when it is imported; keep the user's."""
    # The command reports an error in one line; the whole log is in the UI.
    levels = dict.fromkeys(_LEVEL_VARIABLES, "INFO" if debug else "CRITICAL")
    for name, value in {**prefect_environment(), **levels}.items():
        os.environ.setdefault(name, value)
    avoid_proxies()


def avoid_proxies() -> None:
    """Exempt the servers of this machine from proxies, which cannot reach them."""
    for name in ("NO_PROXY", "no_proxy"):
        hosts = [host for host in os.environ.get(name, "").split(",") if host]
        os.environ[name] = ",".join(dict.fromkeys([*hosts, HOST]))


def ensure_server(telling: StartupMessages) -> str:
    """Find or start a Prefect server, let Prefect use it, and return the address of its API.

    If `PREFECT_API_URL` names a server, use that one or raise FlowError; never start another.
    """
    folder = Path(prefect_environment()["PREFECT_HOME"])
    # Prefect itself would not make parent folders, and would only warn if it cannot make its own.
    with explain_os_errors(folder):
        folder.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
    api = external_api_address() or ensure_running([PrefectServer()], telling)[0].address
    os.environ["PREFECT_API_URL"] = api
    return api


def external_api_address() -> str | None:
    """Return the API address of the server that `PREFECT_API_URL` names, or None.

    No other server than that is used unless we started it: deployments and runs do not go into the
    database of another program that answers on the port.
    """
    configured = _configured_api()
    # It may be busy, and nothing else can be used in its place.
    if configured and not _is_healthy(configured, seconds=20.0):
        raise FlowError(
            f"no Prefect server answers at {configured}, which PREFECT_API_URL names (such an "
            "address ends in /api); start it, or unset the variable to have one started here"
        )
    return configured


def check_password(api: str) -> None:
    """Raise FlowError if the server demands a password other than that of the environment."""
    with suppress(httpx.HTTPError):  # the next call to the server reports that it is away
        reply = httpx.get(f"{api}/hello", auth=basic_auth(), timeout=20.0)
        if reply.status_code == HTTPStatus.UNAUTHORIZED:
            raise FlowError(password_message(api, given=basic_auth() is not None))


def password_message(api: str, *, given: bool) -> str:
    """Return the message for a missing password, or for a wrong one if one was `given`."""
    which = "another than the one that is set" if given else "but none is set"
    return (
        f"the Prefect server at {without_password(api)} asks for a {_AUTH_VARIABLE}, {which}; "
        "set it to the PREFECT_SERVER_API_AUTH_STRING of the server, NAME:PASSWORD"
    )


def basic_auth() -> tuple[str, str] | None:
    """Return name and password for the server from the environment, or None."""
    name, _, password = os.environ.get(_AUTH_VARIABLE, "").partition(":")
    return (name, password) if name else None


def without_password(text: str) -> str:
    """Return an address, or a text with addresses, without names and passwords in them."""
    return _PASSWORD.sub("", text)


def _configured_api() -> str | None:
    """Return the address in `PREFECT_API_URL`, and move a password in it to its own variable.

    From there it goes with requests, and never becomes part of a link, a record or a message.
    """
    url = os.environ.get("PREFECT_API_URL")
    if url and (password := _PASSWORD.search(url)):
        os.environ[_AUTH_VARIABLE] = unquote(password[0].removesuffix("@"))
        os.environ["PREFECT_API_URL"] = url = without_password(url)
    return url


def ui_address(api: str) -> str:
    """Return the address of the UI of the server whose API is at `api`."""
    parts = urlsplit(api)
    return f"{parts.scheme}://{parts.netloc}"


def _api_address(port: int | None) -> str:
    return f"http://{HOST}:{port}/api"


def _preferred_port() -> int:
    port = os.environ.get("PREFECT_SERVER_API_PORT") or str(_DEFAULT_PORT)
    if port.isdecimal() and 0 < int(port) < 2**16:
        return int(port)
    raise FlowError(f"PREFECT_SERVER_API_PORT is {port!r}; expected a number from 1 to 65535")


def _is_healthy(api: str, seconds: float = 5.0) -> bool:
    try:
        reply = httpx.get(f"{api.rstrip('/')}/health", timeout=seconds)
    except (httpx.HTTPError, httpx.InvalidURL):
        return False
    # Another program that listens on the port would not reply like this.
    return reply.is_success and reply.text.strip() == "true"


_WORKER_NAME = f"ism-dask on {socket.gethostname()}"


@dataclass(frozen=True, kw_only=True)
class PrefectWorker(Service):
    """A Prefect worker of a work pool of type `process`, which it creates if there is none."""

    name = "prefect-worker"
    title = "Prefect worker"
    # If a flow run ends before its worker, the worker marks it as Crashed. If the worker ends
    # first, the run stays Running for ever.
    children_first = True
    # Flow runs need no worker to go on, and report their end themselves.
    children_go_on = True

    api: str | None = None
    pool: str | None = None

    @property
    def address(self) -> str:
        """Return the name of the work pool whose flow runs it starts."""
        return str(self.pool)

    def command(self) -> list[str]:
        """Return Prefect's command that starts a worker."""
        pool = ["--pool", self.address, "--type", "process", "--name", _WORKER_NAME]
        return ["prefect", "worker", "start", *pool, "--install-policy", "never"]

    def ready(self) -> bool:
        """Return whether the server has had a heartbeat of the worker since its start."""
        record = live_record(self.name)
        process = record.process if record else None
        beats = [
            each["last_heartbeat_time"]
            for each in self._registered_workers()
            if each["name"] == _WORKER_NAME
        ]
        return process is not None and any(
            _timestamp(time) > process.create_time() for time in beats
        )

    def with_defaults(self, ports: Ports) -> Self:
        """Return the worker with a work pool: its own, or the default pool."""
        return replace(super().with_defaults(ports), pool=self.pool or POOL)

    def environment(self) -> Mapping[str, str]:
        """Return our settings of Prefect, and the address of the server for its flow runs."""
        return {
            **prefect_environment(),
            "PREFECT_API_URL": str(self.api),
            # With each call tried for four minutes, the worker lives through an hour without its
            # server. Else it would give up within ten minutes, and end its flow runs.
            "PREFECT_CLIENT_MAX_RETRIES": "7",
        }

    def _registered_workers(self) -> list[dict[str, str]]:
        try:
            reply = httpx.post(
                f"{self.api}/work_pools/{self.pool}/workers/filter",
                json={},
                auth=basic_auth(),
                timeout=5.0,
            )
            return list(reply.json()) if reply.is_success else []
        except (httpx.HTTPError, ValueError):
            return []


def _timestamp(time: str) -> float:
    return datetime.fromisoformat(time).astimezone(UTC).timestamp()
