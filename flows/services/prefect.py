"""The Prefect server on this machine: found, or started to stay for the next command."""

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
from flows.services.records import PRIVATE, recorded
from flows.services.service import Service, StartupMessages, ensure_running
from flows.services.settings import POOL
from storage import home
from storage.atomic import explain_os_errors

_PORT = 4200

_ENVIRONMENT = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "1",
    # The second UI calls an outside host from the browser even so.
    "PREFECT_SERVER_UI_V2_ENABLED": "false",
    # The client would ask a server that is away for a minute, wherever it is: we wait where we
    # choose to.
    "PREFECT_CLIENT_MAX_RETRIES": "3",
}
_AUTH = "PREFECT_API_AUTH_STRING"
# A name and a password may hold what is no part of an address; whatever they hold, they go.
_PASSWORD = re.compile(r"(?<=://)[^\s'\"]*@")
_LEVELS = ("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "PREFECT_LOGGING_HANDLERS_DEBUG_LEVEL")


@dataclass(frozen=True, kw_only=True)
class PrefectServer(Service):
    """Prefect's API, its database and its pages."""

    name = "prefect-server"
    title = "Prefect server"

    port: int | None = None

    @property
    def address(self) -> str:
        """The address of the API."""
        return _api(self.port)

    @property
    def page(self) -> str:
        """The UI."""
        return ui_address(self.address)

    def command(self) -> list[str]:
        """Return Prefect's own command."""
        return ["prefect", "server", "start", "--host", HOST, "--port", str(self.port)]

    def ready(self) -> bool:
        """Return whether the API is in good health."""
        return _answers(self.address)

    def usual_ports(self) -> Mapping[str, int]:
        """Return the port that Prefect is set to, or its default."""
        return {"port": _preferred_port()}

    def environment(self) -> Mapping[str, str]:
        """Return what keeps the server to itself."""
        # Prefect lets any page that a browser shows use the API, and so start processes.
        origins = ",".join(f"http://{host}:{self.port}" for host in HOSTS)
        return {**prefect_environment(), "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": origins}


def prefect_environment() -> dict[str, str]:
    """Return what Prefect is to find in the environment, where the user has set nothing else."""
    folder = os.environ.get("PREFECT_HOME") or str(home().absolute() / "prefect")
    return {**_ENVIRONMENT, "PREFECT_HOME": folder}


def prepare_environment(*, debug: bool) -> None:
    """Set what Prefect reads when it is imported; what the user has set stays."""
    # The command says in one line what went wrong; the whole log is in the UI.
    levels = dict.fromkeys(_LEVELS, "INFO" if debug else "CRITICAL")
    for name, value in {**prefect_environment(), **levels}.items():
        os.environ.setdefault(name, value)
    avoid_proxies()


def avoid_proxies() -> None:
    """Let the servers of this machine be asked directly: a proxy cannot reach them."""
    for name in ("NO_PROXY", "no_proxy"):
        hosts = [host for host in os.environ.get(name, "").split(",") if host]
        os.environ[name] = ",".join(dict.fromkeys([*hosts, HOST]))


def ensure_server(telling: StartupMessages) -> str:
    """Return the API address of a server that answers, started if needed, and let Prefect use it.

    A server named by `PREFECT_API_URL` is used or reported, never replaced.
    """
    folder = Path(prefect_environment()["PREFECT_HOME"])
    with explain_os_errors(
        folder
    ):  # Prefect makes no folder but the last, and warns where it cannot
        folder.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
    api = others_server() or ensure_running([PrefectServer()], telling)[0].address
    os.environ["PREFECT_API_URL"] = api
    return api


def others_server(port: int | None = None) -> str | None:
    """Return the API address of a server to use that we have not started, or None.

    It is the one that `PREFECT_API_URL` names, else one that answers where ours would.
    """
    configured = _configured()
    if not configured:
        usual = _api(port or _preferred_port())
        return usual if recorded(PrefectServer.name) is None and _answers(usual) else None
    if not _answers(configured):
        raise FlowError(
            f"no Prefect server answers at {configured}, which PREFECT_API_URL names (such an "
            "address ends in /api); start it, or unset the variable to have one started here"
        )
    return configured


def check_admitted(api: str) -> None:
    """Raise FlowError where the server wants a password that the environment has not."""
    with suppress(httpx.HTTPError):  # who needs it next says so
        reply = httpx.get(f"{api}/hello", auth=basic_auth(), timeout=20.0)
        if reply.status_code == HTTPStatus.UNAUTHORIZED:
            raise FlowError(not_admitted(api, given=basic_auth() is not None))


def not_admitted(api: str, *, given: bool) -> str:
    """Return what to say where the server wants another password than the one that was given."""
    which = "another than the one that is set" if given else "but none is set"
    return (
        f"the Prefect server at {without_password(api)} asks for a {_AUTH}, {which}; set it to "
        "the PREFECT_SERVER_API_AUTH_STRING of the server, NAME:PASSWORD"
    )


def basic_auth() -> tuple[str, str] | None:
    """Return name and password that the environment has for the server."""
    name, _, password = os.environ.get(_AUTH, "").partition(":")
    return (name, password) if name else None


def without_password(text: str) -> str:
    """Return an address, or a text with addresses, without the passwords in them."""
    return _PASSWORD.sub("", text)


def _configured() -> str | None:
    """Return the address that `PREFECT_API_URL` names; a password in it moves to its own place.

    There it goes with requests, and is never part of a link, a record or a message.
    """
    given = os.environ.get("PREFECT_API_URL")
    if given and (password := _PASSWORD.search(given)):
        os.environ[_AUTH] = unquote(password[0].removesuffix("@"))
        os.environ["PREFECT_API_URL"] = given = without_password(given)
    return given


def ui_address(api: str) -> str:
    """Return the page of the server that answers at `api`."""
    parts = urlsplit(api)
    return f"{parts.scheme}://{parts.netloc}"


def _api(port: int | None) -> str:
    return f"http://{HOST}:{port}/api"


def _preferred_port() -> int:
    given = os.environ.get("PREFECT_SERVER_API_PORT") or str(_PORT)
    if given.isdecimal() and 0 < int(given) < 2**16:
        return int(given)
    raise FlowError(f"PREFECT_SERVER_API_PORT is {given!r}; expected a number from 1 to 65535")


def _answers(api: str) -> bool:
    try:
        reply = httpx.get(f"{api.rstrip('/')}/health", timeout=5.0)
    except (httpx.HTTPError, httpx.InvalidURL):
        return False
    # Whatever else may listen on the port does not reply like this.
    return reply.is_success and reply.text.strip() == "true"


_NAME = f"ism-dask on {socket.gethostname()}"


@dataclass(frozen=True, kw_only=True)
class PrefectWorker(Service):
    """A worker of a pool of kind `process`, which it makes if there is none."""

    name = "prefect-worker"
    title = "Prefect worker"
    # A run that ends before the worker is Crashed; one that the worker ends is Running for ever.
    children_first = True

    api: str | None = None
    pool: str | None = None

    @property
    def address(self) -> str:
        """Whose runs it takes."""
        return str(self.pool)

    def command(self) -> list[str]:
        """Return Prefect's own command."""
        pool = ["--pool", self.address, "--type", "process", "--name", _NAME]
        return ["prefect", "worker", "start", *pool, "--install-policy", "never"]

    def ready(self) -> bool:
        """Return whether the server has heard of it since it began."""
        record = recorded(self.name)
        process = record.process if record else None
        heard = [each["last_heartbeat_time"] for each in self._known() if each["name"] == _NAME]
        return process is not None and any(_since(time) > process.create_time() for time in heard)

    def settled(self, ports: Ports) -> Self:
        """Return the worker of the usual pool, if no other was asked for."""
        return replace(super().settled(ports), pool=self.pool or POOL)

    def environment(self) -> Mapping[str, str]:
        """Return what leads its runs to the server, and their log into its own."""
        return {**prefect_environment(), "PREFECT_API_URL": str(self.api)}

    def _known(self) -> list[dict[str, str]]:
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


def _since(time: str) -> float:
    return datetime.fromisoformat(time).astimezone(UTC).timestamp()
