"""Cluster all rows of a data set and save labels and model as a run, without Prefect."""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import partial
from hashlib import sha256
from typing import Any

import numpy as np
from sklearn.metrics import normalized_mutual_info_score

from flows.builtin.catalogue import folder_of
from flows.errors import SettingsError
from flows.interface.run_pictures import run_pictures
from flows.progress.fits import watched_fit
from flows.progress.watching import ProgressShare, progress_log, report_progress
from flows.results.runs import ClusterResult, Round
from flows.runs.data import describe_rows, read_rows, store_for_run, with_label
from flows.runs.fit import fitted_w
from flows.runs.fitting import FittedModel, shared_parameters, timed_fit
from flows.runs.paradigms import PARADIGMS
from flows.runs.resumable import fit_on_cluster, resumable_run
from flows.runs.saving import model_to_save, origin
from flows.settings.runs import ClusterSettings
from ism_dask.estimators.clustering import ClusteringIKDR
from storage import Dataset, open_dataset, picture_path, save_model

KIND = ClusterResult.command


def cluster_and_save(settings: ClusterSettings) -> ClusterResult:
    """Cluster the rows of a stored data set, and save the run."""
    data = open_dataset(folder_of(settings.dataset, settings.split))
    k = count_clusters(settings, data)
    run = run_name(settings, data, k)
    report_progress(0.0, f"cluster {settings.title}")
    progress_log(f"data: {describe_rows(data)}; clusters k: {k}")
    y = PARADIGMS[settings.paradigm].target(settings, data)
    with resumable_run(run, KIND, settings, _identity(data, k, y)) as this:
        work = partial(_fitted, settings, data, k, y)
        fitted, model = fit_on_cluster(settings, this, work, len(data.X))
        result = _result(run, settings, data, fitted, model)
        saved = model_to_save(model, settings, data, model.labels_, result)
        pictures = run_pictures(data, model)
        contents = {_file_name(name): content for name, content in pictures.items()}
        path = save_model(run, replace(saved, labels=model.labels_), contents)
    report_progress(1.0, f"saved {run}")
    files = {name: str(picture_path(path, _file_name(name))) for name in pictures}
    return replace(result, path=str(path), pictures=files)


def run_name(settings: ClusterSettings, data: Dataset, k: int) -> str:
    """Return the name of the saved run with k clusters."""
    kernel = settings.kernel.replace("_", "-")
    return settings.run or f"{data.info.folder}-{settings.paradigm}-{kernel}-k{k}"


def count_clusters(settings: ClusterSettings, data: Dataset) -> int:
    """Return the number of clusters k: that of the settings, by default the number of classes."""
    k, n = settings.n_clusters, len(data.X)
    if k is None and not data.labels:
        raise SettingsError(f"{data.name} has no labels to count: say how many clusters, -k")
    if k is None or settings.label is not None:
        # A label that does not exist is an error even if its classes need not be counted.
        classes = len(with_label(data, settings.label).class_sizes)
        k = classes if k is None else k
    if k >= n:
        raise SettingsError(f"`n_clusters` is {k}; {data.name} has {n} rows, expected fewer")
    return k


def label_agreement(known: Any, found: Any) -> float:
    """Return the normalised mutual information of two labellings, by the geometric mean.

    The paper normalises in this way, too.
    """
    with warnings.catch_warnings():
        # Before 1.8, scikit-learn takes many clusters for numbers.
        warnings.filterwarnings("ignore", message="The number of unique classes")
        return float(normalized_mutual_info_score(known, found, average_method="geometric"))


def cluster_plain(settings: ClusterSettings) -> ClusterResult:
    """Run the whole command `cluster` without Prefect, ingestion included."""
    return cluster_and_save(store_for_run(settings)[0])


def _identity(data: Dataset, k: int, y: Any) -> dict[str, Any]:
    """Return all that decides the clusters beside the settings, in plain JSON."""
    # A digest of y: the labels to avoid may be the clusters of a run, and another run of the same
    # name may have replaced it since.
    digest = "" if y is None else sha256(np.asarray(y).tobytes()).hexdigest()
    return {"data_hash": data.data_hash, "k": k, "told": digest}


def _fitted(
    settings: ClusterSettings, data: Dataset, k: int, y: Any
) -> tuple[FittedModel, ClusteringIKDR]:
    paradigm = PARADIGMS[settings.paradigm]
    rows = read_rows(data.X, settings)
    model = paradigm.model(
        settings,
        k,
        outer_tol=settings.outer_tol,
        max_outer=settings.max_outer,
        **shared_parameters(settings),
    )
    with watched_fit(ProgressShare(stop=0.95), model.plan) as reports:
        return timed_fit(model, rows, y, watcher=reports), model


def _file_name(picture: str) -> str:
    return f"{picture}.png"


def _result(
    run: str,
    settings: ClusterSettings,
    data: Dataset,
    fitted: FittedModel,
    model: ClusteringIKDR,
) -> ClusterResult:
    codes = {name: y for name, y in data.labels.items() if y.dtype.kind in "ui"}
    return ClusterResult(
        run=run,
        dataset=settings.dataset,
        split=data.split,
        rows=len(data.X),
        columns=data.X.shape[1],
        kernel=settings.kernel,
        paradigm=settings.paradigm,
        n_clusters=int(model.n_clusters),
        n_components=len(model.components_),
        data_hash=data.data_hash,
        nmi={name: label_agreement(y, model.labels_) for name, y in codes.items()},
        sizes=tuple(np.bincount(model.labels_, minlength=model.n_clusters).tolist()),
        rounds=tuple(
            Round(
                objective=each.objective,
                affinity=each.affinity,
                change=each.change,
                turn=each.turn,
                iterations=each.iterations,
                seconds=each.seconds,
            )
            for each in model.rounds_
        ),
        settings=settings.to_json(),
        fitted=fitted_w(fitted, settings, data),
        **origin(),
    )
