"""Gamma, the dependence that W is to explain, never stored as an n x n matrix, and its sums.

A Gamma is a small object that travels with each task, and `facts`: a few numbers for each row, cut
into shards like X. The facts of some rows and columns are enough to compute their tile of Gamma.

The weights of rows are checked here, too: a row of weight 2 counts as two equal rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, Self, TypeAlias

import numpy as np

from ism_dask._types import Array
from ism_dask._validation import check_choice
from ism_dask.gamma.row_values import array_of
from ism_dask.linalg.subspaces import centred_by
from ism_dask.rows.raw import RowFact

Rows: TypeAlias = Array | slice

# The numbers (b, f) that Gamma needs of each row: its class, or its row of U.
GAMMA_FACTS = RowFact("gamma")
# Weights whose largest is within this power of two of 1 stay as they are.
_USUAL_EXPONENT = 100
# Rows of whole weights are repeated in a sample, up to this sum of the weights.
_MOST_REPEATED = 10**6
# If the largest eigenvalue of Gamma is less than this share of `|Gamma_y|`, J is positive for no W.
_NOTHING = 1e-8


@dataclass(frozen=True)
class Gamma:
    """An n x n symmetric matrix `U diag(signs) U^T` with a tall and thin U, and signs (r,).

    The facts of a row are its row of U. A subclass may compute U, and any tile of the matrix, from
    fewer facts. U is `V @ mixing` with a V that may be sparse, so that sums over the rows of V are
    cheapest.
    """

    signs: Array

    @property
    def is_psd(self) -> bool:
        """Whether Gamma is positive semi-definite, so that J is a measure of dependence."""
        return bool((self.signs >= 0).all())

    def as_rows(self, facts: Array, dtype: np.dtype[Any]) -> Array:
        """Return the operand (b, ...) of `tile` for the rows of `facts` (b, f)."""
        return (facts * self.signs).astype(dtype)

    def as_columns(self, facts: Array, dtype: np.dtype[Any]) -> Array:
        """Return the operand (..., b) of `tile` for the same rows as columns of a tile."""
        return facts.T.astype(dtype)

    def tile(self, rows: Array, columns: Array, out: Array) -> Array:
        """Fill `out` (a, b) from parts of `as_rows` (a, ...) and of `as_columns` (..., b)."""
        return np.matmul(rows, columns, out=out)

    def factor(self, facts: Array) -> Array:
        """Return the rows of U (b, r) that belong to `facts` (b, f)."""
        return facts

    @property
    def mixing(self) -> Array:
        """The (v, r) matrix in `U = V @ mixing`."""
        return np.eye(len(self.signs))

    def memberships(self, facts: Array) -> Iterator[tuple[Rows, Array | None]]:
        """Yield the nonzero rows of each column of V, and its values there (None: all are 1)."""
        yield from ((slice(None), column) for column in facts.T)

    def part(self, facts: Array) -> tuple[Gamma, Array]:
        """Return the Gamma of some rows alone, centred on them, and their facts (k, f)."""
        return self, facts - facts.mean(axis=0)


@dataclass(frozen=True, eq=False)
class Dependence:
    """A Gamma with the facts (n, f) of all rows, made from a target.

    It has the distinct labels (c,) if y are classes, and the number of columns of y. Gamma and the
    facts are without the weights (n,) of the rows, which there are if rows do not count alike.
    """

    gamma: Gamma
    facts: Array
    classes: Array | None = None
    columns: int = 1
    weights: Array | None = None

    @property
    def factor(self) -> Array:
        """The rows of U (n, r)."""
        return self.gamma.factor(self.facts)

    @property
    def scaled_factor(self) -> Array:
        """U (n, r) with each column times the root of the size of its sign."""
        return self.factor * np.sqrt(np.abs(self.gamma.signs))

    @property
    def weighted(self) -> tuple[Gamma, Array]:
        """Gamma and its facts, where a row of weight 2 counts as two rows.

        `Gamma_ij` is multiplied by `w_i w_j`, after U was centred by the weights.
        """
        if self.weights is None:
            return self.gamma, self.facts
        facts = self.weights[:, None] * centred_by(self.factor, self.weights)
        return Gamma(self.gamma.signs), facts

    def part(self, rows: Array) -> Self:
        """Return the dependence of some rows (k,), without weights. Classes keep their numbers."""
        gamma, facts = self.gamma.part(self.facts[rows])
        return replace(self, gamma=gamma, facts=facts, weights=None)


@dataclass(frozen=True, eq=False, kw_only=True)
class AvoidingDependence(Dependence):
    """`Gamma_y - weight |Gamma_y| / |Gamma_s| Gamma_s`, with Frobenius norms.

    The norms make the weight independent of the scales of y and s. With a weight of 0, J is that of
    y alone. `explained` is the dependence on y, `avoided` that on s.
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
    # The largest eigenvalue of Gamma on its range; on the rest of the rows it is 0.
    gram, signs = _gram(combined)
    squares, vectors = np.linalg.eigh(gram)
    root = vectors * np.sqrt(np.maximum(squares, 0.0))
    if np.linalg.eigvalsh(root.T * signs @ root)[-1] <= _NOTHING * norm:
        raise ValueError(
            f"`avoid` explains y completely: with `avoid_weight` {weight:g}, J is negative for "
            "every W. Leave out of `avoid` what y follows from, or give a smaller `avoid_weight`"
        )
    return combined


