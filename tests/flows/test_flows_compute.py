"""Where tiles are computed: cluster files, clusters that are started, run already, or are lost."""

import os
import re
import signal
import socket
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from daskparts import scheduler, worker
from distributed import LocalCluster, default_client
from serving import free_port, heard, living, running
from support import EXACT, LOCAL, store_own
from waiting import wait

from flows.compute import joined_cluster
from flows.compute.places import SCHEDULER_SETTINGS, cluster_place
from flows.errors import FlowError, SettingsError
from flows.runs.resumable import fit_on_cluster, resumable_run
from flows.settings.runs import FitSettings
from ism_dask.observe import progress
from ism_dask.rows import execution
from storage import StorageError

SLURM = 'cluster = "dask_jobqueue.SLURMCluster"\nworkers = 1\n'
PLAIN = ("--plain", "--json", "--sigma", "median")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('cluster = "local', "is no TOML"),
        ("\udcff\udcfe", "is no TOML: it is not UTF-8"),
        ("workers = 2", "`cluster` is missing"),
        (LOCAL + "wrokers = 2", "`wrokers` is no setting; did you mean 'workers'"),
        (LOCAL.replace("= 2", "= 0"), "`workers` is 0; expected 1 or more"),
        (
            LOCAL.replace("= 2", "= {minimum = 2, maximum = 1}"),
            "workers.minimum is 2 and maximum 1; expected 0 <= minimum <= maximum",
        ),
    ],
)
def test_a_wrong_cluster_file(tmp_path, text, said):
    file = tmp_path / "odd.toml"
    file.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(SettingsError, match=said) as error:
        cluster_place(str(file))
    assert str(file) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_wrong_file_is_told_before_any_work(here, tmp_path):
    file = tmp_path / "odd.toml"
    assert f"{file} cannot be read" in here("fit", "wine", "--cluster", file).failed(2)
    assert f"{file} cannot be read" in here("crossval", "wine", "--scheduler", file).failed(2)
    assert not Path(os.environ["ISM_DASK_HOME"]).exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('cluster = "distributed.LocalClusters"\nworkers = 1', "which is not found"),
        ('cluster = "no_such_package.Cluster"\nworkers = 1', "pip install 'ism-dask[jobqueue]'"),
        (SLURM, "dask_jobqueue.SLURMCluster does not take these `options`: "),
        (
            f'{SLURM}[options]\ncores = 1\nmemory = "1 GiB"\nmemories = 1',
            "unexpected keyword argument 'memories'",
        ),
    ],
)
# dask_jobqueue's own clean-up of a cluster that was not made.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_class_or_an_option_that_there_is_not(here, tmp_path, text, said):
    file = tmp_path / "odd.toml"
    file.write_text(text)
    assert said in here("fit", "wine", "--plain", "--cluster", file).failed(1)


@pytest.mark.long
def test_an_option_that_workers_refuse_is_an_error_at_once(local):
    local.write_text(LOCAL.replace("memory_limit", "memory_limits"))
    said = r"LocalCluster starts no workers: .* unexpected keyword argument 'memory_limits'"
    with pytest.raises(FlowError, match=said), joined_cluster(str(local)):
        pass


@pytest.mark.long
def test_workers_of_our_own_give_the_same(here, local):
    command = ("crossval", "wine", *PLAIN, "--criterion", "dependence", "--first", 2)
    alone = here(*command).answer
    with_workers = here(*command, "--cluster", local)
    assert with_workers.err == ""
    for one, two in zip(with_workers.answer["results"], alone["results"], strict=True):
        assert one["cost"] == pytest.approx(two["cost"], rel=1e-9)
        assert all(one[key] == two[key] for key in ("fold", "accuracy", "iterations", "engine"))


@pytest.mark.long
def test_workers_of_our_own_are_here_only(local):
    before = _listening()
    with joined_cluster(str(local)):
        client = default_client()
        wait(lambda: len(client.scheduler_info(n_workers=-1)["workers"]) == 2)
        with joined_cluster(str(local)):  # as each fold does
            assert default_client() is client
        assert default_client() is client
        found = _listening() - before
        # The scheduler and its dashboard; of each worker a nanny, itself, and its page.
        assert len(found) >= 6
        assert {host for host, _ in found} == {"127.0.0.1"}
    assert _listening() - before == set()


def _listening():
    return {address for member in living(os.getpid()) for address in heard(member)}


