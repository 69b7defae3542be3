"""Sums of kernels by their alignment with the classes, for a column of table 5."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import add

import numpy as np
from sklearn.utils import check_random_state

from flows.runs.data import Array
from ism_dask.estimators.preparation import prepare_rows
from ism_dask.gamma.targets import target_dependence
from ism_dask.gamma.thin_factors import alignment
from ism_dask.kernels import Kernel, as_kernel

# Rows on which the alignment is measured; larger data are sampled. Their kernel matrix is one tile.
_ROWS = 2000


def aligned_sum(kernels: Sequence[str | Kernel], X: Array, y: Array, *, seed: int = 0) -> Kernel:
    """Return the sum of kernels weighted by their centred alignment with classes y (n,).

    The alignment of a kernel is the cosine between its matrix of the standardised rows of X (n, d)
    and the kernel matrix of y, both centred (Cortes, Mohri and Rostamizadeh). The kernels are first
    brought to the norm of the centred matrix of the first one. Then each is weighted by its
    alignment; a kernel with an alignment of 0 or less is left out.
    """
    candidates = [as_kernel(kernel) for kernel in kernels]
    if len(X) > _ROWS:
        some = np.sort(check_random_state(seed).choice(len(X), _ROWS, replace=False))
        X, y = X[some], y[some]
    dependence = target_dependence(y, "classes")
    gamma = dependence.factor * dependence.gamma.signs @ dependence.factor.T
    alignments, norms = np.empty(len(candidates)), np.empty(len(candidates))
    for number, kernel in enumerate(candidates):
        prepared = prepare_rows(X, kernel, standardize=True)
        points = prepared.shards.in_double().rows(np.arange(len(X)))
        K = kernel.with_rows_mapped(prepared.lower_rows).resolve(points).matrix(points, points)
        K -= K.mean(axis=0)
        K -= K.mean(axis=1, keepdims=True)
        alignments[number], norms[number] = alignment(K, gamma), np.linalg.norm(K)
    shares = np.maximum(alignments, 0.0)
    weights = shares / shares.sum() * norms[0] / norms
    weighted = [float(weight) * kernel for weight, kernel in zip(weights, candidates, strict=True)]
    return reduce(add, [each for each, share in zip(weighted, shares, strict=True) if share > 0])
