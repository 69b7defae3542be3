"""The cells of Tables 4 and 5, and those of reference points: a method on a data set."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.svm import SVC

from flows.interface.progress import ProgressShare
from flows.paper.methods import Request, account, clustered, labelled, learned, rows_of
from flows.paper.names import (
    ALIGNED,
    DATA,
    ISM,
    ISM_PUBLISHED,
    ISM_STARTS,
    METHODS,
    OTHERS,
    PARADIGMS,
    RIVALLED,
    RIVALS,
    SUPERVISED,
    UNSUPERVISED,
)
from flows.paper.series import Result, Series
from flows.paper.settings import TablesSettings
from flows.runs.clustering import agreement
from flows.runs.crossval import FoldPlan, plan_folds
from flows.runs.data import Array, Fitted
from ism_dask import spectral_clusters
from ism_dask.estimators.base import IKDR

# How much of a piece is done when the features are learned.
_LEARNED = 0.8
# What a rival takes, against ISM; only the bar goes by it.
_RIVAL_EFFORT = 10.0


@dataclass(frozen=True)
class _Cell(Series):
    """A method on a data set under a kernel.

    Attributes
    ----------
    table : str
        A name of `PARTS`.
    data, kernel, method : str
        Reference points have no kernel.
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
        """The table."""
        return self.table

    @property
    def subject(self) -> dict[str, str]:
        """What tells a cell from others."""
        told = {
            "paradigm": self.paradigm,
            "data": self.data,
            "kernel": self.kernel,
            "method": self.method,
        }
        return {name: value for name, value in told.items() if value}

    @property
    def effort(self) -> float:
        """By the number of rows."""
        rival = self.method in RIVALS
        return DATA[self.data].rows * (_RIVAL_EFFORT if rival else 1.0)

    @property
    def source(self) -> tuple[str, str | None]:
        """Its first split."""
        return self.data, None

    @property
    def _asked(self) -> Request:
        settings = self.settings
        return Request(DATA[self.data].classes, self.kernel, settings.cap, settings.seed)


class SupervisedCell(_Cell):
    """Folds, each judged by a support vector machine on what was held out."""

    paradigm = SUPERVISED

    @property
    def steps(self) -> Sequence[int]:
        """The folds, counted from 1."""
        return range(1, self.settings.folds + 1)

    def measure(self, step: int, part: ProgressShare) -> Result:
        """Learn from all but one fold, and judge by that."""
        (X, y), fold = rows_of(self.data), self._fold(step)
        train, test = fold.train, fold.test
        part = part.named(f"{self.title}, fold {step} of {self.settings.folds}")
        with part.lasting(0.0, ""):
            found = learned(self.method, self._asked, X[train], y[train])
        with part.lasting(_LEARNED, "the classifier"):
            features = found.model.transform(X[train])
            classifier = SVC(kernel="rbf").fit(features, y[train])
            score = classifier.score(found.model.transform(X[test]), y[test])
        cost = {}
        if METHODS[self.method].solver:
            cost = {"cost": _published_cost(found.model, features, _by_class(y[train]))}
        return {"score": float(score), **account(found), **cost}

    def _fold(self, step: int) -> FoldPlan:
        plans = plan_folds(labelled(self.data), self.settings.folds, self.settings.seed)
        return plans[step - 1]


class UnsupervisedCell(_Cell):
    """Clusters of all rows, held against the classes by normalised mutual information."""

    paradigm = UNSUPERVISED

    @property
    def steps(self) -> Sequence[int]:
        """One, of all rows."""
        return (0,)

    def measure(self, step: int, part: ProgressShare) -> Result:  # noqa: ARG002  there is one
        """Find clusters in X W, or in what the reference point makes of X."""
        X, y = rows_of(self.data)
        part = part.named(self.title)
        with part.lasting(0.0, ""):
            found, clusters = self._clusters(X, y)
        told: Result = {"score": agreement(y, clusters), **account(found)}
        if METHODS[self.method].solver:
            weights = np.einsum("ij,ij->i", found.model.embedding_, found.model.embedding_)
            features = found.model.transform(X)
            told |= {
                "cost": _published_cost(found.model, features, weights),
                "rounds": len(found.model.rounds_),
            }
        return told

    def _clusters(self, X: Array, y: Array) -> tuple[Fitted, Array]:
        if METHODS[self.method].solver:
            found = clustered(self.method, self._asked, X)
            return found, found.model.labels_
        found = learned(self.method, self._asked, X, y)
        features = found.model.transform(X)
        seed = self.settings.seed
        return found, spectral_clusters(features, self._asked.q, random_state=seed)


def table_4(settings: TablesSettings) -> Iterator[Series]:
    """Return ISM and its rivals."""
    methods = [name for name in settings.chosen_methods if METHODS[name].solver]
    return _cells("table-4", settings, RIVALLED, methods)


def table_5(settings: TablesSettings) -> Iterator[Series]:
    """Return ISM under other kernels."""
    methods = [name for name in settings.chosen_methods if name == ISM]
    return _cells("table-5", settings, OTHERS, methods)


def references(settings: TablesSettings) -> Iterator[Series]:
    """Return what does without the kernels of the tables."""
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
                    if _sensible(paradigm, kernel, method):
                        yield kinds[paradigm](table, data, kernel, method, settings)


def _sensible(paradigm: str, kernel: str, method: str) -> bool:
    """Say whether there is such a cell: clusters have no labels, and one delta."""
    if paradigm == SUPERVISED:
        return True
    labelled_only = METHODS[method].needs_labels or kernel == ALIGNED
    return not labelled_only and method not in (ISM_PUBLISHED, ISM_STARTS)


def _by_class(y: Array) -> Array:
    """Return the diagonal (n,) of the Gamma of classes y (n,)."""
    _, codes, counts = np.unique(y, return_inverse=True, return_counts=True)
    shares = counts / len(y)
    return np.asarray(1.0 - 2.0 * shares[codes] + shares @ shares)


def _published_cost(model: IKDR, features: Array, diagonal: Array) -> float:
    """Return -J with zeros on the diagonal of K, as the published code has it.

    Parameters
    ----------
    model : IKDR
    features : (n, q) array
        X W.
    diagonal : (n,) array
        Of Gamma.
    """
    Z = np.asarray(features, dtype=np.float64)
    kernel: Any = model.kernel_
    own = sum(weight * term.value(term.pairing.own(Z)) for weight, term in kernel.terms)
    return float(own @ diagonal - model.objective_)
