"""Gamma as a weighted sum: what X W is to depend on, minus what it is not to depend on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from ism_dask._types import Array
from ism_dask.gamma.base import Dependence, ThinGamma
from ism_dask.gamma.weighted import centred_by

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


def avoiding(
    explained: Dependence, avoided: Dependence, weight: float, weights: Array | None = None
) -> AvoidingDependence:
    """Return the dependence on y that counts the dependence on s with a negative weight.

    The rows of both dependences have weights (n,), if there are some. Raise a ValueError if J could
    be positive for no W, because s leaves nothing of y.
    """
    norm = frobenius_norm(explained, weights)
    ratio = weight * norm / frobenius_norm(avoided, weights)

    def difference(y: Dependence, s: Dependence) -> AvoidingDependence:
        gamma, facts = weighted_sum([y, s], [1.0, -ratio])
        shown = {name: getattr(y, name) for name in ("classes", "remainder", "columns")}
        return AvoidingDependence(
            gamma, facts, explained=explained, avoided=avoided, weight=weight, **shown
        )

    combined = difference(explained, avoided)
    if explained.equal_rows is not None and avoided.equal_rows is not None:
        whole = difference(explained.equal_rows, avoided.equal_rows)
        combined = replace(combined, equal_rows=whole)
    if _largest_eigenvalue(combined, weights) <= _NOTHING * norm:
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


def frobenius_norm(dependence: Dependence, weights: Array | None) -> float:
    """Return `|Gamma|` over all pairs of rows, where a row of weight 2 counts as two rows."""
    gram, signs = _gram(dependence, weights)
    return float(np.sqrt(np.einsum("ij,ij,i,j", gram, gram, signs, signs)))


def _largest_eigenvalue(dependence: Dependence, weights: Array | None) -> float:
    """Return the largest eigenvalue of Gamma on its range; on the rest of the rows it is 0."""
    gram, signs = _gram(dependence, weights)
    squares, vectors = np.linalg.eigh(gram)
    root = vectors * np.sqrt(np.maximum(squares, 0.0))
    return float(np.linalg.eigvalsh(root.T * signs @ root)[-1])


def _gram(dependence: Dependence, weights: Array | None) -> tuple[Array, Array]:
    """Return `U^T U` (r, r) and the signs (r,) of Gamma; a row of weight 2 counts as two rows."""
    whole = dependence.equal_rows or dependence
    U = whole.factor
    gram = U.T @ U if weights is None else (U := centred_by(U, weights)).T * weights @ U
    return gram, whole.gamma.signs
