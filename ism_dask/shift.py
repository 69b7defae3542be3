"""A level shift: what keeps W near itself where the bare iteration would leave it for good.

Of two subspaces each can lead to the other: near a maximum whose W is not made of the leading
eigenvectors of its own Phi, or of those by a hair only. `Phi + s W W^T` has the same stationary W
and prefers the current one; with s large enough J rises in every step, as that of a gradient.
Chemists know it from self-consistent fields (Saunders and Hillier).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg

from ism_dask.eigen import Spectrum, canonical_signs, leading
from ism_dask.typing import Array

# A shift begins with what tells the eigenvalues apart, or this share of the largest.
_LEAST = 0.1
# It fades by this factor while J rises; where J falls it doubles, and fades less from then on.
_FADES, _GROWS = 0.7, 2.0


@dataclass(frozen=True)
class Shift:
    """How much of `W W^T` is added to Phi.

    Attributes
    ----------
    size : float
        The s.
    since : int
        The iteration after which it began.
    fades : float
        What it is multiplied by where J has risen.
    """

    size: float
    since: int
    fades: float = _FADES

    @classmethod
    def begun(cls, values: Array, gap: float, since: int) -> Shift:
        """Return a shift for a W with eigenvalues (q,), falling, and a gap after them."""
        apart = max(float(values[0] - values[-1]), gap if np.isfinite(gap) else 0.0)
        return cls(max(apart, _LEAST * float(np.abs(values).max())), since)

    @property
    def softer(self) -> Shift:
        """What follows where J has risen."""
        return replace(self, size=self.size * self.fades)

    @property
    def harder(self) -> Shift:
        """What follows where J has fallen."""
        return replace(self, size=self.size * _GROWS, fades=self.fades**0.5)

    def strides(self, values: Array) -> float:
        """Return how many steps of this shift make one of the bare iteration, in their order."""
        return 1.0 + self.size / max(float(np.abs(values).max()), np.finfo(float).tiny)

    def leading(self, matrix: Array, W: Array) -> Spectrum:
        """Return what replaces the leading eigenpairs of Phi (d, d) at W (d, q).

        The values are those of Phi within the new subspace; the next one is the largest outside,
        once W stays.
        """
        found = leading(matrix + self.size * (W @ W.T), W.shape[1], guess=W)
        values, turn = scipy.linalg.eigh(found.vectors.T @ matrix @ found.vectors)
        vectors = canonical_signs(found.vectors @ turn[:, ::-1])
        return replace(found, values=values[::-1], vectors=vectors)
