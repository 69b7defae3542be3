"""What is kept of a run, under which name, and how it is found again."""

from __future__ import annotations

import platform
from dataclasses import asdict
from importlib.metadata import version
from tempfile import TemporaryFile
from typing import Any, Protocol

import numpy as np

from flows.errors import FlowError, SettingsError
from flows.runs.data import Array
from flows.settings.runs import KeptSettings
from ism_dask.estimators.base import IKDR
from storage import (
    Dataset,
    Model,
    RunNotFound,
    Sample,
    UnsafeName,
    load_model,
    run_folder,
    runs_folder,
    saved_run_path,
)
from storage.atomic import explain_os_errors, make_folder

_PACKAGES = ("ism-dask", "numpy", "scipy", "scikit-learn", "dask", "zarr")
# Rows that are kept to be looked at, and that are read at a time to find them.
_SAMPLED, _ROWS = 2000, 4096
# What is kept of a run beside its figures, apart from them.
_APART = ("settings", "loadings")


class Replacing(Protocol):
    """Settings that say whether a run may be replaced."""

    @property
    def force(self) -> bool:
        """Whether it may."""


def check_name_is_free(run: str, settings: Replacing, replaces: str = "") -> None:
    """Raise an error where a run of that name would be lost without `force`, or cannot be kept.

    A run in a folder called `replaces` may be lost.
    """
    folder, kept = run_folder(run), saved_run_path(run)
    if kept is not None and not settings.force and kept.name != replaces:
        raise FlowError(
            f"there is a run {run!r} already, at {folder}; replace it with --force, or choose "
            "another name with --run"
        )
    # What cannot be written is better known before the work than after.
    with explain_os_errors(folder):
        make_folder(runs_folder())
        with TemporaryFile(dir=folder if folder.exists() else runs_folder()):
            pass


def saved_model(run: str) -> Model:
    """Load the model of a run; a SettingsError where there is none of that name."""
    try:
        return load_model(run)
    except (RunNotFound, UnsafeName) as error:
        raise SettingsError(str(error)) from error


def model_to_save(
    model: IKDR, settings: KeptSettings, data: Dataset, values: Array, summary: dict[str, Any]
) -> Model:
    """Return what is kept of a fitted model; `values` (n,) are what is known of each row."""
    return Model(
        components=model.components_,
        mean=model.mean_,
        scale=model.scale_,
        eigenvalues=model.eigenvalues_,
        feature_names=data.feature_names,
        image_shape=data.image_shape,
        sample=_sampled(model, data, values, settings.seed),
        history=[asdict(record) for record in model.history_],
        config=settings.to_json(),
        metrics=figures(summary),
        versions=versions(),
    )


def figures(summary: dict[str, Any]) -> dict[str, Any]:
    """Return the part of a summary that is kept as it is."""
    return {key: value for key, value in summary.items() if key not in _APART}


def versions() -> dict[str, str]:
    """Return the versions of what a run is computed with."""
    return {
        "python": platform.python_version(),
        **{package: version(package) for package in _PACKAGES},
    }


def _sampled(model: IKDR, data: Dataset, values: Array, seed: int) -> Sample:
    """Return new features of rows drawn at random."""
    n = len(data.X)
    chosen = np.sort(np.random.default_rng(seed).choice(n, min(n, _SAMPLED), replace=False))
    starts = range(0, n, _ROWS)
    edges = np.searchsorted(chosen, [*starts, n])
    points = [
        model.transform(data.X.read(start, min(start + _ROWS, n))[chosen[first:last] - start])
        for start, first, last in zip(starts, edges[:-1], edges[1:], strict=True)
        if last > first
    ]
    return Sample(np.concatenate(points).astype(np.float32), values[chosen])
