"""Dask workers in the jobs of a batch system such as SLURM, by dask-jobqueue."""

from __future__ import annotations

import logging
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

from flows.compute.base import (
    ClusterAddress,
    ClusterPlace,
    ClusterPlan,
    Count,
    Memory,
    Seconds,
    scheduler_defaults,
)
from flows.errors import FlowError
from flows.progress.interrupts import block_signal_handlers
from flows.services.dask import Tls, make_certificates
from flows.services.service import HOST
from flows.settings.fields import check_choice
from flows.settings.toml_tables import RelativePath
from flows.text import count_noun
from storage import home
from storage.atomic import PRIVATE, explain_os_errors

# A job ends after Dask's adaptive scaling, which checks once a second, has found it idle this
# many times. That is long, because a new job would have to queue.
_IDLE_CHECKS = 120


@dataclass(frozen=True)
class BatchSystem:
    """A batch system that dask-jobqueue submits jobs to."""

    title: str
    cluster: str  # the class in dask_jobqueue
    jobs: str  # the command that lists one's own jobs
    account: str | None = "account"  # the parameter of the class that names who pays
    test: str | None = None  # the option of its command that tests a job and submits nothing


SYSTEMS = {
    "slurm": BatchSystem("SLURM", "SLURMCluster", "squeue --me", test="--test-only"),
    "pbs": BatchSystem("PBS", "PBSCluster", "qstat -u $USER"),
    "moab": BatchSystem("Moab", "MoabCluster", "showq -u $USER"),
    "sge": BatchSystem("SGE", "SGECluster", "qstat", account="project"),
    "lsf": BatchSystem("LSF", "LSFCluster", "bjobs", account="project"),
    "oar": BatchSystem("OAR", "OARCluster", "oarstat -u", account="project"),
    "htcondor": BatchSystem("HTCondor", "HTCondorCluster", "condor_q", account=None),
}


# Lines of a job script: Dask's own folder, in /tmp, may have been made by another user.
_TEMPORARY_FOLDER: tuple[str, ...] = (
    "export DASK_TEMPORARY_DIRECTORY=$(mktemp -d)",
    """trap 'rm -rf "$DASK_TEMPORARY_DIRECTORY"' EXIT""",
)


@dataclass(frozen=True)
class AdaptiveSize:
    """The bounds within which the number of jobs follows the amount of work."""

    minimum: int
    maximum: int

    def __post_init__(self) -> None:
        if not 0 <= self.minimum <= self.maximum or self.maximum < 1:
            raise ValueError(
                f"minimum is {self.minimum} and maximum {self.maximum}; expected 0 <= minimum <= "
                "maximum, and at least 1"
            )


