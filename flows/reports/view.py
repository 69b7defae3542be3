"""A saved run and its model, as the reports read them from the storage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flows.errors import FlowError
from flows.results.base import RunResult
from flows.results.paper import TablesResult
from flows.results.runs import (
    ClusterResult,
    CrossvalResult,
    FitResult,
    FittedW,
    column_names,
    top_loadings,
)
from flows.results.unfolding import UnfoldResult
from ism_dask.linalg.subspaces import subspace_shares
from storage import (
    Model,
    Run,
    load_model,
    load_unfolding,
    open_run,
    picture_path,
    read_pictures,
)

_RESULTS: Mapping[str, type[RunResult]] = {
    each.command: each
    for each in (FitResult, ClusterResult, CrossvalResult, UnfoldResult, TablesResult)
}


def saved_result(run: Run) -> RunResult | None:
    """Return the result of a saved run, without what its model holds.

    None if the run is damaged, or if its record is not that of a run of `ism-dask`.
    """
    kind = _RESULTS.get(run.kind)
    if kind is None:
        return None
    place = {"run": run.name, "path": str(run.path), "settings": run.config}
    try:
        return kind.from_json({**run.metrics, **place})
    except ValueError:
        return None


@dataclass(frozen=True, eq=False)
class View:
    """A run and its model; the model is None if the run has none."""

    run: Run
    model: Model | None

    @classmethod
    def of(cls, name: str) -> View:
        """Open a run with its model."""
        run = open_run(name)
        return cls(run, load_model(run.path) if run.has_model else None)

    @property
    def loader(self) -> str:
        """The function of `storage` that loads what new rows are given to; empty without one."""
        if self.model is not None:
            return load_model.__name__
        return load_unfolding.__name__ if self.run.kind == "unfold" else ""

    @cached_property
    def result(self) -> RunResult:
        """The result of the run, as its flow has returned it; raise a FlowError if it has none."""
        result = saved_result(self.run)
        if result is None:
            raise FlowError(
                f"{self.run.name!r} has no record of how it came about: it was not made by "
                "`ism-dask`, or by a later version of it"
            )
        if isinstance(result, ClusterResult):
            files = {name: f"{name}.png" for name in self.stored_pictures()}
            paths = {name: str(picture_path(self.run.path, file)) for name, file in files.items()}
            return replace(result, fitted=self._with_loadings(result.fitted), pictures=paths)
        if isinstance(result, FitResult):
            return replace(result, fitted=self._with_loadings(result.fitted))
        return result

    def _with_loadings(self, fitted: FittedW) -> FittedW:
        """Return a record of W with what is not among the metrics but follows from the model."""
        if self.model is None:
            return fitted
        return replace(
            fitted,
            eigenvalues=tuple(self.model.eigenvalues.tolist()),
            loadings=top_loadings(self.model.components, self.features),
        )

    @property
    def metrics(self) -> Mapping[str, Any]:
        """The metrics of the run."""
        return self.run.metrics

    @property
    def history(self) -> list[Mapping[str, Any]]:
        """The record of each iteration; empty without a model."""
        return list(self.model.history) if self.model else []

    @cached_property
    def features(self) -> tuple[str, ...]:
        """The names of the old features."""
        if self.model is None:
            return ()
        model = self.model
        return column_names(model.feature_names, model.image_shape, model.components.shape[1])

    @property
    def next_eigenvalue(self) -> float | None:
        """The largest eigenvalue that was not chosen."""
        gap = self.metrics.get("eigengap")
        if self.model is None or gap is None or not np.isfinite(gap):
            return None
        return float(self.model.eigenvalues[-1] - gap)

    def ranked(self, number: int, count: int | None = None) -> list[tuple[str, float]]:
        """Return the weights of a new feature by old feature, largest absolute weight first."""
        if self.model is None:
            return []
        weights = self.model.components[number]
        order = np.argsort(-np.abs(weights), kind="stable")[:count]
        return [(self.features[j], float(weights[j])) for j in order]

    def largest_shares(self, count: int) -> list[tuple[str, float]]:
        """Return the shares of old features in the space of the new ones, the largest first."""
        if self.model is None:
            return []
        shares = subspace_shares(self.model.components)
        order = np.argsort(-shares, kind="stable")[:count]
        return [(self.features[j], float(shares[j])) for j in order]

    def stored_pictures(self) -> dict[str, bytes]:
        """Return the content of the pictures stored with the model, by name."""
        stored = read_pictures(self.run.path) if self.run.has_model else {}
        return {Path(file).stem: content for file, content in stored.items()}

    def group_name(self, value: int) -> str:
        """Return the name of a class or of a cluster."""
        names = self.model.class_names if self.model else None
        if names is None or not 0 <= value < len(names):
            return f"{'cluster' if self.run.kind == 'cluster' else 'class'} {value}"
        return names[value]


def are_classes(values: NDArray[Any]) -> bool:
    """Return whether the labels of rows are classes, not numbers."""
    return values.dtype.kind in "ui"
