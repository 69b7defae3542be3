"""Base classes of the ISM family of kernels: functions f of beta with slopes, conic sums of them.

Two wrappers give a kernel another slope: the constant one of the start, or its own values.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Real
from typing import Any, ClassVar, cast

import numpy as np

from ism_dask._types import Array
from ism_dask._validation import squarable_float
from ism_dask.kernels.pairing import Pairing

# Differences of f' are over steps of this share of beta.
_STEP = 1e-5


class Kernel(ABC):
    """A kernel of the ISM family, or a conic sum of such kernels.

    Kernels add and scale: `0.5 * Gaussian() + 0.5 * Polynomial(degree=3)`.
    """

    @property
    @abstractmethod
    def terms(self) -> tuple[tuple[float, PointwiseKernel], ...]:
        """The positive weights and the pointwise kernels that this kernel is the sum of."""

    def resolve(self, sample: Array, share: float = 1.0) -> Kernel:
        """Return the kernel with its data-dependent parameters fixed from `sample` (m, d).

        `share` is q / d, the share of the columns that W keeps.
        """
        return self.mapped(lambda term: term.resolve(sample, share))

    def with_rows_mapped(self, lift: Callable[[Array], Array]) -> Kernel:
        """Return the kernel with the rows that it stores, if any, replaced by `lift` of them."""
        return self.mapped(
            lambda term: (
                term
                if term.anchors is None
                else replace(cast("Any", term), anchors=lift(term.anchors))
            )
        )

    def widened(self, factor: float) -> Kernel:
        """Return the kernel with its width multiplied by `factor`, if all rows share one width."""
        return self.mapped(lambda term: term.widened(factor))

    def matrix(
        self, left: Array, right: Array, out: Array | None = None, *, resolved: bool = True
    ) -> Array:
        """Return the matrix (a, b) of projected rows (a, q) and (b, q).

        `out` may be memory of NumPy for it. Unless `resolved`, short distances may cancel. Raise a
        TypeError if a term has a width for each row, which is not a function of projected rows.
        """
        K: Any = None
        for weight, term in self.terms:
            if term.per_row_width:
                raise TypeError(
                    f"{term.title} has a width for each row, which projected rows do not tell; "
                    "expected a kernel with one width for all rows. Compute `s = kernel.widths("
                    "standardised_rows)` and f at beta / s_i s_j, with beta of the projected rows"
                )
            resolution = term.resolution if resolved else np.inf
            beta = term.pairing.between(left, right, out if K is None else None, resolution)
            value = term.value(beta, out=beta)
            if weight != 1.0:
                value *= weight
            K = value if K is None else np.add(K, value, out=K)
        return cast("Array", K)

    def own(self, Z: Array) -> Array:
        """Return the kernel (n,) of each of the projected rows Z (n, q) with itself."""
        return np.asarray(sum(w * term.value(term.pairing.own(Z)) for w, term in self.terms))

    def linearised(self) -> Kernel:
        """Return the kernel with the constant slope that Phi0, the matrix of the start, uses."""
        return self.mapped(lambda term: term if term.constant_slope else Linearised(term))

    def mapped(self, function: Callable[[PointwiseKernel], PointwiseKernel]) -> Kernel:
        """Return the sum of `function` of each term, with the same weights."""
        return conic_sum([(weight, function(term)) for weight, term in self.terms])

    @property
    def width_is_free(self) -> bool:
        """Whether the data may choose the width, because all have the rule of thumb "root"."""
        return all(term.sigma == "root" for _, term in self.terms)

    @property
    def is_positive_definite(self) -> bool:
        """Whether the matrix of the kernel is positive semi-definite for any rows."""
        return all(type(term).positive_definite for _, term in self.terms)

    def __add__(self, other: object) -> Kernel:
        if not isinstance(other, Kernel):
            return NotImplemented
        return conic_sum([*self.terms, *other.terms])

    def __mul__(self, weight: object) -> Kernel:
        if not isinstance(weight, Real):
            return NotImplemented
        factor = squarable_float("a kernel's weight", float(weight))
        return conic_sum([(factor * own, term) for own, term in self.terms])

    __rmul__ = __mul__


class PointwiseKernel(Kernel):
    """A kernel that applies one function f to beta.

    Attributes
    ----------
    pairing : Pairing
        The rule that computes beta.
    per_row_width : bool
        Whether each row i has a width s_i of its own; f is then a function of beta / s_i s_j, and
        so are its derivatives.
    constant_slope : bool
        Whether f' does not depend on beta, so that Phi does not depend on W.
    slope_is_psd : bool
        Whether the matrix of `unit_slope` is positive semi-definite for any rows, so that
        landmarks can approximate it.
    positive_definite : bool
        Whether the matrix of the kernel itself is positive semi-definite for any rows, so that a
        regression can use it.
    sigma : float or str or None
        The one width of all rows, or the rule for it, if there is one.
    anchors : (m, d) array or None
        The rows that the kernel stores, if it does.
    """

    pairing: ClassVar[Pairing]
    per_row_width: ClassVar[bool] = False
    constant_slope: ClassVar[bool] = False
    slope_is_psd: ClassVar[bool] = False
    positive_definite: ClassVar[bool] = False
    sigma: float | str | None = None
    anchors: Array | None = None

    @abstractmethod
    def value(self, beta: Array, out: Array | None = None) -> Array:
        """Return f(beta), elementwise; `out` may be beta itself."""

    @abstractmethod
    def unit_slope(self, beta: Array, out: Array | None = None) -> Array:
        """Return `f'(beta) / amplitude`, elementwise; `out` may be beta itself."""

    @property
    @abstractmethod
    def amplitude(self) -> float:
        """The constant of `f' = amplitude * unit_slope`; tiles apply it once, not to each entry."""

    def slope(self, beta: Array) -> Array:
        """Return f'(beta), elementwise."""
        return self.amplitude * self.unit_slope(beta)

    def second_slope(self, beta: Array, slope: Array) -> Array:
        """Return f''(beta), elementwise, from f'(beta), or by differences of it.

        The former needs `value_by_slope`.
        """
        if self.value_by_slope is None:
            step = _STEP * (np.abs(beta) + (self.resolution if np.isfinite(self.resolution) else 1))
            # Squared distances are not negative.
            below = np.where((beta >= 0) & (beta < step), beta, beta - step)
            return (self.slope(beta + step) - self.slope(below)) / (beta + step - below)
        a, b = self.value_by_slope
        divisor = a + b * beta
        zeros = np.zeros_like(divisor)
        return np.divide((1.0 - b) * slope, divisor, out=zeros, where=divisor != 0.0)

    @property
    def slope_at_zero(self) -> float:
        """f'(0); if that is 0, the sign of the amplitude takes its place."""
        return float(self.slope(np.zeros((1, 1)))[0, 0]) or float(np.copysign(1, self.amplitude))

    @property
    def value_by_slope(self) -> tuple[float, float] | None:
        """The (a, b) of `f = (a + b beta) f'`, or None. J then comes from the same sums as Phi."""
        return None

    @property
    def value_per_unit_slope(self) -> float | None:
        """The c of `f = c unit_slope`, so that tiles need not compute f as well, or None."""
        constant, rate = self.value_by_slope or (None, None)
        return constant * self.amplitude if constant is not None and rate == 0 else None

    @cached_property
    def resolution(self) -> float:
        """The beta at which f, at its initial slope, has changed by its own size.

        For kernels with per-row widths it is in units of `s_i s_j`. Errors of beta that are
        small compared with it do not matter.
        """
        size, slope = abs(self.value(np.zeros((1, 1)))), abs(self.slope(np.zeros((1, 1))))
        return float(size[0, 0] / slope[0, 0]) if size > 0 and slope > 0 else np.inf

    def beta(
        self, left: Array, right: Array, scale: Array | None = None, out: Array | None = None
    ) -> Array:
        """Return the (a, b) tile of beta from the pairing's operands, as accurate as f needs it.

        It is multiplied by the tile of `1 / s_i s_j`, if that is given as `scale`.
        """
        if scale is None:
            return self.pairing.beta(left, right, out, self.resolution)
        beta = self.pairing.beta(left, right, out, self.resolution / float(scale.max()))
        return np.multiply(beta, scale, out=beta)

    @property
    def title(self) -> str:
        """The name of the kernel in messages."""
        return type(self).__name__

    @property
    def similarity(self) -> PointwiseKernel | None:
        """The kernel that weighs a graph in place of this one; None means a gaussian."""
        return None

    @property
    def power(self) -> tuple[int, float] | None:
        """The (p, c) of `unit_slope = (beta + c)^p`, whose matrix has a finite rank, or None."""
        return None

    @property
    def terms(self) -> tuple[tuple[float, PointwiseKernel], ...]:
        """The kernel alone, with weight 1."""
        return ((1.0, self),)

    def resolve(self, sample: Array, share: float = 1.0) -> PointwiseKernel:
        """Return the kernel itself: no parameter depends on the data."""
        return self

    def widened(self, factor: float) -> PointwiseKernel:
        """Return the kernel itself: it has no width."""
        return self

    def widths(self, rows: Array) -> Array:
        """Return the (n,) widths of `rows` (n, d), or raise TypeError unless `per_row_width`."""
        raise TypeError(f"{self.title} has one width for all rows")


