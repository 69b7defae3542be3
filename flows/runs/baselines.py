"""Accuracies beside that of W: the same classifier on the same folds, with other features."""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.base import BaseEstimator
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


def classifier() -> SVC:
    """Return the classifier that judges all features."""
    return SVC(kernel="rbf")


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
    for name, (model, work) in _baselines(min(q, n), len(np.unique(y)), n, d).items():
        if name == but or work > _MOST_WORK or (work and not in_memory):
            continue
        rows = (train, held_out) if work else (np.zeros((n, 1)), np.zeros((len(truth), 1)))
        with warnings.catch_warnings(), on_this_machine():
            # LDA warns of columns that depend on others, which do not hinder it, and a fit of W of
            # how it ended.
            warnings.simplefilter("ignore", UserWarning)
            accuracies[name] = float(model.fit(rows[0], y).score(rows[1], truth))
    return accuracies


def _baselines(q: int, classes: int, n: int, d: int) -> dict[str, tuple[BaseEstimator, float]]:
    """Return each classifier with the number of multiplications of its fit to rows (n, d)."""
    largest_hsic = SupervisedIKDR(q, criterion=DEPENDENCE, random_state=0)
    lda = LinearDiscriminantAnalysis(n_components=min(q, classes - 1))
    return {
        # Some hundred multiplications for each pair of rows and column.
        DEPENDENCE: (make_pipeline(largest_hsic, classifier()), 100.0 * n**2 * d),
        "PCA": (_standardised(PCA(q, random_state=0)), float(n) * d**2),
        "LDA": (_standardised(lda), float(n) * d**2),
        "all features": (_standardised(), float(n) ** 2 * d),
        "chance": (DummyClassifier(), 0.0),
    }


def _standardised(*features: BaseEstimator) -> BaseEstimator:
    return make_pipeline(StandardScaler(), *features, classifier())
