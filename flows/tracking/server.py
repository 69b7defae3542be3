"""The server of Prefect that commands use: its address, its password and its environment.

This module does not import Prefect, which takes a second and much memory.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from tempfile import TemporaryFile
from urllib.parse import unquote

from flows.errors import FlowError
from flows.services.service import HOST, answers, live_record
from storage import home
from storage.atomic import explain_os_errors, make_folder

# Names of both among the services.
SERVER, REPORTS = "prefect-server", "reports"
# A server needs more than this for the records of one run.
_PROBE_BYTES = 2**20

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
# Files of settings that Prefect reads from the folder in which it is imported.
_SETTINGS_FILES = (".env", "prefect.toml", "pyproject.toml")
_AUTH_VARIABLE = "PREFECT_API_AUTH_STRING"
# Name and password: all up to the last @ before the first slash. After a colon the password may
# contain slashes, though these are not allowed in an address.
_PASSWORD = re.compile(r"(?<=://)(?:[^\s'\"/]*@|[^\s'\"/:@]*:[^\s'\"]*@)")
_LEVEL_VARIABLES = (
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL",
    "PREFECT_LOGGING_HANDLERS_DEBUG_LEVEL",
)


def report_url(run: str) -> str:
    """Return the address of the report of a run on the report server, empty if none runs."""
    server = live_record(REPORTS)
    return f"{server.address}/runs/{run}.html" if server else ""


def prefect_environment() -> dict[str, str]:
    """Return environment variables for Prefect, for those that the user has not set."""
    folder = os.environ.get("PREFECT_HOME") or str(home().absolute() / "prefect")
    return {**_ENVIRONMENT, "PREFECT_HOME": folder}


def prepare_environment(*, debug: bool) -> None:
    """Set the environment variables that Prefect reads when it is imported; keep the user's.

    Raise FlowError if it would read settings of another user, too: they may name code to run.
    """
    for path in map(Path, _SETTINGS_FILES):
        if path.exists() and path.stat().st_uid not in (0, os.getuid()):
            raise FlowError(
                f"{path.absolute()} belongs to another user, and Prefect would read its settings "
                "from there; start the command in a folder of your own"
            )
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


def find_server() -> str | None:
    """Return the address of the API of the Prefect server, which Prefect then uses, or None.

    It is the server that `PREFECT_API_URL` names, else the one of `ism-dask up`.
    """
    record = live_record(SERVER)
    api = external_api_address() or (record.address if record else None)
    if api is not None:
        check_disk()
        os.environ["PREFECT_API_URL"] = api
    return api


def check_disk() -> None:
    """Raise StorageError if Prefect cannot write to its home, whose own errors do not say so."""
    folder = Path(prefect_environment()["PREFECT_HOME"]).expanduser()
    with explain_os_errors(folder):
        make_folder(folder, private=True)
        with TemporaryFile(dir=folder) as probe:
            probe.write(bytes(_PROBE_BYTES))
            probe.flush()


def external_api_address() -> str | None:
    """Return the API address of the server that `PREFECT_API_URL` names, or None.

    No other server than that is used unless we started it: deployments and runs do not go into the
    database of another program that answers on the port.
    """
    configured = os.environ.get("PREFECT_API_URL")
    if configured and (password := _PASSWORD.search(configured)):
        # In a variable of its own it goes with requests, and never becomes part of a link, a record
        # or a message.
        os.environ[_AUTH_VARIABLE] = unquote(password[0].removesuffix("@"))
        os.environ["PREFECT_API_URL"] = configured = without_password(configured)
    # It may be busy, and nothing else can be used in its place.
    if configured and not answers(f"{configured.rstrip('/')}/health", "^true$", timeout=20.0):
        raise FlowError(
            f"no Prefect server answers at {configured}, which PREFECT_API_URL names (such an "
            "address ends in /api); start it, or unset the variable"
        )
    return configured


def basic_auth() -> tuple[str, str] | None:
    """Return name and password for the server from the environment, or None."""
    name, _, password = os.environ.get(_AUTH_VARIABLE, "").partition(":")
    return (name, password) if name else None


def without_password(text: str) -> str:
    """Return an address, or a text with addresses, without names and passwords in them."""
    return _PASSWORD.sub("", text)
