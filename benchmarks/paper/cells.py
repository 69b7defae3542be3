"""Measure the cells of Tables 4 and 5 and of the reference points: a method on a data set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
from sklearn.model_selection import StratifiedKFold
from sklearn.svm import SVC
from sklearn.utils import check_random_state, gen_batches

from benchmarks.paper.methods import (
    SAMPLE_ROWS,
    Request,
    fit_clusters,
    fit_method,
    rows_in_memory,
)
from benchmarks.paper.series import Result, Series
from benchmarks.paper.settings import (
    ALIGNED,
    DATA,
    ISM,
    ISM_GRAPH,
    METHODS,
    PARADIGMS,
    SUPERVISED,
    TABLE_4_KERNELS,
    TABLE_5_KERNELS,
    UNSUPERVISED,
    PaperSettings,
)
from flows.runs.clustering import label_agreement
from ism_dask._types import Array
from ism_dask.clustering.kmeans import kmeans
from ism_dask.clustering.spectral_embedding import Graph
from ism_dask.engines import EngineOptions
from ism_dask.gamma.embedding_guides import EMBEDDING, normalise_rows
from ism_dask.kernels import Affinity, Gaussian, Kernel
from ism_dask.rows.shards import cut
from ism_dask.threads import single_threaded_blas

# A fit to fewer rows uses one core.
_ROWS_FOR_CORES = 1000
# Rows of K that are in memory at a time.
_ROWS_AT_ONCE = 1024
# Share of the trace of the kernel of a graph that landmarks may leave out.
_LEFT_OUT = 1e-4


def fold_score(step: int, *, data: str, method: str, request: Request, folds: int) -> Result:
    """Learn from all folds but one, and measure the accuracy of an SVM on that one."""
    X, y = rows_in_memory(data)
    dealt = StratifiedKFold(folds, shuffle=True, random_state=request.seed).split(X, y)
    train, test = next(islice(dealt, step - 1, None))
    fitted = fit_method(method, request, X[train], y[train])
    features = fitted.model.transform(X[train])
    classifier = SVC(kernel="rbf").fit(features, y[train])
    score = classifier.score(fitted.model.transform(X[test]), y[test])
    result = {"score": float(score), **fitted.facts}
    if METHODS[method].solver:
        shares = np.unique(y[train], return_counts=True)[1] / len(train)
        own = 1.0 - 2.0 * shares[np.unique(y[train], return_inverse=True)[1]] + shares @ shares
        J, kernel = fitted.model.objective_, fitted.model.kernel_
        result["cost"] = _published_cost(kernel, features, J, own)
    return result


def cluster_score(_step: int, *, data: str, method: str, request: Request) -> Result:
    """Measure the agreement with the classes of clusters in X W, or in a reference's features."""
    X, y = rows_in_memory(data)
    if not METHODS[method].solver:
        fitted = fit_method(method, request, X, y)
        features = fitted.model.transform(X)
        clusters = spectral_clusters(features, request.q, random_state=request.seed)
        return {"score": label_agreement(y, clusters), **fitted.facts}
    fitted = fit_clusters(method, request, X)
    model = fitted.model
    return {
        "score": label_agreement(y, model.labels_),
        **fitted.facts,
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


def table_cells(table: str, settings: PaperSettings) -> Iterator[Series]:
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
    table: str, paradigm: str, data: str, kernel: str, method: str, *, settings: PaperSettings
) -> Series:
    supervised = paradigm == SUPERVISED
    request = Request(DATA[data].classes, kernel, settings.cap, settings.seed)
    score = partial(fold_score, folds=settings.folds) if supervised else cluster_score
    subject = {"paradigm": paradigm, "data": data, "kernel": kernel, "method": method}
    return Series(
        part=table,
        subject={role: name for role, name in subject.items() if name},
        measure=partial(score, data=data, method=method, request=request),
        steps=range(1, settings.folds + 1) if supervised else (0,),
        side_by_side=DATA[data].rows < _ROWS_FOR_CORES,
    )


def _cost_of_clusters(model: Any, features: Array) -> float:
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
    own = kernel.own(Z)
    return float(own @ diagonal - J)


def spectral_clusters(Z: Any, n_clusters: int, *, random_state: Any = None) -> Any:
    """Return the clusters (n,) of the rows of Z (n, q), as `UnsupervisedIKDR` computes them of X W.

    It uses the same graph (a gaussian of 3/8 of the median distance), the same embedding and the
    same k-means, without a projection and without standardisation.
    """
    rows = np.asarray(Z)
    n, q = rows.shape
    random = check_random_state(random_state or 0)
    indices = np.sort(random.choice(n, min(n, SAMPLE_ROWS), replace=False))
    sample, seed = rows[indices], int(random.randint(2**31))
    with single_threaded_blas():
        affinity = Affinity.for_kernel(Gaussian(), sample)
        graph = Graph.from_shards(
            cut(rows), affinity, EngineOptions(tol=_LEFT_OUT), sample=sample, seed=seed
        )
        U = graph.embedded(np.eye(q), n_clusters).shards.gather_fact(EMBEDDING)[:, :-1]
        return kmeans(normalise_rows(U), n_clusters, seed=seed)[1]
