"""What `ism-dask up` keeps up: it answers, on this machine only, and ends without a trace."""

import re
import shlex
import signal
import socket
import sqlite3
import ssl
import sys
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import psutil
import pytest
from daskparts import ran
from distributed import Client
from prefect.settings import PREFECT_API_URL, temporary_settings
from serving import answer_of, begun, flow_run_of, heard, listened, running, start_up
from support import EXACT, exact_fit
from waiting import answers, ask, wait

from flows import supervisor
from flows.compute.session import Session
from flows.errors import FlowError
from flows.runs.fit import run_fit
from flows.services.liveness import is_running
from flows.services.service import (
    free_port,
    launch_process,
    live_record,
    service_processes,
    services_folder,
    services_lock,
    start_services,
    stop_processes,
)
from flows.settings.base import PORTS, ServiceSettings
from flows.settings.runs import FitSettings
from flows.supervisor import _choose_ports, service_records, stop_all
from flows.tracking.server import REPORTS, check_disk, report_url
from storage import load_model

ROOT = Path(__file__).parents[2]
SERVICES = ("prefect-server", "reports", "dask-scheduler", "dask-workers", "prefect-worker")


@pytest.fixture(scope="module")
def nightly(_started_up):
    """Deploy as `make deploy` does; return the deployment."""
    file = ROOT / "deploy/prefect.yaml"
    words = ("-m", "prefect", "--no-prompt", "deploy", "--all", "--prefect-file", file)
    # The form knows the data sets of this home.
    home = _started_up.environment["ISM_DASK_HOME"]
    known = {"PREFECT_API_URL": _started_up.api, "ISM_DASK_HOME": home}
    ran(sys.executable, *words, **known).check_returncode()
    return _started_up.deployment("fit/nightly-mnist")


def test_a_home_of_the_user_is_the_same_for_services_and_commands(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("ISM_DASK_HOME", "PREFECT_HOME"):
        monkeypatch.setenv(name, "~/own")
    process = launch_process(["http.server", "0"], "test", {})
    wait(lambda: "ISM_DASK_HOME" in process.environ())
    told = process.environ()
    stop_processes({process})
    process.wait()
    assert {told["ISM_DASK_HOME"], told["PREFECT_HOME"]} == {str(tmp_path / "own")}
    monkeypatch.chdir(tmp_path)
    check_disk()
    assert not (tmp_path / "~").exists()


@pytest.mark.long
def test_a_run_that_is_deployed_is_done_and_a_wrong_one_refused(up, nightly):
    assert nightly["description"].endswith("UTC.")
    assert nightly["schedules"][0]["schedule"]["timezone"] == "UTC"
    settings = FitSettings.parse(nightly["parameters"]["settings"])
    assert (settings.dataset, settings.criterion) == ("mnist", "dependence")
    sent = {"parameters": {"settings": {"dataset": "wine", "n_components": "many"}}}
    begun = f"deployments/{nightly['id']}/create_flow_run"
    refused = answer_of(up.api, "POST", begun, json=sent)
    assert (refused.status_code, "n_components" in refused.text) == (409, True)
    wine = FitSettings(dataset="wine", sigma="median", run="soon", scheduler=settings.scheduler)
    run = up.begin(nightly["id"], wine)
    wait(lambda: up.run(run)["state_type"] == "COMPLETED")
    run_fit(FitSettings(dataset="wine", sigma="median", run="plain"))
    assert np.array_equal(load_model("soon").components, load_model("plain").components)


def test_all_answer_where_they_say(up):
    assert [each.to_json() for each in service_records()] == up.answer["services"]
    assert [each["name"] for each in up.answer["services"]] == ["up", *SERVICES]
    assert up.where("prefect-server")["address"] == up.api
    for link in (up.ui, up.where("dask-scheduler")["page"], up.where("reports")["page"]):
        reply = ask("GET", link, headers={"Accept": "text/html"}, follow_redirects=True)
        assert (reply.status_code, "<html" in reply.text) == (200, True)
    name = up.where("prefect-worker")["address"]
    pool = ask("GET", f"{up.api}/work_pools/{name}").json()
    assert (name, pool["type"], pool["status"]) == ("local-process", "process", "READY")
    with Client(up.where("dask-scheduler")["address"]) as client:
        workers = client.scheduler_info(n_workers=-1)["workers"].values()
        sizes = [(worker["nthreads"], worker["memory_limit"]) for worker in workers]
        assert sizes == [(1, 500_000_000)] * 2
        # Tasks that no worker takes are not to wait for ever.
        assert client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.no_workers_timeout)