@dataclass(frozen=True, kw_only=True)
class JobQueue(ClusterPlace):
    """A cluster whose workers run in jobs of a batch system; its scheduler runs on this machine."""

    package: ClassVar[str] = "dask_jobqueue"

    system: str  # a key of `SYSTEMS`
    interface: str  # such as ib0, on which nodes and machine reach each other; no other listens
    cores: Count  # of each job
    memory: Memory  # of each job
    jobs: Count | AdaptiveSize
    processes: Count = 1  # workers in each job, which share its cores and memory
    queue: str | None = None
    account: str | None = None
    walltime: str | None = None  # this, queue and account: None is that of dask-jobqueue
    directives: tuple[str, ...] = ()  # more options for the system, such as "--exclusive"
    prologue: tuple[str, ...] = ()  # lines of the job script before the workers start
    # More parameters of the class of dask-jobqueue.
    options: dict[str, str | int | bool] = field(default_factory=dict)
    python: str | None = None  # on the nodes; None is the path of the Python that runs here
    shared: RelativePath | None = None  # that the nodes share, for logs and temporary certificates
    tls: Tls | None = None  # None makes temporary certificates, worth nothing after the run
    wait: Seconds = 900.0  # seconds that the first job may take to start

    def __post_init__(self) -> None:
        check_choice("system", self.system, list(SYSTEMS))
        if self.processes > self.cores:
            raise ValueError(
                f"`processes` is {self.processes}; expected at most `cores`, which is {self.cores}"
            )
        if find_spec(self.package) is None:
            raise FlowError(
                "this kind of cluster needs `pip install 'ism-dask[jobqueue]'` (the package "
                "dask-jobqueue)"
            )

    def plan(self) -> ClusterPlan:
        """Return the script of each job, and what the system says of it, if it can test one."""
        script = self._job_script()
        answer = self._tested(script)
        lines = (f"{self._jobs_text}, each by this script:", *script.rstrip().split("\n"))
        jobs = asdict(self.jobs) if isinstance(self.jobs, AdaptiveSize) else self.jobs
        command = self._job_class.submit_command
        facts = {"submitted_by": command, "jobs": jobs, "script": script, "answer": answer}
        return ClusterPlan((*lines, answer) if answer else lines, facts)

    @contextmanager
    def opened(self) -> Iterator[ClusterAddress]:
        """Submit the jobs, and cancel them when the block ends."""
        from distributed.utils import get_ip_interface  # noqa: PLC0415

        command = self._job_class.submit_command
        if shutil.which(command) is None:
            raise FlowError(
                f"there is no `{command}` on this machine; run the command where jobs are "
                "submitted, such as a login node"
            )
        try:
            get_ip_interface(self.interface)
        except ValueError as error:
            raise FlowError(f"`interface`: {error}") from error
        self._tested(self._job_script())
        folder = self._shared_folder
        with ExitStack() as stack:
            with explain_os_errors(folder):
                folder.mkdir(parents=True, exist_ok=True, mode=PRIVATE)
                temporary = stack.enter_context(TemporaryDirectory(prefix=".tls-", dir=folder))
                tls = self.tls or make_certificates(Path(temporary, "made"))
            stack.enter_context(scheduler_defaults())
            cluster = self._cluster_class(
                **self._job_options(),
                name="ism-dask",
                silence_logs=logging.CRITICAL,
                security=tls.security(),
                scheduler_options={"interface": self.interface, "dashboard_address": f"{HOST}:0"},
            )
            stack.enter_context(cluster)
            if isinstance(self.jobs, AdaptiveSize):
                cluster.adapt(
                    minimum_jobs=self.jobs.minimum,
                    maximum_jobs=self.jobs.maximum,
                    wait_count=_IDLE_CHECKS,
                )
            else:
                cluster.scale(jobs=self.jobs)
            yield ClusterAddress(
                cluster.scheduler_address,
                cluster.security,
                wait=self.wait,
                awaited=f"{self._jobs_text} to start",
                none_came=f"see `{self._system.jobs}`, and the logs in {folder}",
            )

    def _job_script(self) -> str:
        """Return the script of a job, with a placeholder for the address of the scheduler."""
        try:
            job = self._job_class(
                "tls://SCHEDULER", "ism-dask-0", **self._job_options(), protocol="tls://"
            )
        except Exception as error:  # whatever it happens to meet
            raise FlowError(f"{self._system.title} needs other `options`: {error}") from error
        return str(job.job_script())

    def _job_options(self) -> dict[str, Any]:
        """Return the parameters of dask-jobqueue's class; it has own defaults for those of None."""
        directives: Any = list(self.directives)
        temporary = _TEMPORARY_FOLDER
        if self.system == "htcondor":  # whose directives are "key = value"
            parted = (each.partition("=") for each in directives)
            directives = {key.strip(): value.strip() for key, _, value in parted}
            temporary = ()  # its jobs have a folder of their own
        options = {
            "cores": self.cores,
            "memory": self.memory,
            "processes": self.processes,
            "queue": self.queue,
            "walltime": self.walltime,
            self._system.account or "account": self.account,
            "interface": self.interface,
            "job_extra_directives": directives,
            "job_script_prologue": [*temporary, *self.prologue],
            # By default the HTTP server of a worker listens on every interface.
            "worker_extra_args": ["--no-dashboard", "--dashboard-address", f"{HOST}:0"],
            "python": self.python,
            "log_directory": str(self._shared_folder),
            "job_name": "ism-dask",
            **self.options,
        }
        return {name: value for name, value in options.items() if value is not None}

    def _tested(self, script: str) -> str | None:
        """Return what the system says of a job that it tests, None if it cannot.

        Raise FlowError if it would not accept the job.
        """
        program = shutil.which(self._job_class.submit_command)
        if program is None or self._system.test is None:
            return None
        process = subprocess.run(  # noqa: S603 - the script is the one that would be submitted
            [program, self._system.test], input=script, capture_output=True, text=True, check=False
        )
        answer = " ".join(process.stderr.split())
        if process.returncode:
            raise FlowError(
                f"{self._system.title} would not take the job; expected other settings ({answer})"
            )
        return answer

    @property
    def _system(self) -> BatchSystem:
        return SYSTEMS[self.system]

    @property
    def _cluster_class(self) -> Any:
        import distributed  # noqa: F401, PLC0415 - dask_jobqueue would import it with its handlers

        with block_signal_handlers():
            import dask_jobqueue  # noqa: PLC0415

        return getattr(dask_jobqueue, self._system.cluster)

    @property
    def _job_class(self) -> Any:
        return self._cluster_class.job_cls

    @property
    def _shared_folder(self) -> Path:
        return self.shared or home() / "jobs"

    @property
    def _jobs_text(self) -> str:
        noun = f"{self._system.title} job"
        if isinstance(self.jobs, AdaptiveSize):
            return f"{self.jobs.minimum} to {self.jobs.maximum} {noun}s"
        return count_noun(self.jobs, noun)