@pytest.mark.long
def test_an_interruption_ends_the_workers(local):
    command = ("crossval", "wine", "--plain", "--cluster", str(local), "--tol", "1e-14")
    # As a terminal has it: the interruption goes to all of them.
    with running(*command, "--max-iter", 9999, *EXACT, start_new_session=True) as run:
        family = wait(lambda: living(run.pid)[3:] and living(run.pid), every=0.05)
        os.killpg(run.pid, signal.SIGINT)
        out, err = run.communicate(timeout=120)
    # The second is how Python ends where `exec`, of a dataclass say, was what was interrupted.
    assert run.returncode in (130, -signal.SIGINT)
    assert re.fullmatch(r"Dask dashboard: http://\S+/status\n", out)
    assert err.splitlines()[-1] == "ism-dask: interrupted"
    assert "KeyboardInterrupt" not in err
    assert psutil.wait_procs(family, timeout=120)[1] == []


@pytest.fixture(scope="module")
def workerless(tmp_path_factory):
    with scheduler(tmp_path_factory.mktemp("scheduler")) as address:
        yield address


@pytest.mark.long
def test_workers_that_have_other_versions(here, workerless, tmp_path, monkeypatch):
    for name, version in (("ism-dask", "0.0.1"), ("dask", "2025.1.0")):
        folder = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
    monkeypatch.setattr("flows.compute.places.JOIN_SECONDS", 60.0)
    with worker(workerless, "--no-nanny", PYTHONPATH=str(tmp_path)):
        said = here("fit", "wine", "--plain", "--scheduler", workerless).failed(1)
    assert "the worker at tcp://127.0.0.1:" in said
    assert "has dask 2025.1.0, ism-dask 0.0.1, but this process has dask " in said


@pytest.mark.long
def test_workers_that_do_not_see_the_rows(here, workerless, monkeypatch):
    if os.geteuid() != 0:
        pytest.skip("what one worker does not see takes root to hide")
    monkeypatch.setattr("flows.compute.places.JOIN_SECONDS", 60.0)
    monkeypatch.setattr("flows.runs.data._IN_TASKS", 0)
    home = Path(os.environ["ISM_DASK_HOME"])
    home.mkdir()
    hidden = f'mount -t tmpfs none "{home}" && exec "$@"'
    with worker(workerless, within=("unshare", "--mount", "sh", "-c", hidden, "sh")):
        said = here("fit", "wine", "--plain", "--scheduler", workerless).failed(1)
    assert f"does not see {home}" in said
    assert "let ISM_DASK_HOME be a folder that this process and all workers share" in said


@pytest.mark.long
def test_a_scheduler_without_workers(here, workerless, monkeypatch):
    monkeypatch.setattr("flows.compute.places.JOIN_SECONDS", 1.0)
    ended = here("fit", "wine", "--plain", "--scheduler", workerless)
    assert f"`dask worker {workerless}`" in ended.failed(1)


def test_nothing_is_up(here, monkeypatch):
    command = ("fit", "wine", "--plain", "--scheduler", "up")
    assert "no Dask scheduler of `ism-dask up` runs here" in here(*command).failed(1)
    monkeypatch.setenv("ISM_DASK_SCHEDULER", "scheduler:8786")
    assert "ISM_DASK_SCHEDULER is 'scheduler:8786'; expected" in here(*command).failed(2)


@pytest.mark.long
def test_rows_that_workers_read_themselves(here, cluster, monkeypatch):
    monkeypatch.setattr("flows.runs.data._IN_TASKS", 0)
    # In a container, where `ism-dask up` does not run.
    monkeypatch.setenv("ISM_DASK_SCHEDULER", cluster.scheduler_address)
    fitted = here("fit", "wine", *PLAIN, "--scheduler", "up").answer
    again = here("fit", "wine", *PLAIN, "--force").answer
    assert fitted["objective"] == pytest.approx(again["objective"], rel=1e-9)


def test_progress_within_a_pass_comes_from_the_cluster(here, cluster, diary, monkeypatch):
    monkeypatch.setattr(progress, "_LONG", -1.0)
    monkeypatch.setattr(execution, "_ASK_SECONDS", 0.01)
    monkeypatch.setattr("flows.progress.watching._EVERY", 1e-4)
    store_own(6000)
    command = ("fit", "own", "--sigma", "median", *EXACT, "--tol", 1e-12, "--max-iter", 9)
    assert here(*command, "--plain", "--scheduler", cluster.scheduler_address).status == 0
    assert any(re.search(r"iteration \d+, rows \d+%", text) for text in diary.texts)
    assert diary.shares == sorted(diary.shares)


