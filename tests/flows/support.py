"""What tests of the flows need: somebody who watches, and data sets made up."""

from __future__ import annotations

from typing import Any

import numpy as np

from flows.settings import FitSettings
from storage import DatasetInfo, dataset_path, write_dataset


class Diary:
    """A watcher that remembers."""

    def __init__(self) -> None:
        self.shares: list[float] = []
        self.texts: list[str] = []
        self.links: list[str] = []
        self.notes: list[str] = []

    def tick(self, share: float, text: str) -> None:
        self.shares.append(share)
        self.texts.append(text)

    def linked(self, url: str) -> None:
        self.links.append(url)

    def noted(self, text: str) -> None:
        self.notes.append(text)


def store_own(rows: int, columns: int = 4, **labels: np.ndarray) -> None:
    """Store a data set "own" of normal rows; without labels y, classes by the first column."""
    X = np.random.default_rng(0).normal(size=(rows, columns))
    given = labels or {"y": np.digitize(X[:, 0], [-0.5, 0.5])}
    write_dataset(dataset_path("own"), DatasetInfo("own", default_label="y"), [X], given)


def unbounded() -> FitSettings:
    """Return a fit, to labels that say nothing, whose engine bounds the error of J by infinity."""
    store_own(400, 8, y=np.random.default_rng(0).integers(0, 2, 400))
    return FitSettings(
        dataset="own",
        kernel="multiquadric",
        offset=4.0,
        n_components=3,
        engine="landmarks",
        engine_tol=0.99,
        run="unbounded",
    )


def artifacts_of(run: Any) -> dict[str, Any]:
    """Return the artifacts of a flow run by their keys."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterFlowRunId

    only = ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[run]))
    with get_client(sync_client=True) as client:
        return {each.key: each for each in client.read_artifacts(artifact_filter=only)}
