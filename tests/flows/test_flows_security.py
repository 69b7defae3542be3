"""Passwords: told to nobody; and what pages of elsewhere may not do."""

import asyncio
import base64
import tempfile
from pathlib import Path

import httpx
import pytest
from serving import answer_of, ended, home_for_up, own_ports, start_up
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.websocket import websocket_connect
from waiting import ask

from flows.services.service import TEMPORARY, service_processes, services_folder
from flows.tracking.server import prefect_environment
from storage import home

# All of `up`, with a password, takes a minute: `make long`.
pytestmark = pytest.mark.chaos

NAME, PASSWORD = "ism", "never/to@be:seen77"
AUTH = f"{NAME}:{PASSWORD}"
# As it may stand in a file: bare, encoded in an address, or in the header of a request.
FORMS = (PASSWORD, "never%2Fto%40be%3Aseen77", base64.b64encode(AUTH.encode()).decode())
REQUEST = "PREFECT_SERVER_API_AUTH_STRING"
GIVEN = "PREFECT_API_AUTH_STRING"
PREFECT = (REQUEST, GIVEN)


@pytest.fixture(scope="module")
def started(tmp_path_factory, prefect_home):
    """Keep all services up, with a password."""
    folder = tmp_path_factory.mktemp("home")
    with home_for_up(folder, prefect_home) as patch:
        for name in PREFECT:
            patch.setenv(name, AUTH)
        with ended(start_up("--workers", 1, "--memory", "500MB", *own_ports())) as up:
            yield up


@pytest.fixture
def up(started, monkeypatch):
    """Look at what is up from the same home, with the same password."""
    for name in ("ISM_DASK_HOME", *PREFECT):
        monkeypatch.setenv(name, started.environment[name])
    monkeypatch.setenv("PREFECT_API_URL", started.api)
    return started


def test_a_run_with_the_password_tells_nobody(up, apart):
    ended = apart("crossval", "wine", "-q", 2, "--folds", 3, "--scheduler", "up", "--debug")
    assert ended.status == 0, ended
    assert "accuracy" in ended.out
    assert (home() / "flow-runs").stat().st_mode & 0o777 == 0o700
    shown = [ended.out, ended.err, *_known(up.api)]
    shown += [" ".join(process.cmdline()) for process in up.members]
    assert apart("report", "wine-gaussian-q2-crossval").status == 0
    _assert_untold(*shown)


def test_a_wrong_or_missing_password_is_one_line(up, apart):
    for given in ("", "ism:wrong77"):
        line = apart("crossval", "wine", **{GIVEN: given}).failed(1)
        assert f"{up.api} does not take the {GIVEN} that is set, or wants one" in line
        assert "wrong77" not in line


@pytest.mark.parametrize("password", ["never%2Fto%40be%3Aseen77", "wrong77"])
def test_a_password_in_an_address_is_used_and_never_shown(up, apart, here, monkeypatch, password):
    address = up.api.replace("//", f"//{NAME}:{password}@")
    ended = apart("fit", "wine", "--debug", "--force", **_only(address))
    right = password in FORMS
    assert ended.status == int(not right), ended
    assert "run: http://127.0.0.1:" in ended.out or not right
    _assert_untold(ended.out, ended.err, *_known(up.api))
    for name, value in _only(f"http://{NAME}:{password}@127.0.0.1:9/api").items():
        monkeypatch.setenv(name, value)
    away = here("fit", "wine").failed(1)
    assert "no Prefect server answers at http://127.0.0.1:9/api" in away
    _assert_untold(away)


def test_pages_of_elsewhere_cannot_use_what_listens_here(up):
    api, dashboard = up.api, httpx.URL(up.where("dask-scheduler")["page"])
    own = [api.removesuffix("/api"), api.removesuffix("/api").replace("127.0.0.1", "localhost")]
    for origin in ("http://example.org", "http://127.0.0.1:1", "null", *own):
        asked = {"Origin": origin, "Access-Control-Request-Method": "POST"}
        allowed = ask("OPTIONS", f"{api}/deployments/", headers=asked).headers
        expected = origin if origin in own else None
        assert allowed.get("access-control-allow-origin") == expected
    # Without a type of content, a browser sends it and asks nobody.
    blind = ask("POST", f"{api}/flows/", content=b'{"name": "evil"}', auth=(NAME, PASSWORD))
    assert blind.status_code == httpx.codes.FORBIDDEN
    ours = f"http://localhost:{dashboard.port}"
    for origin in (f"http://example.org:{dashboard.port}", "http://127.0.0.1:1", ours):
        assert asyncio.run(_opened(dashboard, origin)) is (origin == ours)


async def _opened(dashboard, origin):
    """Say whether a page of that origin may open a websocket to the dashboard."""
    socket = f"ws://{dashboard.host}:{dashboard.port}/status/ws"
    try:
        with_origin = HTTPRequest(socket, headers={"Origin": origin})
        (await websocket_connect(with_origin, subprotocols=["bokeh"])).close()
    except HTTPClientError as refused:
        return refused.code != 403
    return True


def test_a_folder_of_temporary_files_that_another_user_made(up, here, monkeypatch, tmp_path):
    """Dask imports from there before all else, and Prefect stores runs there."""
    planted = tmp_path / "dask-scratch-space"
    planted.mkdir(mode=0o777)
    (planted / "ism_dask.py").write_text("raise SystemExit('planted')")
    (tmp_path / "multiprocessing.py").write_text("raise SystemExit('planted')")
    file = tmp_path / "local.toml"
    file.write_text('cluster = "distributed.LocalCluster"\nworkers = 1\n')
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert here("crossval", "wine", "--plain", "--first", 1, "--cluster", file).status == 0
    own = services_folder() / TEMPORARY
    assert {each.stat().st_mode & 0o777 for each in (own, services_folder())} == {0o700}
    for each in service_processes():
        assert each.environ()["TMPDIR"] == str(own)
    assert (own / "dask-scratch-space").is_dir()


def _only(address):
    """Return an environment in which the address has the password, and nothing else."""
    return {"PREFECT_API_URL": address, GIVEN: "", REQUEST: ""}


def _known(api):
    """Return what the server knows of all runs."""
    kinds = ("flow_runs", "task_runs", "artifacts", "logs", "work_pools", "deployments")
    more = {"json": {}, "auth": (NAME, PASSWORD)}
    heard = [answer_of(api, "POST", f"{kind}/filter", **more) for kind in kinds]
    assert all(each.is_success for each in heard)
    return [each.text for each in heard]


def _assert_untold(*texts):
    """Fail where a secret is in a text, or in any file of the home."""
    folders = {home(), Path(prefect_environment()["PREFECT_HOME"])}
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    assert len(files) > 10
    for secret in (*FORMS, "wrong77"):
        assert not [text for text in texts if secret in text]
        assert not [path for path in files if secret.encode() in path.read_bytes()]
