"""Dask workers in the jobs of a SLURM cluster."""

from __future__ import annotations

import logging
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from flows.compute.base import (
    AdaptiveSize,
    ClusterAddress,
    ClusterPlaceBase,
    ClusterPlan,
    check_memory,
    check_numbers,
    scheduler_defaults,
)
from flows.compute.tls import Tls, temporary_tls
from flows.errors import FlowError
from flows.progress.interrupts import block_signal_handlers
from flows.settings.toml_tables import RelativePath
from flows.text import count_noun
from storage import home
from storage.atomic import PRIVATE, explain_os_errors

# A job ends after Dask's adaptive scaling, which checks once a second, has found it idle this
# many times. That is long, because a new job would have to queue.
_IDLE_CHECKS = 120


@dataclass(frozen=True, kw_only=True)
class Slurm(ClusterPlaceBase):
    """A cluster whose workers run in SLURM jobs, and whose scheduler runs on this machine.

    Attributes
    ----------
    interface : str
        Network interface, such as ib0, on which the nodes reach this machine and each other.
        Nothing listens on any other.
    cores, memory : int, str
        Cores and memory of each job.
    jobs : int or AdaptiveSize
        Number of jobs.
    processes : int
        Number of workers in each job, which share its cores and memory.
    queue, account, walltime : str, optional
        The options `-p`, `-A` and `-t` of `sbatch`.
    directives : tuple of str
        More lines for `sbatch`, such as "--constraint=avx512".
    prologue : tuple of str
        Lines of the job script before the workers start, such as "module load python".
    python : str, optional
        Path of Python on the nodes. Default: the path of the Python that runs here.
    shared : Path, optional
        A folder that this machine and the nodes share, for logs and for certificates made for
        this run. Default: `slurm` in the home of ism-dask.
    tls : Tls, optional
        Certificates. Default: temporary ones, made for the run and worth nothing after it.
    wait : float
        Seconds that the first job may take to start.
    """

    extra: ClassVar[str | None] = "slurm"
    package: ClassVar[str] = "dask_jobqueue"

    interface: str
    cores: int
    memory: str
    jobs: int | AdaptiveSize
    processes: int = 1
    queue: str | None = None
    account: str | None = None
    walltime: str = "01:00:00"
    directives: tuple[str, ...] = ()
    prologue: tuple[str, ...] = ()
    python: str | None = None
    shared: RelativePath | None = None
    tls: Tls | None = None
    wait: float = 900.0

    def __post_init__(self) -> None:
        check_numbers(1, cores=self.cores, processes=self.processes, wait=self.wait)
        check_memory(self.memory)
        if not isinstance(self.jobs, AdaptiveSize):
            check_numbers(1, jobs=self.jobs)
        if self.processes > self.cores:
            raise ValueError(
                f"`processes` is {self.processes}; expected at most `cores`, which is {self.cores}"
            )

    def plan(self) -> ClusterPlan:
        """Return the script of each job, and the answer of `sbatch --test-only` if it exists."""
        script = self._job_script()
        answer = _test_sbatch(script)
        lines = (
            f"{self._jobs_text}, each by this script:",
            *script.rstrip().split("\n"),
            answer or "",
        )
        return ClusterPlan(
            tuple(filter(None, lines)),
            {"jobs": self._scale_json, "script": script, "sbatch": answer},
        )

    @contextmanager
    def opened(self) -> Iterator[ClusterAddress]:
        """Submit the jobs, and cancel them when the block ends."""
        _check_interface(self.interface)
        if _test_sbatch(self._job_script()) is None:
            raise FlowError(
                "there is no `sbatch` on this machine; run the command where jobs are submitted, "
                "such as a login node"
            )
        with explain_os_errors(self._shared_folder):
            self._shared_folder.mkdir(parents=True, exist_ok=True, mode=PRIVATE)
        with self._certificates() as tls, scheduler_defaults(), self._cluster(tls) as cluster:
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
                none_came=f"see `squeue --me`, and the logs in {self._shared_folder}",
            )

    def _job_script(self) -> str:
        """Return the script of a job, with a placeholder for the address of the scheduler."""
        job = _jobqueue().SLURMJob(
            "tls://SCHEDULER", "ism-dask-0", **self._job_options(), protocol="tls://"
        )
        return str(job.job_script())

    def _certificates(self) -> AbstractContextManager[Tls]:
        return temporary_tls(self._shared_folder) if self.tls is None else nullcontext(self.tls)

    def _cluster(self, tls: Tls) -> Any:
        return _jobqueue().SLURMCluster(
            **self._job_options(),
            name="ism-dask",
            silence_logs=logging.CRITICAL,
            security=tls.security(),
            scheduler_options={
                "interface": self.interface,
                "dashboard_address": "127.0.0.1:0",
            },
        )

    def _job_options(self) -> dict[str, Any]:
        return {
            "cores": self.cores,
            "memory": self.memory,
            "processes": self.processes,
            "queue": self.queue,
            "account": self.account,
            "walltime": self.walltime,
            "interface": self.interface,
            "job_extra_directives": list(self.directives),
            "job_script_prologue": list(self.prologue),
            "python": self.python,
            "log_directory": str(self._shared_folder),
            "job_name": "ism-dask",
        }

    @property
    def _shared_folder(self) -> Path:
        return self.shared or home() / "slurm"

    @property
    def _scale_json(self) -> Any:
        return asdict(self.jobs) if isinstance(self.jobs, AdaptiveSize) else self.jobs

    @property
    def _jobs_text(self) -> str:
        if isinstance(self.jobs, AdaptiveSize):
            return f"{self.jobs.minimum} to {self.jobs.maximum} SLURM jobs"
        return count_noun(self.jobs, "SLURM job")


def _jobqueue() -> Any:
    import distributed  # noqa: F401, PLC0415

    with block_signal_handlers():
        from dask_jobqueue import slurm  # noqa: PLC0415

        return slurm


def _test_sbatch(script: str) -> str | None:
    """Return the answer of `sbatch --test-only`, or None if there is no sbatch.

    Raise FlowError if SLURM would not accept the job.
    """
    program = shutil.which("sbatch")
    if program is None:
        return None
    process = subprocess.run(  # noqa: S603 - the script is the one that would be submitted
        [program, "--test-only"], input=script, capture_output=True, text=True, check=False
    )
    answer = " ".join(process.stderr.split())
    if process.returncode:
        raise FlowError(f"SLURM would not take the job; expected other settings ({answer})")
    return answer


def _check_interface(interface: str) -> None:
    import psutil  # noqa: PLC0415

    interfaces = sorted(psutil.net_if_addrs())
    if interface not in interfaces:
        raise FlowError(
            f"`interface` is {interface!r}; expected one of this machine: {', '.join(interfaces)}"
        )
