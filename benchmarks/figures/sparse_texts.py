"""Sparse rows with many columns: texts as counts of words."""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.decomposition import TruncatedSVD
from sklearn.linear_model import SGDClassifier
from sklearn.neighbors import KNeighborsClassifier

from benchmarks.measure import Figure, PeakMemory, say
from ism_dask import ComponentsWarning, SupervisedIKDR

Array = np.ndarray[Any, Any]

_ROWS, _TEST_ROWS, _WORDS, _CLASSES = 100_000, 10_000, 50_000, 3
# Words in a text, on average, and how much the rates of a word differ between topics (deviation of
# their logarithm).
_LENGTH, _TOPICS = 40, 0.5
# Rows that a nearest-neighbour classifier remembers.
_NEIGHBOURS_FROM = 20_000
_LIMIT_GB = 2.0


def sparse_text() -> Figure:
    """100,000 made-up texts of 50,000 words, three topics: memory, and accuracy beside the SVD."""
    X, y = texts(_ROWS + _TEST_ROWS, _WORDS, seed=0)
    train, test = slice(0, _ROWS), slice(_ROWS, None)
    dense_gb = _ROWS * _WORDS * 8 / 1e9
    say(f"{X.nnz} words counted; as dense rows they would take {dense_gb:.0f} GB")
    with PeakMemory() as peak, warnings.catch_warnings():
        warnings.simplefilter("ignore", ComponentsWarning)
        began, cpu = time.perf_counter(), time.process_time()
        fitted = SupervisedIKDR(2).fit(X[train], y[train])
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    say(f"{fitted.status_.value}, residual {fitted.residual_:.2g}, {fitted.engine_}")
    methods: dict[str, Any] = {"PredictiveIKDR(2)": fitted}
    for count in (2, 100):
        methods[f"TruncatedSVD({count})"] = TruncatedSVD(count, random_state=0).fit(X[train])
    lines = []
    for name, method in methods.items():
        near = KNeighborsClassifier(25).fit(
            method.transform(X[:_NEIGHBOURS_FROM]), y[:_NEIGHBOURS_FROM]
        )
        lines.append({"method": name, "accuracy": near.score(method.transform(X[test]), y[test])})
    all_words = SGDClassifier(random_state=0).fit(X[train], y[train])
    lines.append({"method": "all words, linear SVM", "accuracy": all_words.score(X[test], y[test])})
    ours, *svd, _ = (line["accuracy"] for line in lines)
    gigabytes = peak.together / 1e9
    return {
        "table": lines,
        "peak_gb": gigabytes,
        "seconds": seconds,
        "cpu seconds": cpu,
        "residual": fitted.residual_,
        "must": f"at most {_LIMIT_GB:g} GB in all, converged, and more accurate than the SVD",
        "met": gigabytes <= _LIMIT_GB and fitted.converged_ and ours > max(svd),
    }


def texts(n: int, words: int, seed: int) -> tuple[scipy.sparse.csr_array, Array]:
    """Return the logarithms of 1 plus counts of words (n, words), and the topics (n,).

    The frequencies of words follow Zipf's law; those of each topic differ from it at random.
    """
    rng = np.random.default_rng(seed)
    y = rng.integers(0, _CLASSES, n)
    rows, columns = [], []
    for topic in range(_CLASSES):
        rates = np.exp(_TOPICS * rng.normal(size=words)) / np.arange(1, words + 1)
        ends = np.cumsum(rates / rates.sum())
        members = np.flatnonzero(y == topic)
        lengths = rng.poisson(_LENGTH, len(members))
        rows.append(np.repeat(members, lengths))
        drawn = np.searchsorted(ends, rng.random(lengths.sum()))
        columns.append(np.minimum(drawn, words - 1))
    # Narrow numbers, since scikit-learn's linear models take no others.
    entries = tuple(np.concatenate(each).astype(np.int32) for each in (rows, columns))
    counts = scipy.sparse.coo_array((np.ones(len(entries[0])), entries), shape=(n, words)).tocsr()
    counts.data = np.log1p(counts.data)
    return counts, y
