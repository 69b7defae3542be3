"""A SLURM cluster of one node, this machine: jobs are submitted, run and cancelled for real."""

import gc
import os
import re
import warnings
from contextlib import ExitStack
from tempfile import gettempdir

import pytest
from daskparts import needs, process, ran
from serving import free_port
from waiting import wait

# Nothing in it needs a daemon of the system, or listens anywhere but here.
CONFIGURATION = """\
ClusterName=test
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={node}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/controller.pid
SlurmdPidFile={folder}/node.pid
SlurmctldLogFile={folder}/controller.log
SlurmdLogFile={folder}/node.log
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
NodeName=localhost NodeAddr=127.0.0.1 CPUs=2 RealMemory=2000 State=UNKNOWN
PartitionName=compute Nodes=localhost Default=YES State=UP
"""
PLAIN = ("--plain", "--json")
FILE = """\
cluster = "dask_jobqueue.SLURMCluster"
workers = 2
[options]
queue = "compute"
interface = "lo"
security = true
cores = 1
memory = "1 GiB"
walltime = "00:05:00"
shared_temp_directory = "{folder}"
log_directory = "{folder}"
"""


@pytest.fixture(scope="module", autouse=True)
def _slurm(tmp_path_factory):
    if os.geteuid() != 0:
        pytest.skip("a SLURM of our own needs root")
    controller, node = needs("slurmctld"), needs("slurmd")
    folder = tmp_path_factory.mktemp("slurm")
    for name in ("state", "spool"):
        (folder / name).mkdir()
    one, two = free_port(), free_port()
    file = folder / "slurm.conf"
    file.write_text(CONFIGURATION.format(controller=one, node=two, user="root", folder=folder))
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.setenv("SLURM_CONF", str(file))
        stack.enter_context(process(controller, "-D"))
        stack.enter_context(process(node, "-D", "-N", "localhost"))
        wait(lambda: "idle" in ran("sinfo", "--noheader").stdout)
        yield
        ran("scancel", "--user=root")


@pytest.fixture(autouse=True)
def _collected():
    """Close what dask_jobqueue leaves open of its certificates."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture
def file(tmp_path):
    file = tmp_path / "slurm.toml"
    (tmp_path / "logs").mkdir()
    file.write_text(FILE.format(folder=tmp_path / "logs"))
    return file


@pytest.mark.long
def test_workers_in_jobs_give_the_same(here, file, diary):
    _change(file, "workers = 2", "workers = {minimum = 1, maximum = 2}")
    command = ("crossval", "wine", *PLAIN, "--criterion", "dependence", "--first", 2)
    alone = here(*command).answer
    far = here(*command, "--cluster", file)
    assert (far.status, far.err) == (0, "")
    for one, two in zip(far.answer["results"], alone["results"], strict=True):
        assert one["cost"] == pytest.approx(two["cost"], rel=1e-9)
        assert all(one[key] == two[key] for key in ("fold", "accuracy", "iterations", "engine"))
    assert any(text.startswith("waiting for a worker of the Dask") for text in diary.texts)
    wait(lambda: ran("squeue", "--noheader").stdout == "")
    logs = file.parent / "logs"
    texts = [log.read_text() for log in logs.glob("*.err")]
    # The folds share them; and the certificates are gone when it is over.
    assert len(texts) in (1, 2)
    assert all("tls://127.0.0.1:" in text and "tcp://" not in text for text in texts)
    assert list(logs.rglob("*.pem")) == []
    assert all(re.search(r"dashboard at:\s+127\.0\.0\.1:", text) for text in texts)
    assert not any(f" {gettempdir()}/dask-scratch-space" in text for text in texts)


def _change(file, before, after):
    text = file.read_text()
    assert before in text
    file.write_text(text.replace(before, after))


def test_what_slurm_refuses_is_said(here, file):
    _change(file, '"compute"', '"nowhere"')
    _change(file, "security = true\n", "")  # dask_jobqueue would leave its certificates open
    said = here("fit", "wine", *PLAIN, "--cluster", file).failed(1)
    assert "invalid partition specified: nowhere" in said


def test_jobs_that_do_not_start(here, file):
    """They are held: as when the queue is full."""
    _change(file, "workers = 2", "workers = 2\nwait = 1")
    _change(file, "security = true\n", "")
    file.write_text(file.read_text() + 'job_extra_directives = ["--hold"]\n')
    said = here("fit", "wine", *PLAIN, "--cluster", file).failed(1)
    assert "has 0 workers, and none came within 1 s; see the list of your jobs" in said
    wait(lambda: ran("squeue", "--noheader").stdout == "")