def weighted_sum(
    dependences: Sequence[Dependence], coefficients: Sequence[float]
) -> tuple[Gamma, Array]:
    """Return the Gamma `sum_k coefficients_k Gamma_k`, and its facts (n, r)."""
    pairs = zip(dependences, coefficients, strict=True)
    signs = np.concatenate([share * each.gamma.signs for each, share in pairs])
    return Gamma(signs), np.hstack([each.factor for each in dependences])


def frobenius_norm(dependence: Dependence) -> float:
    """Return `|Gamma|` over all pairs of rows, where a row of weight 2 counts as two rows."""
    gram, signs = _gram(dependence)
    return float(np.sqrt(np.einsum("ij,ij,i,j", gram, gram, signs, signs)))


def _gram(dependence: Dependence) -> tuple[Array, Array]:
    """Return `U^T U` (r, r) and the signs (r,) of Gamma; a row of weight 2 counts as two rows."""
    U, weights = dependence.factor, dependence.weights
    gram = U.T @ U if weights is None else (U := centred_by(U, weights)).T * weights @ U
    return gram, dependence.gamma.signs


def check_weights(weights: Any, n_rows: int, name: str = "`sample_weight`") -> Array:
    """Return weights (n,) of rows as float64; raise a ValueError if they are none."""
    given = array_of(name, weights)
    if np.ma.is_masked(weights):
        raise ValueError(f"{name} has masked numbers; give these rows the weight 0")
    try:
        with np.errstate(over="ignore"):  # infinity is refused below
            casting: Any = "safe" if given.dtype.kind in "cmM" else "unsafe"
            numbers = given.astype(np.float64, casting=casting)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(
            f"{name} must be real numbers, one for each row; got dtype {given.dtype}"
        ) from error
    if numbers.shape != (n_rows,):
        raise ValueError(
            f"{name} has shape {numbers.shape}; expected ({n_rows},), one for each row"
        )
    if not np.isfinite(numbers).all():
        raise ValueError(f"{name} contains NaN or infinity; give these rows the weight 0")
    if (numbers < 0).any():
        row = int(np.flatnonzero(numbers < 0)[0])
        raise ValueError(f"{name} is {numbers[row]:g} in row {row}; expected numbers from 0 up")
    if not numbers.any():
        raise ValueError(f"every {name} is zero; expected some above 0")
    return _in_usual_unit(numbers, name)


def _in_usual_unit(weights: Array, name: str) -> Array:
    """Return weights (n,) in a unit, without effect on W, that keeps products and sums finite."""
    top, is_alone = int(weights.argmax()), np.count_nonzero(weights) == 1
    heaviest = weights[top]
    # All of these together would be lost in the sum of the weights.
    weights[weights < np.finfo(np.float64).eps / len(weights) * heaviest] = 0.0
    exponent = int(np.frexp(heaviest)[1])
    if abs(exponent) > _USUAL_EXPONENT:
        weights = np.ldexp(weights, -exponent)
    # A sample of the rows by their weights would be this row alone.
    if not is_alone and np.ptp(repeated_rows(weights[weights > 0])) == 0:
        raise ValueError(
            f"{name} is {heaviest:g} in row {top}, so much that all other rows together count "
            "nothing beside it; expected weights by which several rows count"
        )
    return weights


def weighted_by_class(
    y: Array, class_weight: Mapping[Any, Any] | str, weights: Array | None
) -> Array:
    """Return the weights (n,) of rows with labels y (n,), multiplied by the weights of classes.

    "balanced" gives all classes the same sum of weights; all together count as before.
    """
    classes, codes = np.unique(y, return_inverse=True)
    weights = np.ones(len(y)) if weights is None else weights
    if isinstance(class_weight, str):
        check_choice("`class_weight`", class_weight, ["balanced"])
        sums = np.bincount(codes, weights)
        counted = sums > 0
        shares = np.zeros(len(classes))
        shares[counted] = weights.sum() / (counted.sum() * sums[counted])
        return np.asarray(shares[codes] * weights)
    if not isinstance(class_weight, Mapping):
        raise ValueError(  # noqa: TRY004
            f"`class_weight` must be a dict of the weights of classes, or 'balanced'; got "
            f"{class_weight!r}"
        )
    unknown = [label for label in class_weight if label not in classes.tolist()]
    if unknown:
        raise ValueError(
            f"`class_weight` has {unknown[0]!r}, which is no class of `y`; the classes are "
            f"{classes.tolist()}"
        )
    for label, weight in class_weight.items():
        if not (isinstance(weight, Real) and float(weight) >= 0):
            raise ValueError(
                f"`class_weight` is {weight!r} for the class {label!r}; expected numbers from 0 up"
            )
    given = np.array([class_weight.get(label, 1.0) for label in classes.tolist()])
    return check_weights(given[codes] * weights, len(y), "`class_weight`")


def repeated_rows(weights: Array, most: int = _MOST_REPEATED) -> Array:
    """Return ascending indices (m,) of rows, each as often as its weight says.

    If that would be more than `most`, a row has its share of these, rounded up or down; if the
    weights are no whole numbers, of as many indices as there are rows.
    """
    count = len(weights)
    if (weights == np.floor(weights)).all():
        if weights.sum() <= most:
            return np.repeat(np.arange(count), weights.astype(np.intp))
        count = max(count, most)
    ends = np.cumsum(weights)
    positions = (np.arange(count) + 0.5) * (ends[-1] / count)
    return np.searchsorted(ends, positions, side="right")
