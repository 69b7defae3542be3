"""Gamma as a weighted sum: what X W is to depend on, minus what it is not to depend on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from ism_dask._types import Array
from ism_dask.gamma.base import Dependence, ThinGamma, centred_by

# If the largest eigenvalue of Gamma is less than this share of `|Gamma_y|`, J is positive for no W.
_NOTHING = 1e-8


@dataclass(frozen=True, eq=False, kw_only=True)
class AvoidingDependence(Dependence):
    """`Gamma_y - weight |Gamma_y| / |Gamma_s| Gamma_s`, with Frobenius norms.

    The norms make the weight independent of the scales of y and s. With a weight of 0, J is that of
    y alone.

    Attributes
    ----------
    explained : Dependence
        The dependence on y.
    avoided : Dependence
        The dependence on s.
    weight : float
    """

    explained: Dependence
    avoided: Dependence
    weight: float

    def part(self, rows: Array) -> Self:
        """Return the dependence of some rows (k,), without weights; the norms are those of all."""
        explained, avoided = self.explained.part(rows), self.avoided.part(rows)
        return replace(super().part(rows), explained=explained, avoided=avoided)


def avoiding(explained: Dependence, avoided: Dependence, weight: float) -> AvoidingDependence:
    """Return the dependence on y that counts the dependence on s with a negative weight.

    The rows of both dependences have the same weights, if they have some. Raise a ValueError if J
    could be positive for no W, because s leaves nothing of y.
    """
    norm = frobenius_norm(explained)
    gamma, facts = weighted_sum(
        [explained, avoided], [1.0, -weight * norm / frobenius_norm(avoided)]
    )
    combined = AvoidingDependence(
        **{**vars(explained), "gamma": gamma, "facts": facts},
        explained=explained,
        avoided=avoided,
        weight=weight,
    )
    if _largest_eigenvalue(combined) <= _NOTHING * norm:
        raise ValueError(
            f"`avoid` explains y completely: with `avoid_weight` {weight:g}, J is negative for "
            "every W. Leave out of `avoid` what y follows from, or give a smaller `avoid_weight`"
        )
    return combined


def weighted_sum(
    dependences: Sequence[Dependence], coefficients: Sequence[float]
) -> tuple[ThinGamma, Array]:
    """Return the Gamma `sum_k coefficients_k Gamma_k`, and its facts (n, r)."""
    pairs = zip(dependences, coefficients, strict=True)
    signs = np.concatenate([share * each.gamma.signs for each, share in pairs])
    return ThinGamma(signs), np.hstack([each.factor for each in dependences])


def frobenius_norm(dependence: Dependence) -> float:
    """Return `|Gamma|` over all pairs of rows, where a row of weight 2 counts as two rows."""
    gram, signs = _gram(dependence)
    return float(np.sqrt(np.einsum("ij,ij,i,j", gram, gram, signs, signs)))


def _largest_eigenvalue(dependence: Dependence) -> float:
    """Return the largest eigenvalue of Gamma on its range; on the rest of the rows it is 0."""
    gram, signs = _gram(dependence)
    squares, vectors = np.linalg.eigh(gram)
    root = vectors * np.sqrt(np.maximum(squares, 0.0))
    return float(np.linalg.eigvalsh(root.T * signs @ root)[-1])


def _gram(dependence: Dependence) -> tuple[Array, Array]:
    """Return `U^T U` (r, r) and the signs (r,) of Gamma; a row of weight 2 counts as two rows."""
    U, weights = dependence.factor, dependence.weights
    gram = U.T @ U if weights is None else (U := centred_by(U, weights)).T * weights @ U
    return gram, dependence.gamma.signs
