"""Directions that carry nothing: one rule for which of them fill W where no other raises J."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ism_dask._types import Array

# Lengths that differ by less, relatively, are equal: rounding decides which of them is larger.
_TIE = 1e-6
# Of an axis, what is left in a space that it is outside of is rounding.
_NOTHING = 1e-6


@dataclass(frozen=True)
class RowSpace:
    """The coordinates of W: first those in which the rows vary, then some in which they do not.

    Where W needs a direction that Phi says nothing about, it takes what the null space of Phi
    holds of whole features: of the one that it holds most of, of the first among equals. It
    begins with features that vary; then come the coordinates in which the rows are constant, in
    their order. So the answer does not depend on the machine, nor on the order of the rows.

    Attributes
    ----------
    n_varying, n_constant : int
        r and s; W is (r + s, q).
    basis : (d, r) array or None
        The first r coordinates in terms of features, where they are not features themselves.
    """

    n_varying: int
    n_constant: int = 0
    basis: Array | None = None

    @property
    def size(self) -> int:
        """Rows of W."""
        return self.n_varying + self.n_constant

    def limited(self, n_constant: int) -> RowSpace:
        """Return the space with at most so many coordinates in which the rows are constant."""
        return replace(self, n_constant=min(self.n_constant, n_constant))

    def fill(self, null_space: Array, count: int) -> Array:
        """Return `count` orthonormal directions (r + s, count) of a null space (r + s, m)."""
        varying, constant = np.split(null_space, [self.n_varying])
        features = varying if self.basis is None else self.basis @ varying
        chosen = np.zeros((null_space.shape[1], 0))
        for axes in (features, constant):
            chosen = _with_longest(axes, chosen, count)
        return np.asarray(null_space @ chosen)


def _with_longest(axes: Array, chosen: Array, count: int) -> Array:
    """Return `chosen` (m, c) with the longest of the rows of `axes` (k, m), up to `count`."""
    left = axes - (axes @ chosen) @ chosen.T
    while chosen.shape[1] < count:
        lengths = np.einsum("ij,ij->i", left, left)
        if not lengths.max(initial=0.0) > _NOTHING**2:
            break
        direction = _outside(left[_first_longest(lengths)], chosen)
        chosen = np.column_stack([chosen, direction])
        left -= np.outer(left @ direction, direction)
    return chosen


def axes_outside(basis: Array, count: int) -> Array:
    """Return orthonormal directions (d, count) at right angles to an orthonormal `basis` (d, r).

    Each is what is left of the axis that is furthest outside.
    """
    inside = basis
    for _ in range(count):
        index = _first_longest(1.0 - np.einsum("ij,ij->i", inside, inside))
        inside = np.column_stack([inside, _outside(np.eye(1, len(basis), index)[0], inside)])
    return inside[:, basis.shape[1] :]


def _outside(direction: Array, basis: Array) -> Array:
    """Return the unit vector (d,) that is left of `direction` (d,) outside of a basis (d, r)."""
    for _ in range(2):  # once more, for the rounding of the first time
        direction = direction - basis @ (basis.T @ direction)
    return np.asarray(direction / np.linalg.norm(direction))


def _first_longest(lengths: Array) -> int:
    return int(np.argmax(lengths >= (1.0 - _TIE) * lengths.max()))
