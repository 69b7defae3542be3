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
    ClusterPlace,
    ClusterPlan,
    Count,
    Memory,
    Seconds,
    size_in_words,
)
from flows.errors import FlowError
from flows.services.dask import scheduler_environment

# Seconds after which the operator deletes an idle cluster, because its driver may be gone.
_IDLE_SECONDS = 3600
_SECURITY_CONTEXT = {
    "runAsNonRoot": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


@dataclass(frozen=True, kw_only=True)
class Kubernetes(ClusterPlace):
    """A DaskCluster resource that is created for the run and deleted after it."""

    extra: ClassVar[str | None] = "kubernetes"
    package: ClassVar[str] = "dask_kubernetes"

    image: str  # of scheduler and workers, with the same ism-dask and Dask as here
    workers: Count | AdaptiveSize
    cpu: Count = 1  # of each worker, which has as many threads
    memory: Memory = "2 GiB"  # of each worker, and of the scheduler
    namespace: str | None = None  # None is that of the current context of kubectl
    env: dict[str, str] = field(default_factory=dict)  # of scheduler and workers
    worker_resources: dict[str, str] = field(default_factory=dict)  # such as ephemeral-storage
    volume_claim: str | None = None  # a claim that pods may share, mounted as /data
    wait: Seconds = 300.0  # seconds that scheduler and first worker may take to start

    def plan(self) -> ClusterPlan:
        """Return the DaskCluster that `opened` would create."""
        import yaml  # noqa: PLC0415 - comes with dask

        spec = self.spec("ism-dask")
        text = yaml.safe_dump(spec, sort_keys=False).rstrip()
        workers = size_in_words(self.workers, "Kubernetes worker")
        lines = (f"{workers}, by this DaskCluster:", *text.split("\n"))
        return ClusterPlan(lines, {"spec": spec})

    @contextmanager
    def opened(self) -> Iterator[ClusterAddress]:
        """Create the DaskCluster, and delete it when the block ends."""
        from dask_kubernetes.operator import KubeCluster  # noqa: PLC0415

        try:
            cluster = KubeCluster(
                custom_cluster_spec=self.spec(f"ism-dask-{uuid4().hex[:8]}"),
                namespace=self.namespace,
                resource_timeout=int(self.wait),
                quiet=True,
            )
        # The Kubernetes client, the operator and the network raise errors without a common base.
        except Exception as error:
            raise FlowError(
                "no cluster of workers could be made on Kubernetes "
                f"({type(error).__name__}: {error}); see that `kubectl get daskclusters` answers: "
                "it needs a context that may make them, and the operator of Dask"
            ) from error
        with cluster:
            if isinstance(self.workers, AdaptiveSize):
                cluster.adapt(minimum=self.workers.minimum, maximum=self.workers.maximum)
            yield ClusterAddress(
                cluster.scheduler_address,
                wait=self.wait,
                awaited=f"{size_in_words(self.workers, 'Kubernetes worker')} to start",
                none_came="see `kubectl get pods` and `kubectl describe pod` of those that wait",
            )

    def spec(self, name: str) -> dict[str, Any]:
        """Return the specification of a DaskCluster of that name."""
        from dask_kubernetes.operator import make_cluster_spec  # noqa: PLC0415

        size = self.workers
        spec: dict[str, Any] = make_cluster_spec(
            name,
            image=self.image,
            n_workers=size.minimum if isinstance(size, AdaptiveSize) else size,
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
            # No pod has privileges that it does not need.
            pod["automountServiceAccountToken"] = False
            container = pod["containers"][0]
            container["securityContext"] = deepcopy(_SECURITY_CONTEXT)
            if self.volume_claim is not None:
                claim = {"claimName": self.volume_claim}
                pod["volumes"] = [{"name": "data", "persistentVolumeClaim": claim}]
                container["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
        return spec

    def _resources(self, cpu: int, more: dict[str, str]) -> dict[str, dict[str, str]]:
        from dask.utils import parse_bytes  # noqa: PLC0415

        memory = f"{parse_bytes(self.memory) // 2**20}Mi"
        amounts = {"cpu": str(cpu), "memory": memory, **more}
        return {"requests": amounts, "limits": dict(amounts)}