class Proportional(PointwiseKernel):
    """A kernel `f(beta) = amplitude * beta`, so that Phi does not depend on W."""

    constant_slope = True
    slope_is_psd = True
    value_by_slope = (0.0, 1.0)
    power = (0, 1.0)

    def value(self, beta: Array, out: Array | None = None) -> Array:
        """Return beta times the amplitude."""
        return np.multiply(beta, self.amplitude, out=out)

    def unit_slope(self, beta: Array, out: Array | None = None) -> Array:
        """Return ones."""
        filled = np.empty_like(beta) if out is None else out
        filled[...] = 1.0
        return filled


@dataclass(frozen=True)
class _OfAnother(PointwiseKernel):
    """A kernel with the name and the pairing of the one that it is made of."""

    base: PointwiseKernel

    @property
    def title(self) -> str:
        """The title of the base kernel."""
        return self.base.title

    @property
    def pairing(self) -> Pairing:  # type: ignore[override]
        """The pairing of the base kernel."""
        return self.base.pairing


@dataclass(frozen=True)
class Linearised(_OfAnother, Proportional):
    """The linear term of the Taylor series of another kernel at beta = 0, which defines Phi0."""

    @property
    def per_row_width(self) -> bool:  # type: ignore[override]
        """Whether the base kernel has a width for each row."""
        return self.base.per_row_width

    @property
    def amplitude(self) -> float:
        """The slope of the base kernel at zero."""
        return self.base.slope_at_zero

    def widths(self, rows: Array) -> Array:
        """Return the widths of the base kernel."""
        return self.base.widths(rows)


