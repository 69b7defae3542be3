"""Measure the cells of Tables 4 and 5 and of the reference points: a method on a data set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from sklearn.svm import SVC
from sklearn.utils import gen_batches

from flows.paper.methods import (
    Request,
    fit_clusters,
    fit_facts,
    fit_method,
    labelled_dataset,
    rows_in_memory,
)
from flows.paper.series import Result, Series
from flows.paper.settings import (
    ALIGNED,
    DATA,
    ISM,
    ISM_GRAPH,
    METHODS,
    OTHER_SOLVERS,
    PARADIGMS,
    SUPERVISED,
    TABLE_4_KERNELS,
    TABLE_5_KERNELS,
    UNSUPERVISED,
    TablesSettings,
)
from flows.paper.spectral_clusters import spectral_clusters
from flows.progress.watching import ProgressShare
from flows.runs.clustering import label_agreement
from flows.runs.crossval import plan_folds
from flows.runs.data import Array
from ism_dask.estimators.clustering import ClusteringIKDR
from ism_dask.kernels import Kernel

# Share of a fold's progress when the features are learned and the classifier begins.
_LEARNED = 0.8
# How many times as long another solver is expected to take as ISM; only the progress bar uses it.
_OTHER_SOLVER_EFFORT = 10.0
# A fit to fewer rows uses one core.
_ROWS_FOR_CORES = 1000
# Rows of K that are in memory at a time.
_ROWS_AT_ONCE = 1024


def fold_score(
    step: int, part: ProgressShare, *, data: str, method: str, request: Request, folds: int
) -> Result:
    """Learn from all folds but one, and measure the accuracy of an SVM on that one."""
    X, y = rows_in_memory(data)
    plans = plan_folds(labelled_dataset(data), folds, request.seed)
    train, test = plans[step - 1].train, plans[step - 1].test
    part = part.named(f"{part.name}, fold {step} of {folds}")
    with part.lasting(0.0, ""):
        fitted = fit_method(method, request, X[train], y[train])
    with part.lasting(_LEARNED, "the classifier"):
        features = fitted.model.transform(X[train])
        classifier = SVC(kernel="rbf").fit(features, y[train])
        score = classifier.score(fitted.model.transform(X[test]), y[test])
    result = {"score": float(score), **fit_facts(fitted)}
    if METHODS[method].solver:
        J, diagonal = fitted.model.objective_, _gamma_diagonal(y[train])
        result["cost"] = _published_cost(fitted.model.kernel_, features, J, diagonal)
    return result


def cluster_score(
    _step: int, part: ProgressShare, *, data: str, method: str, request: Request
) -> Result:
    """Measure the agreement with the classes of clusters in X W, or in a reference's features."""
    X, y = rows_in_memory(data)
    if not METHODS[method].solver:
        with part.lasting(0.0, ""):
            fitted = fit_method(method, request, X, y)
            features, seed = fitted.model.transform(X), request.seed
            clusters = spectral_clusters(features, request.q, random_state=seed)
        return {"score": label_agreement(y, clusters), **fit_facts(fitted)}
    with part.lasting(0.0, ""):
        fitted = fit_clusters(method, request, X)
    model: Any = fitted.model
    return {
        "score": label_agreement(y, model.labels_),
        **fit_facts(fitted),
        "cost": _cost_of_clusters(model, model.transform(X)),
        "rounds": len(model.rounds_),
    }


_SOLVERS = tuple(name for name, method in METHODS.items() if method.solver)
# Kernels and methods of each table; the methods measured for comparison use no kernel.
_TABLES: Mapping[str, tuple[Sequence[str], Sequence[str]]] = {
    "table-4": (TABLE_4_KERNELS, _SOLVERS),
    "table-5": (TABLE_5_KERNELS, (ISM, ISM_GRAPH)),
    "references": (("",), tuple(name for name in METHODS if name not in _SOLVERS)),
}


def table_cells(table: str, settings: TablesSettings) -> Iterator[Series]:
    """Return the chosen cells of a table."""
    kernels, methods = _TABLES[table]
    return (
        _cell(table, paradigm, data, kernel, method, settings=settings)
        for data in settings.chosen("data")
        for paradigm in PARADIGMS
        for kernel in kernels
        for method in settings.chosen("methods")
        # The weights of the aligned kernel need labels.
        if method in methods
        and paradigm in METHODS[method].paradigms
        and (paradigm, kernel) != (UNSUPERVISED, ALIGNED)
    )


def _cell(
    table: str, paradigm: str, data: str, kernel: str, method: str, *, settings: TablesSettings
) -> Series:
    supervised = paradigm == SUPERVISED
    request = Request(DATA[data].classes, kernel, settings.cap, settings.seed)
    score = partial(fold_score, folds=settings.folds) if supervised else cluster_score
    subject = {"paradigm": paradigm, "data": data, "kernel": kernel, "method": method}
    return Series(
        part=table,
        subject={role: name for role, name in subject.items() if name},
        source=(data, None),
        effort=DATA[data].rows * (_OTHER_SOLVER_EFFORT if method in OTHER_SOLVERS else 1.0),
        measure=partial(score, data=data, method=method, request=request),
        steps=range(1, settings.folds + 1) if supervised else (0,),
        side_by_side=DATA[data].rows < _ROWS_FOR_CORES,
    )


def _gamma_diagonal(y: Array) -> Array:
    """Return the diagonal (n,) of the Gamma of classes y (n,)."""
    _, codes, counts = np.unique(y, return_inverse=True, return_counts=True)
    shares = counts / len(y)
    return np.asarray(1.0 - 2.0 * shares[codes] + shares @ shares)


def _cost_of_clusters(model: ClusteringIKDR, features: Array) -> float:
    """Return the cost of features X W (n, q) under `Gamma = H U U^T H`, for every graph.

    Published costs are not divided by degrees: with them, J would be at most k.
    """
    Z = np.asarray(features, dtype=np.float64)
    V = model.embedding_ - model.embedding_.mean(axis=0)
    J = sum(
        float((V[rows] * (model.kernel_.matrix(Z[rows], Z) @ V)).sum())
        for rows in gen_batches(len(Z), _ROWS_AT_ONCE)
    )
    return _published_cost(model.kernel_, Z, J, np.einsum("ij,ij->i", V, V))


def _published_cost(kernel: Kernel, features: Array, J: float, diagonal: Array) -> float:
    """Return -J computed with zeros on the diagonal of K, as the published code does.

    `features` (n, q) are X W, J has the diagonal of K in it, and `diagonal` (n,) is that of Gamma.
    """
    Z = np.asarray(features, dtype=np.float64)
    own = sum(weight * term.value(term.pairing.own(Z)) for weight, term in kernel.terms)
    return float(own @ diagonal - J)
