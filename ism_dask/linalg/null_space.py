"""Null-space directions: one rule chooses those that fill W when no other direction raises J."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ism_dask._types import Array

# Lengths whose relative difference is smaller are equal: rounding decides which one is larger.
_TIE = 1e-6
# A projection of an axis that is shorter than this is rounding: the axis is outside of the space.
_NEGLIGIBLE = 1e-6


@dataclass(frozen=True)
class RowSpace:
    """The coordinates of W: first those in which the rows vary, then some in which they do not.

    If W needs a direction in the null space of Phi, it takes the projection of a single feature
    onto that null space: the longest projection, and the first among equally long ones. Features
    that vary come first, and then, in their order, the coordinates in which the rows are constant.
    So W depends neither on the machine nor on the order of the rows.

    Attributes
    ----------
    n_varying, n_constant : int
        r and s; W is (r + s, q).
    basis : (d, r) array or None
        The first r coordinates in terms of features; None if they are the features themselves.
    """

    n_varying: int
    n_constant: int = 0
    basis: Array | None = None

    @property
    def size(self) -> int:
        """The number of rows of W."""
        return self.n_varying + self.n_constant

    def limited(self, n_constant: int) -> RowSpace:
        """Return the space with at most `n_constant` coordinates in which the rows are constant."""
        return replace(self, n_constant=min(self.n_constant, n_constant))

    def fill(self, null_space: Array, count: int) -> Array:
        """Return up to `count` orthonormal directions of a null space (r + s, m), as columns."""
        varying, constant = np.split(null_space, [self.n_varying])
        features = varying if self.basis is None else self.basis @ varying
        chosen = np.zeros((null_space.shape[1], 0))
        for axes in (features, constant):
            remainder = axes - (axes @ chosen) @ chosen.T
            while chosen.shape[1] < count:
                lengths = np.einsum("ij,ij->i", remainder, remainder)
                if not lengths.max(initial=0.0) > _NEGLIGIBLE**2:
                    break
                direction = _orthogonalised(remainder[_first_longest(lengths)], chosen)
                chosen = np.column_stack([chosen, direction])
                remainder -= np.outer(remainder @ direction, direction)
        return np.asarray(null_space @ chosen)


def axes_outside(basis: Array, count: int) -> Array:
    """Return `count` orthonormal directions (d, count), orthogonal to a `basis` (d, r).

    Each is the projection of the coordinate axis that is furthest from the span so far.
    """
    span = basis
    for _ in range(count):
        index = _first_longest(1.0 - np.einsum("ij,ij->i", span, span))
        span = np.column_stack([span, _orthogonalised(np.eye(1, len(basis), index)[0], span)])
    return span[:, basis.shape[1] :]


def _orthogonalised(direction: Array, basis: Array) -> Array:
    """Return `direction` (d,) made orthogonal to a basis (d, r), with length 1."""
    for _ in range(2):  # the second time removes the rounding of the first
        direction = direction - basis @ (basis.T @ direction)
    return np.asarray(direction / np.linalg.norm(direction))


def _first_longest(lengths: Array) -> int:
    """Return the index of the first of the largest lengths, equal up to rounding."""
    return int(np.argmax(lengths >= (1.0 - _TIE) * lengths.max()))