def test_all_listen_on_this_machine_only(up):
    found = {(process.name(), address) for process in up.members for address in heard(process)}
    assert len(found) >= 5
    assert {address[0] for _, address in found} <= {"127.0.0.1", "::1"}


def test_another_up_says_where_all_is(up, here):
    assert "runs here already: see `ism-dask up --status`" in here("up", "--json").failed(1)
    assert here("up", "--detach", "--workers", 3, "--json").answer == up.answer
    listed = here("up", "--status")
    assert all(name in listed.out for name in SERVICES)
    assert here("up", "--status", "--json").answer == up.answer
    assert up.process.poll() is None


@pytest.mark.long
def test_a_run_has_its_page_on_the_report_server(up, apart):
    assert apart("fit", "wine", "--quiet", "--run", "shown").status == 0
    assert '<a href="runs/shown.html">shown</a>' in ask("GET", up.where("reports")["page"]).text
    page = ask("GET", report_url("shown"))
    assert (page.status_code, "shown" in page.text) == (200, True)


@pytest.mark.long
def test_the_demo_has_ism_and_prediction_side_by_side_on_a_cluster(here, up, monkeypatch):
    monkeypatch.chdir(ROOT)
    recipe = re.search(r"^demo: .*\n((?:\t.*\n)+)", Path("Makefile").read_text(), re.M)[1]
    assert "ism-dask up --detach --workers 2 " in recipe
    (command,) = re.findall(r"ism-dask (crossval .+?) \\$", recipe, re.M)
    assert command.endswith(" --scheduler up")
    tasks, workers, close = {}, [], Session.close

    def counted(session):
        def counts(dask_scheduler):
            prefixes = dask_scheduler.task_prefixes.items()
            return {name: prefix.state_counts["memory"] for name, prefix in prefixes}

        tasks.update(session.client.run_on_scheduler(counts))
        workers.extend(session.client.run(lambda dask_worker: dask_worker.nanny))
        close(session)

    monkeypatch.setattr(Session, "close", counted)
    # Another test of this process may have imported Prefect, which then knows another server.
    with temporary_settings({PREFECT_API_URL: up.api}):
        ended = here(*shlex.split(command))
    assert (ended.status, ended.err) == (0, "")
    assert ended.out.startswith(f"run: {up.ui}/runs/flow-run/")
    rows = re.findall(r"^ ([A-Za-z ]+?)  .*  (\d\.\d{4}) *$", ended.out, re.MULTILINE)
    accuracies = {name: float(accuracy) for name, accuracy in rows}
    assert list(accuracies)[:3] == ["ISM", "prediction", "PCA"]
    assert {"LDA", "chance"} < set(accuracies)
    assert min(accuracies["ISM"], accuracies["prediction"]) > 0.95
    assert accuracies["chance"] < 0.5
    assert "One row of 178 is 0.0056 of the accuracy" in ended.words
    assert len(workers) == 2
    # In each fold, workers compute J and Phi of the training rows once for each iteration of ISM.
    assert tasks["phi_of_all_pairs"] >= 20, tasks


