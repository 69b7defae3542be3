"""Dask workers in the pods of a Kubernetes cluster, which Dask's operator starts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, ClassVar
from uuid import uuid4

from flows.compute.base import (
    AdaptiveSize,
    ClusterAddress,
    ClusterPlaceBase,
    ClusterPlan,
    check_memory,
    check_numbers,
)
from flows.errors import FlowError
from flows.services.dask import scheduler_environment
from flows.text import count_noun

# Seconds after which the operator deletes an idle cluster, because its driver may be gone.
_IDLE_SECONDS = 3600
_SECURITY_CONTEXT = {
    "runAsNonRoot": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


@dataclass(frozen=True, kw_only=True)
class Kubernetes(ClusterPlaceBase):
    """A DaskCluster resource that is created for the run and deleted after it.

    Attributes
    ----------
    image : str
        Container image of scheduler and workers, with the same ism-dask and Dask as here.
    workers : int or AdaptiveSize
        Number of workers.
    cpu : int
        CPUs of each worker, which has as many threads.
    memory : str
        Memory of each worker, and of the scheduler.
    namespace : str, optional
        Kubernetes namespace. Default: that of the current context of kubectl.
    env : dict
        Environment variables of scheduler and workers.
    worker_resources : dict
        Further resources of each worker, such as {"ephemeral-storage" = "10Gi"}.
    volume_claim : str, optional
        A claim that pods may share. Scheduler and workers mount it as /data.
    wait : float
        Seconds that scheduler and first worker may take to start.
    """

    extra: ClassVar[str | None] = "kubernetes"
    package: ClassVar[str] = "dask_kubernetes"

    image: str
    workers: int | AdaptiveSize
    cpu: int = 1
    memory: str = "2 GiB"
    namespace: str | None = None
    env: dict[str, str] = field(default_factory=dict)
    worker_resources: dict[str, str] = field(default_factory=dict)
    volume_claim: str | None = None
    wait: float = 300.0

    def __post_init__(self) -> None:
        check_numbers(1, cpu=self.cpu, wait=self.wait)
        check_memory(self.memory)
        if not isinstance(self.workers, AdaptiveSize):
            check_numbers(1, workers=self.workers)

    def plan(self) -> ClusterPlan:
        """Return the DaskCluster that `opened` would create."""
        import yaml  # noqa: PLC0415 - comes with dask

        spec = self.spec("ism-dask")
        text = yaml.safe_dump(spec, sort_keys=False).rstrip()
        return ClusterPlan(
            (f"{self._workers_text}, by this DaskCluster:", *text.split("\n")), {"spec": spec}
        )

    @contextmanager
    def opened(self) -> Iterator[ClusterAddress]:
        """Create the DaskCluster, and delete it when the block ends."""
        from dask_kubernetes.operator import KubeCluster  # noqa: PLC0415

        with _explain_errors():
            cluster = KubeCluster(
                custom_cluster_spec=self.spec(f"ism-dask-{uuid4().hex[:8]}"),
                namespace=self.namespace,
                resource_timeout=int(self.wait),
                quiet=True,
            )
        with cluster:
            if isinstance(self.workers, AdaptiveSize):
                cluster.adapt(minimum=self.workers.minimum, maximum=self.workers.maximum)
            yield ClusterAddress(
                cluster.scheduler_address,
                wait=self.wait,
                awaited=f"{self._workers_text} to start",
                none_came="see `kubectl get pods` and `kubectl describe pod` of those that wait",
            )

    def spec(self, name: str) -> dict[str, Any]:
        """Return the specification of a DaskCluster of that name."""
        from dask_kubernetes.operator import make_cluster_spec  # noqa: PLC0415

        spec: dict[str, Any] = make_cluster_spec(
            name,
            image=self.image,
            n_workers=self.workers.minimum
            if isinstance(self.workers, AdaptiveSize)
            else self.workers,
            resources=self._resources(1, {}),
            env={**scheduler_environment(), **self.env},
            # By default the operator runs `dask-worker`, a command that Dask no longer has.
            idle_timeout=_IDLE_SECONDS,
            worker_command=["dask", "worker", "--nthreads", str(self.cpu)],
        )
        scheduler, worker = (spec["spec"][part]["spec"] for part in ("scheduler", "worker"))
        scheduler["containers"][0]["args"] = ["dask", "scheduler", "--host", "0.0.0.0"]  # noqa: S104
        worker["containers"][0]["resources"] = self._resources(self.cpu, self.worker_resources)
        for pod in (scheduler, worker):
            self._secure_and_mount(pod)
        return spec

    def _secure_and_mount(self, pod: dict[str, Any]) -> None:
        """Withdraw the privileges that a pod does not need, and mount the data volume, if any."""
        pod["automountServiceAccountToken"] = False
        container = pod["containers"][0]
        container["securityContext"] = deepcopy(_SECURITY_CONTEXT)
        if self.volume_claim is not None:
            claim = {"claimName": self.volume_claim}
            pod["volumes"] = [{"name": "data", "persistentVolumeClaim": claim}]
            container["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]

    def _resources(self, cpu: int, more: dict[str, str]) -> dict[str, dict[str, str]]:
        from dask.utils import parse_bytes  # noqa: PLC0415

        memory = f"{parse_bytes(self.memory) // 2**20}Mi"
        amounts = {"cpu": str(cpu), "memory": memory, **more}
        return {"requests": amounts, "limits": dict(amounts)}

    @property
    def _workers_text(self) -> str:
        if isinstance(self.workers, AdaptiveSize):
            return f"{self.workers.minimum} to {self.workers.maximum} Kubernetes workers"
        return count_noun(self.workers, "Kubernetes worker")


@contextmanager
def _explain_errors() -> Iterator[None]:
    """Raise FlowError, with the reason in one line, if the cluster cannot be created."""
    try:
        yield
    except FlowError:
        raise
    # The Kubernetes client, the operator and the network raise errors without a common base.
    except Exception as error:
        raise FlowError(
            f"no cluster of workers could be made on Kubernetes ({type(error).__name__}: {error}); "
            "see that `kubectl get daskclusters` answers: it needs a context that may make them, "
            "and the operator of Dask"
        ) from error
