"""Measure the cells of Tables 4 and 5 and of the reference points: a method on a data set."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

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
from flows.paper.names import (
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
)
from flows.paper.series import Result, Series
from flows.paper.settings import TablesSettings
from flows.progress.watching import ProgressShare
from flows.runs.clustering import label_agreement
from flows.runs.crossval import FoldPlan, plan_folds
from flows.runs.data import Array
from flows.runs.fitting import FittedModel
from ism_dask import spectral_clusters
from ism_dask.estimators.clustering import ClusteringIKDR
from ism_dask.kernels import Kernel

# Share of a fold's progress when the features are learned and the classifier begins.
_LEARNED = 0.8
# How many times as long another solver is expected to take as ISM; only the progress bar uses it.
_OTHER_SOLVER_EFFORT = 10.0
# Rows of K that are in memory at a time.
_ROWS_AT_ONCE = 1024


@dataclass(frozen=True)
class _Cell(Series):
    """One method on one data set under one kernel.

    Attributes
    ----------
    table : str
        A name of `PARTS`.
    data, kernel, method : str
        The kernel is empty for reference points.
    settings : TablesSettings
    """

    table: str
    data: str
    kernel: str
    method: str
    settings: TablesSettings

    paradigm = ""

    @property
    def part(self) -> str:  # type: ignore[override]
        """The table that the cell belongs to."""
        return self.table

    @property
    def subject(self) -> dict[str, str]:
        """Paradigm, data, kernel and method: together they identify the cell."""
        names = {
            "paradigm": self.paradigm,
            "data": self.data,
            "kernel": self.kernel,
            "method": self.method,
        }
        return {name: value for name, value in names.items() if value}

    @property
    def effort(self) -> float:
        """The number of rows, times `_OTHER_SOLVER_EFFORT` for the other solvers."""
        other_solver = self.method in OTHER_SOLVERS
        return DATA[self.data].rows * (_OTHER_SOLVER_EFFORT if other_solver else 1.0)

    @property
    def source(self) -> tuple[str, str | None]:
        """The data set, in its default split."""
        return self.data, None

    @property
    def _request(self) -> Request:
        settings = self.settings
        return Request(DATA[self.data].classes, self.kernel, settings.cap, settings.seed)


class SupervisedCell(_Cell):
    """A supervised cell: accuracy of a support vector machine on the held-out rows of each fold."""

    paradigm = SUPERVISED

    @property
    def steps(self) -> Sequence[int]:
        """The numbers of the folds, from 1."""
        return range(1, self.settings.folds + 1)

    def measure(self, step: int, part: ProgressShare) -> Result:
        """Learn from all folds but one, and measure the accuracy on that one."""
        (X, y), fold = rows_in_memory(self.data), self._fold(step)
        train, test = fold.train, fold.test
        part = part.named(f"{self.title}, fold {step} of {self.settings.folds}")
        with part.lasting(0.0, ""):
            fitted = fit_method(self.method, self._request, X[train], y[train])
        with part.lasting(_LEARNED, "the classifier"):
            features = fitted.model.transform(X[train])
            classifier = SVC(kernel="rbf").fit(features, y[train])
            score = classifier.score(fitted.model.transform(X[test]), y[test])
        cost = {}
        if METHODS[self.method].solver:
            diagonal = _gamma_diagonal(y[train])
            J = fitted.model.objective_
            cost = {"cost": _published_cost(fitted.model.kernel_, features, J, diagonal)}
        return {"score": float(score), **fit_facts(fitted), **cost}

    def _fold(self, step: int) -> FoldPlan:
        plans = plan_folds(labelled_dataset(self.data), self.settings.folds, self.settings.seed)
        return plans[step - 1]


class UnsupervisedCell(_Cell):
    """An unsupervised cell: normalised mutual information of the clusters with the classes."""

    paradigm = UNSUPERVISED

    @property
    def steps(self) -> Sequence[int]:
        """A single step, which clusters all rows."""
        return (0,)

    def measure(self, step: int, part: ProgressShare) -> Result:  # noqa: ARG002  there is one
        """Find clusters in X W, or in the features of the reference point."""
        X, y = rows_in_memory(self.data)
        part = part.named(self.title)
        with part.lasting(0.0, ""):
            fitted, clusters = self._clusters(X, y)
        result: Result = {"score": label_agreement(y, clusters), **fit_facts(fitted)}
        if METHODS[self.method].solver:
            result |= {
                "cost": _cost_of_clusters(fitted.model, fitted.model.transform(X)),
                "rounds": len(fitted.model.rounds_),
            }
        return result

    def _clusters(self, X: Array, y: Array) -> tuple[FittedModel, Array]:
        if METHODS[self.method].solver:
            fitted = fit_clusters(self.method, self._request, X)
            return fitted, fitted.model.labels_
        fitted = fit_method(self.method, self._request, X, y)
        features = fitted.model.transform(X)
        seed = self.settings.seed
        return fitted, spectral_clusters(features, self._request.q, random_state=seed)


def table_4(settings: TablesSettings) -> Iterator[Series]:
    """Return the cells of Table 4: ISM and the other solvers."""
    methods = [name for name in settings.chosen_methods if METHODS[name].solver]
    return _cells("table-4", settings, TABLE_4_KERNELS, methods)


def table_5(settings: TablesSettings) -> Iterator[Series]:
    """Return the cells of Table 5: ISM under other kernels."""
    methods = [name for name in settings.chosen_methods if name in (ISM, ISM_GRAPH)]
    return _cells("table-5", settings, TABLE_5_KERNELS, methods)


def comparison_cells(settings: TablesSettings) -> Iterator[Series]:
    """Return the cells of methods measured for comparison, such as LDA, which use no kernel."""
    methods = [name for name in settings.chosen_methods if not METHODS[name].solver]
    return _cells("references", settings, [""], methods)


def _cells(
    table: str, settings: TablesSettings, kernels: Sequence[str], methods: Sequence[str]
) -> Iterator[Series]:
    kinds = {SUPERVISED: SupervisedCell, UNSUPERVISED: UnsupervisedCell}
    for data in settings.chosen_data:
        for paradigm in PARADIGMS:
            for kernel in kernels:
                for method in methods:
                    if _cell_exists(paradigm, kernel, method):
                        yield kinds[paradigm](table, data, kernel, method, settings)


def _cell_exists(paradigm: str, kernel: str, method: str) -> bool:
    """Return whether there is such a cell: the weights of the aligned kernel need labels."""
    return paradigm in METHODS[method].paradigms and (paradigm, kernel) != (UNSUPERVISED, ALIGNED)


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

    Parameters
    ----------
    kernel : Kernel
    features : (n, q) array
        X W.
    J : float
        With the diagonal of K.
    diagonal : (n,) array
        The diagonal of Gamma.
    """
    Z = np.asarray(features, dtype=np.float64)
    own = sum(weight * term.value(term.pairing.own(Z)) for weight, term in kernel.terms)
    return float(own @ diagonal - J)
