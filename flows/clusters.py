"""Cluster all rows and keep what came of it; knows nothing of Prefect."""

from __future__ import annotations

import time
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import normalized_mutual_info_score

from flows.cluster import joined
from flows.data import Fitted, ensure_stored, read_rows
from flows.errors import SettingsError
from flows.fitting import model_of, refuse_existing, told_of
from flows.paradigms import PARADIGMS, label_of
from flows.pictures import save_pictures
from flows.progress import report
from flows.settings import ClusterSettings
from ism_dask.alternation import Round
from ism_dask.estimators.clustering import ClusteringIKDR
from ism_dask.solver import State
from storage import Dataset, model_path, open_dataset, save_model


def cluster_and_save(settings: ClusterSettings) -> dict[str, Any]:
    """Cluster the rows of a stored data set, save the run, and return a summary in JSON."""
    data = open_dataset(settings.dataset, settings.split)
    k = _clusters(settings, data)
    kernel = settings.kernel.replace("_", "-")
    run = settings.run or f"{data.info.folder}-{settings.paradigm}-{kernel}-k{k}"
    refuse_existing(run, settings)
    report(0.0, f"cluster {settings.title}")
    with joined(settings.scheduler):
        fitted, model = _fitted(settings, data, k)
    summary = {**_facts(settings, data, model), **told_of(fitted, settings, data)}
    kept = model_of(model, settings, data, summary)
    path = save_model(run, replace(kept, labels=model.labels_))
    pictures = save_pictures(model_path(run).parent / "pictures", data, model)
    report(1.0, f"saved {run}")
    return {"command": "cluster", "run": run, "path": str(path), **summary, "pictures": pictures}


def cluster_plain(settings: ClusterSettings) -> dict[str, Any]:
    """Ingest if needed, cluster and save, without Prefect."""
    ensure_stored(settings.dataset, settings.split)
    return cluster_and_save(settings)


class _Rounds:
    """What a fit tells of its rounds, made into reports that never go back."""

    def __init__(self) -> None:
        self._round = 1

    def on_round(self, done: Round) -> None:
        self._round = done.number + 1
        report(self._share, f"round {done.number}, change {done.change:.2g}")

    def on_iteration(self, state: State) -> None:
        text = f"round {self._round}, iteration {state.iteration}"
        report(self._share, f"{text}, objective {state.current.objective:.6g}")

    @property
    def _share(self) -> float:
        # How many rounds there will be is not known: each takes a third of what is left.
        return 0.95 * (1.0 - (2 / 3) ** (self._round - 1))


def _fitted(settings: ClusterSettings, data: Dataset, k: int) -> tuple[Fitted, ClusteringIKDR]:
    paradigm, watch = PARADIGMS[settings.paradigm], _Rounds()
    model = paradigm.model(
        settings,
        k,
        kernel=settings.build_kernel(),
        engine=settings.engine,
        engine_tol=settings.engine_tol,
        tol=settings.tol,
        angle_tol=settings.angle_tol,
        max_iter=settings.max_iter,
        outer_tol=settings.outer_tol,
        max_outer=settings.max_outer,
        random_state=settings.seed,
        on_iteration=watch.on_iteration,
        on_round=watch.on_round,
    )
    y = paradigm.told(settings, data)
    rows = read_rows(data.X, settings)
    with warnings.catch_warnings():
        # Every summary has `converged`, and the command says so in words.
        warnings.simplefilter("ignore", ConvergenceWarning)
        started = time.perf_counter()
        model.fit(rows, y)
    return Fitted(model, time.perf_counter() - started), model


def _clusters(settings: ClusterSettings, data: Dataset) -> int:
    """Return how many clusters are asked for."""
    n = len(data.X)
    if settings.n_clusters is None:
        if not data.labels:
            raise SettingsError(f"{data.name} has no labels to count: say how many clusters, -k")
        return len(np.unique(label_of(settings, data)))
    if settings.n_clusters >= n:
        raise SettingsError(
            f"`n_clusters` is {settings.n_clusters}; {data.name} has {n} rows, expected fewer"
        )
    return settings.n_clusters


def _facts(settings: ClusterSettings, data: Dataset, model: ClusteringIKDR) -> dict[str, Any]:
    codes = {name: y for name, y in data.labels.items() if y.dtype.kind in "ui"}
    return {
        "dataset": settings.dataset,
        "split": data.split,
        "rows": len(data.X),
        "columns": data.X.shape[1],
        "kernel": settings.kernel,
        "paradigm": settings.paradigm,
        "n_clusters": int(model.n_clusters),
        "n_components": len(model.components_),
        "data_hash": data.data_hash,
        "nmi": {name: _nmi(y, model.labels_) for name, y in codes.items()},
        "sizes": np.bincount(model.labels_, minlength=model.n_clusters).tolist(),
        "rounds": [
            {
                "objective": each.objective,
                "affinity": each.affinity,
                "change": each.change,
                "iterations": each.iterations,
                "seconds": each.seconds,
            }
            for each in model.rounds_
        ],
        "settings": settings.to_json(),
    }


def _nmi(known: Any, found: Any) -> float:
    """Return the normalised mutual information by the geometric mean, as the paper has it."""
    return float(normalized_mutual_info_score(known, found, average_method="geometric"))
