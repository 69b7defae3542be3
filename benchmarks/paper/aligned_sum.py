"""A sum of kernels weighted by their centred alignment with y, the fourth kernel of Table 5."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import add
from typing import Any

import numpy as np
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_consistent_length, check_random_state

from ism_dask._types import Array
from ism_dask.kernels import Kernel, as_kernel

# Rows on which the alignment is measured; larger data are sampled.
_ROWS = 2000


def aligned_sum(
    kernels: Sequence[str | Kernel], X: Any, y: Any, *, random_state: Any = None
) -> Kernel:
    """Return a sum of kernels weighted by their centred alignment with classes.

    The alignment of a kernel is the cosine between its matrix of the standardised rows of X and the
    matrix of equal classes, both centred (Cortes, Mohri and Rostamizadeh). The kernels are first
    brought to the same size, which is the norm of the centred matrix of the first one. Then each is
    weighted by its alignment; a kernel with an alignment of 0 or less is left out.

    Parameters
    ----------
    kernels : sequence of str or Kernel
    X : (n, d) array
        The rows that W will be fitted to. If there are more than 2,000, a random sample of them
        is used.
    y : (n,) labels
    random_state : int, RandomState or None
    """
    check_consistent_length(X, y)
    rows, labels = np.asarray(X, dtype=np.float64), np.asarray(y)
    if len(rows) > _ROWS:
        random = check_random_state(random_state or 0)
        indices = np.sort(random.choice(len(rows), _ROWS, replace=False))
        rows, labels = rows[indices], labels[indices]
    points = StandardScaler().fit_transform(rows)
    L = _centred((labels[:, None] == labels).astype(np.float64))
    candidates = [as_kernel(kernel).resolve(points) for kernel in kernels]
    matrices = [_centred(kernel.matrix(points, points)) for kernel in candidates]
    norms = [float(np.linalg.norm(K)) for K in matrices]
    alignments = np.array(
        [float(np.vdot(K, L)) / norm for K, norm in zip(matrices, norms, strict=True)]
    )
    if alignments.max() <= 0:
        raise ValueError("no kernel agrees with `y`: all alignments are 0 or less")
    shares = np.maximum(alignments, 0.0) / np.maximum(alignments, 0.0).sum()
    return reduce(
        add,
        [
            float(share * norms[0] / norm) * as_kernel(kernel)
            for kernel, share, norm in zip(kernels, shares, norms, strict=True)
            if share > 0
        ],
    )


def _centred(K: Array) -> Array:
    K = K - K.mean(axis=0)
    return np.asarray(K - K.mean(axis=1, keepdims=True))