@dataclass(frozen=True)
class ValueAsSlope(_OfAnother):
    """Wrap a kernel so that its values are returned as slopes; engines that sum f' then sum f.

    No engine needs `value` here, which would be the integral of the base kernel.
    """

    amplitude = 1.0
    slope_is_psd = True
    value_by_slope = (1.0, 0.0)

    @property
    def resolution(self) -> float:
        """The resolution of the base kernel."""
        return self.base.resolution

    def value(self, beta: Array, out: Array | None = None) -> Array:
        """Raise TypeError: no integral of the base kernel is available."""
        raise TypeError(f"{self.title} has no integral here")

    def unit_slope(self, beta: Array, out: Array | None = None) -> Array:
        """Return the value of the base kernel."""
        return self.base.value(beta, out)


@dataclass(frozen=True)
class ConicSum(Kernel):
    """A sum of kernels with positive weights; its Phi is the same sum of their Phis."""

    terms: tuple[tuple[float, PointwiseKernel], ...] = ()


def conic_sum(terms: list[tuple[float, PointwiseKernel]]) -> Kernel:
    """Return the sum of weighted kernels, or the kernel itself if it is one of weight 1."""
    return terms[0][1] if len(terms) == 1 and terms[0][0] == 1.0 else ConicSum(tuple(terms))


def check_finite(matrix: Array) -> Array:
    """Return `matrix`, or raise `overflow_error` unless all its entries are finite."""
    if np.isfinite(matrix).all():
        return matrix
    raise overflow_error()


def overflow_error() -> ValueError:
    """Return the ValueError for a kernel whose values overflow."""
    return ValueError(
        "Phi is not finite: the kernel overflows on these rows. Standardise X, or take a lower "
        "degree, a smaller offset or weight, a width nearer the distances between the rows, or "
        "float64 rows"
    )
