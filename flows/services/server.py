"""The Prefect server on this machine: found, or started to stay for the next command."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx

from flows.errors import FlowError
from flows.services.ports import HOST
from flows.services.records import recorded
from flows.services.service import Service, Telling, ensure
from storage import home

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
        return prefect_environment()


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
    for name in ("NO_PROXY", "no_proxy"):  # a proxy cannot reach this machine's own server
        hosts = [host for host in os.environ.get(name, "").split(",") if host]
        os.environ[name] = ",".join(dict.fromkeys([*hosts, HOST]))


def ensure_server(telling: Telling) -> str:
    """Return the API address of a server that answers, started if needed, and let Prefect use it.

    A server named by `PREFECT_API_URL` is used or reported, never replaced.
    """
    api = others_server() or ensure([PrefectServer()], telling)[0].address
    os.environ["PREFECT_API_URL"] = api
    return api


def others_server(port: int | None = None) -> str | None:
    """Return the API address of a server to use that we have not started, or None.

    It is the one that `PREFECT_API_URL` names, else one that answers where ours would.
    """
    configured = os.environ.get("PREFECT_API_URL")
    if not configured:
        usual = _api(port or _preferred_port())
        return usual if recorded(PrefectServer.name) is None and _answers(usual) else None
    if not _answers(configured):
        raise FlowError(
            f"no Prefect server answers at {configured}, which PREFECT_API_URL names (such an "
            "address ends in /api); start it, or unset the variable to have one started here"
        )
    return configured


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
