"""The steps of a prediction over all rows: landmarks, a setting that unseen rows choose, the climb."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from ism_dask._types import Array
from ism_dask.criteria.landmark_regression import (
    TARGET,
    KernelSums,
    LandmarkRegression,
    kernel_sums,
)
from ism_dask.kernels import Kernel
from ism_dask.linalg.cholesky import PivotedCholesky
from ism_dask.rows.raw import LoadedShard
from ism_dask.rows.shards import Shards

_BLOCK, _WORST = 32, 8


def landmark_rows(
    kernel: Kernel, Z: Array, most: int, tol: float, rng: np.random.Generator
) -> tuple[Array, float]:
    """Return the numbers (m,) of landmarks among projected rows Z (n, q), and what they leave.

    That is the share of the trace of the kernel matrix. They are drawn with probabilities in
    proportion to what the earlier ones leave of each row, and the worst rows join each draw.
    """
    diagonal = sum(w * term.value(term.pairing.own(Z)) for w, term in kernel.terms)
    trace = float(diagonal.sum())
    cholesky = PivotedCholesky(lambda rows: kernel.matrix(Z, Z[rows]), diagonal.copy())
    while cholesky.size < most and (left := float(cholesky.left.sum())) > tol * trace:
        drawn = rng.choice(len(Z), _BLOCK, p=cholesky.left / left)
        worst = np.argsort(-cholesky.left)[:_WORST]
        block = np.concatenate([worst, drawn])
        if not cholesky.add(block, np.concatenate([np.zeros(_WORST), rng.random(_BLOCK)])):
            break
    return np.array(cholesky.pivots), float(cholesky.left.sum()) / trace
