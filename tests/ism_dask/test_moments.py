"""Moments of columns: those of parts add up to those of all rows, without loss of digits."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ism_dask.rows.moments import ColumnMoments


@given(
    arrays(np.float64, (12, 2), elements=st.floats(-1e6, 1e6)),
    st.floats(-1e8, 1e8),
    st.integers(1, 11),
    st.none() | arrays(np.float64, 12, elements=st.sampled_from([0.0, 0.5, 1.0, 3.0])),
)
def test_moments_of_parts_add_up(
    X: np.ndarray, offset: float, cut: int, weights: np.ndarray | None
) -> None:
    X = X + offset
    cuts = [slice(cut), slice(cut, None)]
    parts = [ColumnMoments.of(X[s], None if weights is None else weights[s]) for s in cuts]
    whole, counts = parts[0] + parts[1], np.ones(12) if weights is None else weights
    assert (whole.n_rows, whole.weight) == (12, counts.sum())
    np.testing.assert_array_equal([whole.low, whole.high], [X.min(axis=0), X.max(axis=0)])
    if not counts.any():
        return
    exact = X.astype(np.longdouble)
    mean = (counts @ exact) / counts.sum()
    # Numbers below the normal ones have fewer digits.
    rounding = max(1e-15 * np.abs(X).max(), np.finfo(float).tiny)
    np.testing.assert_allclose(whole.mean, mean.astype(float), rtol=1e-13, atol=4 * rounding)
    expected = np.sqrt(counts @ (exact - mean) ** 2 / counts.sum()).astype(float)
    found = np.sqrt(whole.squares / whole.weight)
    free = expected < 1e-150  # squares have lost digits, or all of them
    np.testing.assert_allclose(found[~free], expected[~free], rtol=1e-9, atol=8 * rounding)