def test_prefects_pages_work_on_any_port(up, browser):
    """They ask their own server, not the one that would be at the usual port."""
    up.deployed("of-a-page")
    address = urlsplit(up.ui)
    assert address.port != 4200

    def look(page):
        page.get_by_text("of-a-page").first.wait_for(timeout=60_000)

    visit = browser(f"{up.ui}/deployments", look)
    hosts = {urlsplit(each).netloc for each in visit.requests if each.startswith("http")}
    assert hosts == {address.netloc}


@pytest.mark.long
def test_a_command_that_is_killed_is_reported(up):
    """By `up`, without another command."""
    long = ("fit", "own", *EXACT, "--tol", "1e-12", "--run", "killed")
    with running(*long) as command:
        run = flow_run_of(command)
        wait(lambda: up.run(run)["state_type"] == "RUNNING")
        command.kill()
    state = wait(lambda: (now := up.run(run)["state"])["type"] == "CRASHED" and now)
    assert f"Its process {command.pid} ended without a word" in state["message"]


@pytest.mark.chaos
def test_whatever_is_killed_is_ended(up, tmp_path, monkeypatch, apart, here):
    monkeypatch.setenv("ISM_DASK_HOME", str(tmp_path))
    monkeypatch.setenv("PREFECT_API_URL", up.api)
    try:
        first = apart("up", "--detach", "--workers", 1, "--pool", "other", "--json")
        assert (first.status, first.err) == (0, "")
        orphans = {each["name"]: each["pid"] for each in first.answer["services"]}
        assert tuple(orphans) == ("up", *SERVICES[1:])
        psutil.Process(orphans.pop("up")).kill()
        listed = here("up", "--status", "--json").answer["services"]
        assert {each["name"]: each["pid"] for each in listed} == orphans
        assert "leave out --port" in here("up", "--port", 4300, "--json").failed(2)
        second = start_up()
        assert not [pid for pid in orphans.values() if psutil.pid_exists(pid)]
        assert (second.ui, second.api) == (up.ui, up.api)
        assert here("up", "--stop", "--json").answer["stopped"] == second.answer["services"]
        _gone(second)
        assert second.process.returncode == 0

        third = begun("up")
        # A process that is killed while it writes a record leaves what it has written.
        wait(lambda: all(map(live_record, orphans)))
        third.kill()
        assert here("up", "--stop").out.startswith("ended: ")
        third.communicate()
        assert _left() == (set(), {".json", ".log"})
        assert answers(up.ui)  # whose server was but found
    finally:
        stop_all()


def test_who_hangs_up_while_it_starts_leaves_nothing(up, tmp_path, monkeypatch):
    monkeypatch.setenv("ISM_DASK_HOME", str(tmp_path))
    monkeypatch.setenv("PREFECT_API_URL", up.api)
    process = begun("up")
    wait(lambda: live_record("dask-scheduler"))
    process.send_signal(signal.SIGHUP)
    assert process.communicate()[1] == "ism-dask: interrupted\n"
    assert process.returncode == 130
    assert _left() == (set(), {".json", ".log"})


def test_a_look_at_a_service_loads_no_certificates(tmp_path, monkeypatch):
    """Each time they would take 50 ms, and some memory for good."""
    reports = supervisor.service(REPORTS, report_port=free_port(0), reports=tmp_path)
    with services_lock():
        start_services([reports])
    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", None)  # a call of it fails
    try:
        assert reports.is_well()
    finally:
        stop_processes({reports.process})
        reports.process.wait()


def test_a_service_starts_once_the_one_that_it_needs_works(tmp_path, monkeypatch):
    ports = [free_port(0), free_port(0)]
    later, first = (supervisor.service(REPORTS, report_port=p, reports=tmp_path) for p in ports)
    later.name, later.needs = "later", REPORTS
    launch, worked = launch_process, {}

    def launched(command, name, environment):
        worked[name] = answers(first.probe)
        return launch(command, name, environment)

    monkeypatch.setattr("flows.services.service.launch_process", launched)
    with services_lock():
        start_services([later, first])
    stop_all()
    for each in (first, later):
        each.process.wait()
    assert worked == {REPORTS: False, "later": True}


