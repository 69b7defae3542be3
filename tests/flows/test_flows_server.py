"""The Prefect server that commands use."""

import json
import os
import subprocess
import sys
from urllib.parse import urlsplit

import psutil
import pytest
from daskparts import ran
from serving import free_port
from support import small_disk, store_own
from waiting import SilentHandler, served

from flows.services.service import ServiceRecord, live_record, services_folder
from flows.supervisor import service, stop_all
from flows.tracking.server import check_disk, prepare_environment, without_password
from storage import StorageError, home
from storage.records import to_sealed_json


@pytest.mark.long
def test_a_server_that_does_not_come_up_says_why(apart, tmp_path, monkeypatch):
    monkeypatch.delenv("PREFECT_HOME", raising=False)
    broken = f"sqlite+aiosqlite:///{tmp_path}/absent/prefect.db"
    ended = apart("up", "--detach", "--json", PREFECT_API_DATABASE_CONNECTION_URL=broken)
    assert "prefect-server.log" in ended.failed(1)
    assert live_record("prefect-server") is None


def test_alerts_of_the_server_link_to_its_pages_and_old_runs_are_forgotten():
    code = (
        "from prefect.settings import get_current_settings as now; settings = now();"
        "vacuum = settings.server.services.db_vacuum.enabled_vacuum_types;"
        "print(settings.ui_url, *sorted(vacuum))"
    )
    done = ran(sys.executable, "-c", code, **service("prefect-server", port=4321).environment)
    assert done.stdout == "http://127.0.0.1:4321 events flow_runs orphans\n", done.stderr


def test_a_configured_server_is_never_replaced(here, monkeypatch):
    _keep_environment(monkeypatch)
    monkeypatch.setenv("PREFECT_API_URL", f"http://127.0.0.1:{free_port()}/api")
    assert "which PREFECT_API_URL names" in here("crossval", "wine").failed(1)
    assert live_record("prefect-server") is None


def test_a_stale_record_is_not_another_process():
    services_folder().mkdir(parents=True)
    record = ServiceRecord(name="prefect-server").path
    mine = {"name": "prefect-server", "pid": os.getpid(), "created": 1.0, "address": "a"}
    sealed = (to_sealed_json(mine), to_sealed_json({**mine, "pid": "1"}))
    for text in (*sealed, json.dumps(mine), "{}", "[1]", "no json"):
        record.write_text(text)
        assert live_record("prefect-server") is None
    assert stop_all() == []


def test_a_full_disk_is_named_under_prefect(tmp_path, monkeypatch):
    _keep_environment(monkeypatch)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "small" / "prefect"))
    with small_disk(tmp_path / "small", "512k"), pytest.raises(StorageError) as raised:
        check_disk()
    line = str(raised.value)
    assert f"could not write {tmp_path / 'small' / 'prefect'} (No space left on device" in line
    assert "the disk or quota is full: free some space, or use a larger disk" in line


def test_the_home_is_for_its_owner_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("ISM_DASK_HOME", str(tmp_path / "new" / "home"))
    store_own(20)
    os.umask(mask := os.umask(0))
    modes = {path: path.stat().st_mode & 0o777 for path in (tmp_path / "new", home())}
    assert modes == {tmp_path / "new": 0o777 & ~mask, home(): 0o700}


class _Healthy(SilentHandler):
    """Answers as a Prefect server does that is well."""

    def do_GET(self):
        self.answer(body=b"true")


def test_a_port_that_another_program_took_first():
    """It would get the password of the server."""
    with served(_Healthy) as address:
        server = service("prefect-server", port=urlsplit(address).port)
        assert server.is_up(psutil.Process())
        with subprocess.Popen(["sleep", "60"]) as ours:
            assert not server.is_up(psutil.Process(ours.pid))
            ours.kill()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
@pytest.mark.parametrize("name", [".env", "prefect.toml"])
def test_settings_of_another_user_are_not_read(here, monkeypatch, tmp_path, name):
    """They may name code that Prefect would run."""
    (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    prepare_environment(debug=False)
    os.chown(tmp_path / name, 65_534, 65_534)
    assert f"{tmp_path / name} belongs to another user" in here("fit", "wine").failed(1)


def test_addresses_without_their_passwords():
    files = ("s3://bucket/part@2.csv", "https://example.org/a/part@2.csv")
    for address in ("http://a/api", "", "no address", "user@example.org", *files):
        assert without_password(address) == address
    for secret in ("a:b", "a:b@c", "a:b/c", ":b", "a", "a:[b"):
        cleaned = without_password(f"at http://{secret}@host/api, and http://x:y@z/")
        assert cleaned == "at http://host/api, and http://z/"


def test_the_environment_of_the_user_wins(monkeypatch):
    _keep_environment(monkeypatch)
    monkeypatch.setenv("PREFECT_SERVER_UI_V2_ENABLED", "true")
    monkeypatch.setenv("NO_PROXY", "example.org")
    prepare_environment(debug=False)
    assert os.environ["PREFECT_SERVER_UI_V2_ENABLED"] == "true"
    assert os.environ["PREFECT_SERVER_ANALYTICS_ENABLED"] == "false"
    assert os.environ["NO_PROXY"] == "example.org,127.0.0.1"


def _keep_environment(monkeypatch):
    monkeypatch.setattr(os, "environ", os.environ.copy())
