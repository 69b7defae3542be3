"""A saved run and its model, as the reports read them from the storage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from flows.errors import FlowError, SettingsError
from flows.results.base import RunResult
from flows.results.runs import (
    ClusterResult,
    CrossvalResult,
    FitResult,
    column_names,
    ranked,
)
from ism_dask._types import Array
from storage import (
    Model,
    Run,
    RunNotFound,
    UnsafeName,
    load_model,
    open_run,
)

_RESULTS: Mapping[str, type[RunResult]] = {
    each.command: each for each in (FitResult, ClusterResult, CrossvalResult)
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
        """Open a run with its model; raise a SettingsError if there is none of that name."""
        try:
            run = open_run(name)
        except (RunNotFound, UnsafeName) as error:
            raise SettingsError(str(error), *error.settings) from error
        return cls(run, load_model(run.path) if run.has_model else None)

    @cached_property
    def result(self) -> RunResult:
        """The result of the run, as its flow has returned it; raise a FlowError if it has none."""
        result = saved_result(self.run)
        if result is None:
            raise FlowError(
                f"{self.run.name!r} has no record of how it came about: it was not made by "
                "`ism-dask`, or by a later version of it"
            )
        return result


def largest(model: Model, values: Array, count: int | None = None) -> list[tuple[str, float]]:
    """Return those of the values (d,) of old features of largest size, with features' names."""
    names = column_names(model.feature_names, model.image_shape, model.n_features)
    return ranked(values, names, count)