@pytest.mark.long
def test_what_dies_ends_all_of_it_with_an_error(up, tmp_path, monkeypatch, here):
    monkeypatch.setenv("ISM_DASK_HOME", str(tmp_path))
    monkeypatch.setenv("PREFECT_API_URL", up.api)
    own = start_up("--workers", 1)
    pids = {each["name"]: each["pid"] for each in own.answer["services"]}
    psutil.Process(pids["reports"]).kill()
    _, err = own.process.communicate(timeout=100)
    assert own.process.returncode == 1
    assert err.startswith("ism-dask: the report server has ended, so all else was ended; the end")
    assert _left() == (set(), {".json", ".log"})


@pytest.mark.long
def test_ctrl_c_ends_all_of_it_and_the_runs_too(up, nightly):
    run = up.begin(nightly["id"], exact_fit("long"))
    wait(lambda: up.run(run)["state_type"] == "RUNNING")
    members = up.members
    ports = {address[1] for process in members for address in heard(process)}
    up.process.send_signal(signal.SIGINT)
    _gone(up)
    assert up.process.returncode == 0
    assert not [process for process in members if is_running(process)]
    assert not [port for port in ports if listened(port)]
    database = Path(up.environment["ISM_DASK_HOME"]) / "prefect" / "prefect.db"
    with closing(sqlite3.connect(database)) as connection:
        states = dict(connection.execute("select replace(id, '-', ''), state_type from flow_run"))
    # Cancelled, where a run takes so long to end that its worker hears of it, too.
    assert states[run.replace("-", "")] in {"CRASHED", "CANCELLED"}
    assert service_records() == []
    assert report_url("soon") == ""


def test_a_service_that_hangs_or_has_ended_is_given_up(monkeypatch):
    for name, seconds in (("_START_SECONDS", 0.0), ("_SILENT_SECONDS", 0.1)):
        monkeypatch.setattr(f"flows.services.service.{name}", seconds)
    hanging = supervisor.service("reports", report_port=1, reports=services_folder())
    hanging.command = ["http.server", "0"]
    with pytest.raises(FlowError, match=r"has not answered for 0 s.*reports\.log"):
        start_services([hanging])
    stop_all()
    hanging.process.wait()
    # Its page may answer: Prefect's server speaks well of a worker for a minute after its end.
    monkeypatch.setattr(hanging, "is_up", lambda _: True)
    with pytest.raises(FlowError, match="the report server has ended, so all else was ended"):
        hanging.is_well()


def test_ports_in_use(here, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setitem(PORTS, "report_port", ("page server", port))
        free = _choose_ports(ServiceSettings(), ["report_port"])["report_port"]
        assert free != port
        # With `--json` nothing else is printed, such as which other ports are in use.
        refused = here("up", "--report-port", port, "--json").failed(1)
        assert f"the port {port} that you named for the page server is in use" in refused
        assert service_processes() == set()
    # One that is given goes before one that is usual.
    given = ServiceSettings(port=free)
    monkeypatch.setitem(PORTS, "report_port", ("page server", free))
    ports = _choose_ports(given, PORTS)
    assert (ports["port"], len({*ports.values()})) == (free, 4)


def test_nothing_runs(here):
    assert here("up", "--status").out == "nothing runs; start it with `ism-dask up`\n"
    assert here("up", "--stop").out == "no service of ism-dask runs\n"


def _gone(up):
    """Wait for the end of an `ism-dask up`, of which nothing is to be left."""
    up.process.communicate(timeout=100)
    assert _left() == (set(), {".json", ".log"})
    scheduler = up.where("dask-scheduler")
    for link in (scheduler["address"], scheduler["page"], up.where("reports")["page"]):
        assert not listened(urlsplit(link).port or 0)


def _left():
    """Return the processes that are left of services, and the kinds of their files."""
    return service_processes(), {path.suffix for path in services_folder().iterdir()}
