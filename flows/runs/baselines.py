"""Accuracies beside that of W: the same classifier on the same folds, with other features."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.dummy import DummyClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from flows.runs.data import Array
from flows.settings.runs import DEPENDENCE
from ism_dask import SupervisedIKDR
from ism_dask.rows.execution import on_this_machine

# A baseline is left out if it takes more multiplications than this, some seconds of work.
_MOST_WORK = 5e9


@dataclass(frozen=True)
class Baseline:
    """A classifier on other features than those of W.

    `model` returns it for a number of features q and of classes, `work` the number of
    multiplications of its fit to rows (n, d).
    """

    name: str
    model: Callable[[int, int], ClassifierMixin | BaseEstimator]
    work: Callable[[int, int], float]


def classifier() -> SVC:
    """Return the classifier that judges all features."""
    return SVC(kernel="rbf")


def _standardised(*features: BaseEstimator) -> BaseEstimator:
    return make_pipeline(StandardScaler(), *features, classifier())


def _pca(q: int, _classes: int) -> BaseEstimator:
    return _standardised(PCA(q, random_state=0))


def _lda(q: int, classes: int) -> BaseEstimator:
    return _standardised(LinearDiscriminantAnalysis(n_components=min(q, classes - 1)))


def _largest_hsic(q: int, _classes: int) -> BaseEstimator:
    return make_pipeline(SupervisedIKDR(q, criterion=DEPENDENCE, random_state=0), classifier())


BASELINES = (
    # Some hundred multiplications for each pair of rows and column.
    Baseline(DEPENDENCE, _largest_hsic, lambda n, d: 100.0 * n**2 * d),
    Baseline("PCA", _pca, lambda n, d: float(n) * d**2),
    Baseline("LDA", _lda, lambda n, d: float(n) * d**2),
    Baseline("all features", lambda *_: _standardised(), lambda n, d: float(n) ** 2 * d),
    Baseline("chance", lambda *_: DummyClassifier(), lambda *_: 0.0),
)


def baseline_accuracies(
    train: Array, y: Array, held_out: Array, truth: Array, q: int, *, but: str
) -> dict[str, float]:
    """Return the share of held-out rows classified correctly, by baseline.

    Baselines that would take too long are left out, and all of those that need the rows in memory
    if the rows are read from disk.

    Parameters
    ----------
    train, held_out : (n, d) and (m, d) arrays, or row sources
    y, truth : (n,) and (m,) arrays
    q : int
        Number of features.
    but : str
        Name of a baseline to leave out: the run itself has it.
    """
    n, d = train.shape
    in_memory = isinstance(train, np.ndarray) and isinstance(held_out, np.ndarray)
    accuracies = {}
    for each in BASELINES:
        work = each.work(n, d)
        if each.name == but or work > _MOST_WORK or (work and not in_memory):
            continue
        model = each.model(min(q, n), len(np.unique(y)))
        rows = (train, held_out) if work else (np.zeros((n, 1)), np.zeros((len(truth), 1)))
        with warnings.catch_warnings(), on_this_machine():
            # LDA warns of columns that depend on others, which do not hinder it, and a fit of W of
            # how it ended.
            warnings.simplefilter("ignore", UserWarning)
            accuracies[each.name] = float(model.fit(rows[0], y).score(rows[1], truth))
    return accuracies
