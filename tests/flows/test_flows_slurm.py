"""A SLURM cluster of one node, this machine: jobs are submitted, run and cancelled for real."""

import os
import re
from contextlib import ExitStack
from pathlib import Path
from tempfile import gettempdir

import pytest
from daskparts import needs, process, ran
from serving import free_port
from support import Diary
from waiting import wait

from flows.progress.watching import watch_progress

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
FILE = """\
kind = "jobqueue"
system = "slurm"
queue = "compute"
interface = "lo"
cores = 1
memory = "1 GiB"
jobs = 2
walltime = "00:05:00"
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


@pytest.fixture
def file(tmp_path):
    file = tmp_path / "slurm.toml"
    file.write_text(FILE)
    return file


@pytest.mark.long
def test_workers_in_jobs_give_the_same(here, file):
    file.write_text(FILE.replace("jobs = 2", "jobs = {minimum = 1, maximum = 2}"))
    diary, plain = Diary(), ("--plain", "--json", "--criterion", "dependence")
    command = ("crossval", "wine", *plain, "--first", 2)
    alone = here(*command).answer
    with watch_progress(diary):
        far = here(*command, "--cluster", file)
    assert (far.status, far.err) == (0, "")
    for one, two in zip(far.answer["results"], alone["results"], strict=True):
        assert one["cost"] == pytest.approx(two["cost"], rel=1e-9)
    assert "waiting for 1 to 2 SLURM jobs to start: 0 running" in diary.texts
    wait(lambda: ran("squeue", "--noheader").stdout == "")
    logs = Path(os.environ["ISM_DASK_HOME"]) / "jobs"
    texts = [log.read_text() for log in logs.glob("*.err")]
    # The folds share them; and the certificates are gone when it is over.
    assert len(texts) in (1, 2)
    assert all("tls://127.0.0.1:" in text and "tcp://" not in text for text in texts)
    assert list(logs.rglob("*.pem")) == []
    assert all(re.search(r"dashboard at:\s+127\.0\.0\.1:", text) for text in texts)
    assert not any(f" {gettempdir()}/dask-scratch-space" in text for text in texts)


def test_what_slurm_would_refuse_is_not_submitted(here, file):
    shown = here("check-cluster", file, "--json").answer
    assert "to start at" in shown["answer"]
    file.write_text(FILE.replace('"compute"', '"nowhere"'))
    for asked in (("check-cluster", file), ("fit", "wine", "--plain", "--cluster", file)):
        said = here(*asked).failed(1)
        assert "SLURM would not take the job" in said
        assert "invalid partition specified: nowhere" in said
    file.write_text(FILE.replace('"lo"', '"ib7"'))
    said = here("fit", "wine", "--plain", "--cluster", file).failed(1)
    assert "`interface`: 'ib7' is not a valid network interface" in said
    assert "'lo'" in said


def test_jobs_that_do_not_start(here, file):
    """They are held: as when the queue is full."""
    file.write_text(FILE + 'directives = ["--hold"]\nwait = 1\n')
    said = here("fit", "wine", "--plain", "--cluster", file).failed(1)
    assert "has 0 workers, and no more came within 1 s; see `squeue --me`" in said
    wait(lambda: ran("squeue", "--noheader").stdout == "")