@pytest.mark.long
def test_workers_with_too_little_memory(here, tmp_path):
    store_own(3000, 1500)
    size = {"n_workers": 1, "threads_per_worker": 2, "memory_limit": "300 MiB"}
    place = {"dashboard_address": "127.0.0.1:0", "local_directory": str(tmp_path)}
    with LocalCluster(host="127.0.0.1", **size, **place) as narrow:
        ended = here("fit", "own", "--plain", *EXACT, "--scheduler", narrow.scheduler_address)
    assert re.search(r"^ism-dask: a .* needs \d+ MiB, but .* may take 20 MiB here", ended.failed(1))


@pytest.mark.parametrize("listens", [False, True])
def test_nobody_or_something_else_at_that_address(here, monkeypatch, listens):
    """Something else takes the connection and says nothing: as a web server would, for ever."""
    monkeypatch.setattr("flows.compute.connection.ANSWER_SECONDS", 1.0)
    port = free_port()
    address = f"tcp://127.0.0.1:{port}"
    with socket.create_server(("127.0.0.1", port)) if listens else nullcontext():
        ended = here("fit", "wine", "--plain", "--scheduler", address)
    assert f"no Dask scheduler answers at {address}" in ended.failed(1)


@pytest.fixture
def settings(local):
    store_own(100)
    local.write_text(LOCAL.replace("workers = 2", "workers = 1"))
    return FitSettings(dataset="own", run="lost", scheduler=str(local), stall=2)


@pytest.fixture
def this(settings):
    with resumable_run("lost", "fit", settings, {}) as this:
        yield this


@pytest.mark.long
def test_losses_without_progress_end(settings, this, diary, monkeypatch):
    monkeypatch.setitem(SCHEDULER_SETTINGS, "distributed.scheduler.allowed-failures", 0)
    said = r"one task ended 1 worker .* the last of 3 such losses without an iteration between"
    # On a busy machine the next worker may take longer to start than a stall is allowed.
    patient = replace(settings, stall=60)

    def work():
        default_client().submit(signal.raise_signal, signal.SIGKILL).result()

    with pytest.raises(FlowError, match=said):
        fit_on_cluster(patient, this, work)
    assert len([each for each in diary.notes if not each.startswith("Dask dashboard: ")]) == 2


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
def test_a_result_that_never_comes_is_a_loss(settings, this, diary, tmp_path, number):
    """A worker keeps it, or ends with it, and the next one computes it for ever."""

    def once(mark):
        time.sleep(60 * mark.exists())
        mark.touch()

    def work():
        done = default_client().submit(once, tmp_path / str(len(diary.notes)))
        wait(done.done)
        if len(diary.notes) == 1:  # of the first cluster
            os.kill(*default_client().run(os.getpid).values(), number)
            wait(lambda: number == signal.SIGSTOP or done.status == "lost")
        done.result()

    fit_on_cluster(settings, this, work)
    assert diary.notes[1].startswith("no task was done for 2 s")


@pytest.mark.long
def test_a_worker_that_is_replaced_and_work_elsewhere_are_no_loss(settings, this, diary):
    def work():
        time.sleep(settings.stall + 1)  # without a task of the cluster
        client = default_client()
        (pid,) = client.run(os.getpid).values()
        os.kill(pid, signal.SIGKILL)
        # Its nanny starts another.
        wait(lambda: {*client.run(os.getpid, on_error="ignore").values()} - {pid})

    fit_on_cluster(settings, this, work)
    assert re.fullmatch(r"Dask dashboard: http://\S+", "\n".join(diary.notes))
    joined = r"joined the Dask cluster at tcp://\S+, dashboard http://\S+, 1 worker"
    assert re.fullmatch(joined, "\n".join(diary.log))


@pytest.mark.chaos  # half a minute: `make long`
def test_an_error_of_ours_is_no_loss_of_a_cluster(settings, this, diary):
    def work():
        # Even where the cluster goes away just then.
        default_client().shutdown()
        raise StorageError("the disk is full")

    with pytest.raises(StorageError, match="the disk is full"):
        fit_on_cluster(settings, this, work)
    assert re.fullmatch(r"Dask dashboard: http://\S+", "\n".join(diary.notes))  # and no loss
